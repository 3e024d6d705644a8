"""Every format and every published template: calls in each stray form, in pieces of any size, and through the masks by a model that
wants to write them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from call_formats import BY_NAME, accepts, dsml, split
from test_call_grammars import X_CALLS
from test_strays import read
from tiny_models import tiny_model

import edgellm
from edgellm.api.tools import toolbox
from edgellm.chat.families import CallSplitter, Segment
from edgellm.chat.shape import shape_of
from edgellm.chat.templates import ChatTemplate
from edgellm.chat.tools import CallDelta, Tool, ToolCall
from edgellm.errors import TemplateError

SIZES = (1, 3, 1000)
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "pattern": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["pattern"],
}
TOOL = Tool("f", "", SCHEMA)
ARGUMENTS = {"pattern": "red apple", "n": 3, "path": "src"}
UNITS = {  # one argument in the calls of X_CALLS
    "qwen3-coder": "<parameter=x>\n1\n</parameter>\n",
    "seed": "<parameter=x>1</parameter>\n",
    "minimax": '<parameter name="x">1</parameter>\n',
    "glm": "<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n",
    "glm-4.7": "<arg_key>x</arg_key><arg_value>1</arg_value>",
    **dict.fromkeys(("deepseek-v3.2", "deepseek-v4"), dsml('<@parameter name="x" string="false">1</@parameter>\n')),
}
NAMES = sorted(X_CALLS)


def call(name: str, pairs: Sequence[tuple[str, Any]], text: str | None = None) -> str:
    """A call of f in a format, its arguments in the order of `pairs`."""
    text = X_CALLS[name] if text is None else text
    if name in UNITS:
        written = ""
        for key, value in pairs:
            unit = UNITS[name].replace("x", key, 1) if "arg_key" not in UNITS[name] else UNITS[name].replace(">x<", f">{key}<")
            unit = unit.replace('name="x"', f'name="{key}"').replace("=x>", f"={key}>")
            if "parameter name" in unit and "DSML" in unit:
                unit = UNITS[name].replace('name="x"', f'name="{key}"')
                unit = unit.replace('"false">1', f'"true">{value}' if isinstance(value, str) else f'"false">{value}')
            written += unit.replace(">1<", f">{value}<").replace("\n1\n", f"\n{value}\n")
        return text.replace(UNITS[name], written)
    if name in ("pythonic", "lfm2"):
        return text.replace("x=1", ", ".join(f"{key}={value!r}" for key, value in pairs))
    if name == "gemma":
        values = [f'{key}:<|"|>{value}<|"|>' if isinstance(value, str) else f"{key}:{value}" for key, value in pairs]
        return text.replace("x:1", ",".join(values))
    body = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in pairs)
    return text.replace('{"x":1}', "{" + body + "}")


@pytest.mark.parametrize("name", NAMES)
def test_arguments_come_in_any_order_each_once_and_all_that_are_required(name: str) -> None:
    pairs, format = [*ARGUMENTS.items()], BY_NAME[name]
    for order in (pairs, pairs[::-1], [pairs[2], pairs[0], pairs[1]], pairs[:1], pairs[:2]):
        text = call(name, order)
        assert accepts(format, [TOOL], text), text
        for size in SIZES:
            assert [each.arguments for each in split(name, text, size, [TOOL])[1]] == [dict(order)], text
    assert not accepts(format, [TOOL], call(name, [pairs[0], pairs[1], pairs[1]]))
    assert not accepts(format, [TOOL], call(name, pairs[1:]))


START = ("functionary-v3.2", "llama3", "pythonic", "xlam")  # calls begin the answer


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_calls_stand_beside_texts_and_each_other(name: str, size: int) -> None:
    format, text = BY_NAME[name], call(name, [*ARGUMENTS.items()])
    wanted = [ARGUMENTS]
    before = "" if name in START else "I look.\n"
    closer = "" if name in ("command-r",) else "\n"
    for said in (f"{before}{text}", f"{before}{text}{closer}Done."):
        assert accepts(format, [TOOL], said), said
        shown, calls = split(name, said, size, [TOOL])
        assert [each.arguments for each in calls] == wanted, said
        assert shown.replace("\n", "").startswith(before.strip()) and ("Done." in shown) == ("Done." in said)
    if name not in (*START, "harmony", "gigachat-3"):
        shown, calls = split(name, f"{text}\n{text}", size, [TOOL])
        assert [each.arguments for each in calls] == wanted * 2 and accepts(format, [TOOL], f"{text}\n{text}")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in (*START, "harmony")])
def test_calls_stand_within_thinking(name: str, size: int) -> None:
    text = call(name, [*ARGUMENTS.items()])
    assert read(BY_NAME[name], f"Hm. {text}</think>\n\nDone.", size, [TOOL])[2] == [ARGUMENTS]
    assert read(BY_NAME[name], f"Hm.</think>\n\n{text}", size, [TOOL])[2] == [ARGUMENTS]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_call_is_not_lost(name: str, size: int) -> None:
    """Calls of other functions are calls or text, and text that names a mark stays text."""
    text = call(name, [("pattern", "red apple")])
    shown, calls = split(name, text, size, [Tool("g", "", SCHEMA)])
    assert "red apple" in shown or [each.arguments for each in calls] == [{"pattern": "red apple"}]
    quoted = f"Calls begin with `{BY_NAME[name].openers[0]}` and go on."
    assert split(name, quoted, size, [TOOL]) == (quoted, [])


def published(shared: Path) -> Iterator[tuple[str, ChatTemplate]]:
    for path in sorted((shared / "templates").glob("*.jinja")):
        template = ChatTemplate(path.read_text(encoding="utf-8"))
        if shape_of(template).tools is not None:
            yield path.stem, template


class Wants:
    """A processor of a model that wants to write some tokens."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = [*tokens]

    def __call__(self, ids: npt.NDArray[np.int32], logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if self._tokens:
            logits[self._tokens.pop(0)] += 1e4
        return logits


def test_a_model_of_every_template_writes_what_it_wants(shared: Path, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", "F16", tokenizer="bpe", n_layers=1, context=8192)
    tool = {"name": "f", "description": "", "parameters": SCHEMA}
    tried = 0
    with edgellm.load(path, context=8192) as model:
        end = min(model.tokenizer.eog_ids)
        for name, template in published(shared):
            model._loaded.template = template
            try:
                box = toolbox([tool], template)
            except TemplateError:
                continue
            assert box is not None
            fenced = '```json\n{"name": "f", "arguments": ' + json.dumps(ARGUMENTS) + "}\n```"
            own = call(box.format.name, [*ARGUMENTS.items()])
            ask = [{"role": "user", "content": "x"}]
            thinking = "</think>\n\n" if model.apply_template(ask, tools=[tool]).rstrip().endswith("<think>") else ""
            for said in (own, *([f"Well.\n{fenced}"] if box.format.name != "harmony" else [])):
                tokens = [*model.tokenizer.encode_continuation(thinking + said), end]
                answer = model.chat(ask, tools=[tool], processors=[Wants(tokens)], temperature=0, max_tokens=len(tokens) + 20)
                assert [dict(each.arguments) for each in answer.tool_calls] == [ARGUMENTS], (name, said, answer.text)
                assert answer.stop_reason == "eog", name
                tried += 1
    assert tried > 12


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["qwen3-coder", "seed", "minimax", "glm", "glm-4.7"])
def test_the_tag_behind_a_value_may_be_missing(name: str, size: int) -> None:
    format, is_glm = BY_NAME[name], name.startswith("glm")
    close = "\n</parameter>" if name == "qwen3-coder" else "</arg_value>" if is_glm else "</parameter>"
    whole = call(name, [*ARGUMENTS.items()])
    first = whole.replace(close, "", 1)  # of a text, before another key
    number = whole.replace(f"3{close}", "3")
    last = call(name, [("n", 3), ("pattern", "red apple")])[::-1].replace(close[::-1], "", 1)[::-1]
    for text, wanted in ((first, ARGUMENTS), (number, ARGUMENTS), (last, {"n": 3, "pattern": "red apple"})):
        assert text != whole and (accepts(format, [TOOL], f"Well.\n{text}") or (is_glm and text == number)), text  # it is forced
        shown, calls = split(name, f"Well.\n{text}", size, [TOOL])
        assert [each.arguments for each in calls] == [wanted] and shown.strip() == "Well.", (text, shown)


def segments(name: str, text: str, size: int) -> list[Segment]:
    """The parts of an answer that comes in pieces."""
    format = BY_NAME[name]
    splitter = (format.splitter or CallSplitter)(format, [TOOL])
    return [each for at in range(0, len(text), size) for each in splitter.segments(text[at : at + size])] + splitter.rest()


@pytest.mark.parametrize("name", NAMES)
def test_calls_stream_while_they_are_written(name: str) -> None:
    """The name once, then pieces of the arguments, a text too as it is written."""
    arguments = {"pattern": "One apple a day.\nNo doctor.\n" * 20, "n": 3}
    told = [each for each in segments(name, call(name, [*arguments.items()]), 1) if isinstance(each, CallDelta)]
    assert len(told) > 50 and {each.name for each in told} == {"f"} and len({(each.id, each.number) for each in told}) == 1
    assert "".join(each.arguments for each in told) == json.dumps(arguments)


SEVERAL = {  # where a block may hold more calls than one: the end of a call, and what comes between two
    **dict.fromkeys(
        ("apertus", "command", "command-r", "granite", "hunyuan", "mistral", "nemotron", "phi", "pythonic", "xlam"), "]"
    ),
    "lfm2": "]",
    "deepseek-v3": "<｜tool▁calls▁end｜>",
    "deepseek-v3.1": "<｜tool▁calls▁end｜>",
    "kimi": "<|tool_calls_section_end|>",
    "minimax": "</minimax:tool_call>",
    "deepseek-v3.2": dsml("</@function_calls>"),
    "deepseek-v4": dsml("</@tool_calls>"),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_every_call_of_a_block_streams(name: str) -> None:
    given = [{"pattern": "One apple a day.\n" * 9, "n": k} for k in range(3)]
    texts, end = [call(name, [*each.items()]) for each in given], SEVERAL[name]
    begin = next(opener for opener in BY_NAME[name].openers if texts[0].startswith(opener))
    begin = texts[0][: texts[0].index("[", len(begin) - 1) + 1] if end == "]" else begin
    inner = [each[len(begin) : each.rindex(end)] for each in texts]
    parts = segments(name, begin + ("," if end == "]" else "").join(inner) + end + texts[0].rpartition(end)[2], 1)
    assert [each.arguments for each in parts if isinstance(each, ToolCall)] == given
    assert "".join(each for each in parts if isinstance(each, str)).strip() == ""
    told = [each for each in parts if isinstance(each, CallDelta)]
    for k, arguments in enumerate(given):
        deltas = [each for each in told if each.number == k]
        assert len(deltas) > 9 and "".join(each.arguments for each in deltas) == json.dumps(arguments)
        assert {each.id for each in deltas} == {[each.id for each in parts if isinstance(each, ToolCall)][k]}
        before = [each for each in told if each.number < k]
        assert all(told.index(each) < told.index(deltas[0]) for each in before if each.arguments != "}")


ODD = (
    *(
        "red",
        "a\nb",
        "\n",
        " ",
        "<",
        "</",
        "</parameter>",
        "\n</parameter>\n",
        "<parameter=path>",
        "\n<parameter=path>\n",
        "\n<b>\n",
    ),
    *("'", '"', "\\", "\\n", "{", "}", "[", "]", "),", "é", "😀", "</tool_call>", "<tool_call>", "</arg_value>", "<arg_key>"),
    *("\n</function>", "</think>", "12", "null", "[1]", '{"a": 1}', "\t", "\u2028", "```", "\ud83d", "\udc00"),
)


@pytest.mark.parametrize("name", NAMES)
def test_deltas_together_are_the_arguments(name: str) -> None:
    """Whatever texts they hold and however the model strays; the pieces in which an answer comes change nothing."""
    seen = 0
    for seed in range(40):
        random = Random(f"{name} {seed}")
        pairs = [(key, "".join(random.choices(ODD, k=random.randrange(6)))) for key in ("pattern", "path")] + [("n", seed)]
        random.shuffle(pairs)
        text = call(name, pairs)
        for _ in range(max(0, random.randrange(-2, 3))):
            at = random.randrange(len(text))
            text = text[:at] + random.choice([random.choice(ODD), text[at : at + 9]]) + text[at + random.randrange(9) :]
        found = set[str]()
        for size in (1, 3, 1000):
            parts = segments(name, text, size)
            calls = [each for each in parts if isinstance(each, ToolCall)]
            deltas = [each for each in parts if isinstance(each, CallDelta)]
            for each in calls:
                assert json.loads("".join(delta.arguments for delta in deltas if delta.id == each.id)) == each.arguments, text
                json.dumps(each.arguments, ensure_ascii=False).encode()
            assert len({each.id for each in deltas}) == len({each.number for each in deltas}), text
            said = "".join(each for each in parts if isinstance(each, str))
            found.add(json.dumps([said, [each.arguments for each in calls]]))
            seen += len(calls)
        assert len(found) == 1, text
    assert seen > 40
