"""Answers that are cut within a block of tool calls keep the calls before; hostile blocks are read a few times at most."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from call_formats import BY_NAME, split
from tiny_models import tiny_model

import edgellm
from edgellm.chat import ChatTemplate
from edgellm.chat.families import CallSplitter, _splitter, pythonic
from edgellm.chat.families._reading import unclosed
from edgellm.chat.families._tags import Tags
from edgellm.chat.tools import Call, Tool, ToolCall

TOOLS = [
    Tool("f", "", {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}, "required": ["a"]}),
    Tool("get the list", "", {"type": "object", "properties": {"list": {"type": "array"}}}),
]
FIRST = ("f", {"a": "x", "n": 3})
SECOND = "get the list"
# A call with what comes before and behind it, and another one without its last letter.
CUT = [
    (
        "mistral",
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": "x", "n": 3}}, ',
        '{"name": "get the list", "arguments": {"list": ["}]", 12.5]}',
    ),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"a": "x", "n": 3}', '[TOOL_CALLS]get the list[ARGS]{"list": ["[TOOL_CALLS]", -1e5]'),
    (
        "granite",
        '<|tool_call|>[{"name": "f", "arguments": {"a": "x", "n": 3}},',
        '{"name": "get the list", "arguments": {"list": [null]}',
    ),
    ("llama3", '{"name": "f", "parameters": {"a": "x", "n": 3}}; ', '{"name": "get the list", "parameters": {"list": ["\\u00e9"]}'),
    (
        "llama3",
        '<|python_tag|>{"name": "f", "parameters": {"a": "x", "n": 3}}\n',
        '{"name": "get the list", "parameters": {"list": []}',
    ),
    (
        "nemotron",
        '<TOOLCALL>[{"name": "f", "arguments": {"a": "x", "n": 3}}, ',
        '{"name": "get the list", "arguments": {"list": ["</TOOLCALL>"]}',
    ),
    (
        "hunyuan",
        '<tool_calls>[{"name": "f", "arguments": {"a": "x", "n": 3}}, ',
        '{"name": "get the list", "arguments": {"list": [true]}',
    ),
    (
        "hunyuan",
        '<tool_calls>\n{"name": "f", "arguments": {"a": "x", "n": 3}}\n',
        '{"name": "get the list", "arguments": {"list": [1]}',
    ),
    (
        "hunyuan",
        '<tool_calls>\n<tool_call>f\n```json\n{"a": "x", "n": 3}\n```</tool_call>\n',
        '<tool_call>get\n```json\n{"list": ["</tool_calls>"]}\n```</tool_call',
    ),
    (
        "phi",
        '<|tool_call|>[{"name": "f", "arguments": {"a": "x", "n": 3}}, ',
        '{"name": "get the list", "arguments": {"list": ["x"]}',
    ),
    ("phi", 'functools[{"name": "f", "arguments": {"a": "x", "n": 3}}, ', '{"name": "get the list", "arguments": {"list": ["x"]}'),
    ("xlam", '[{"name": "f", "arguments": {"a": "x", "n": 3}}, ', '{"name": "get the list", "arguments": {"list": ["x"]}'),
    ("apertus", '<|tools_prefix|>[{"f": {"a": "x", "n": 3}}, ', '{"get the list": {"list": ["<|tools_suffix|>"]}'),
    (
        "internlm",
        '<|action_start|> <|plugin|>\n{"name": "f", "parameters": {"a": "x", "n": 3}}\n',
        '{"name": "get the list", "parameters": {"list": ["<|action_end|>"]}',
    ),
    (
        "command",
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "f", "parameters": {"a": "x", "n": 3}},\n    ',
        '{"tool_call_id": "1", "tool_name": "get the list", "parameters": {"list": ["<|END_ACTION|>"]}',
    ),
    (
        "command-r",
        'Action: ```json\n[\n    {"tool_name": "f", "parameters": {"a": "x", "n": 3}},\n    ',
        '{"tool_name": "get the list", "parameters": {"list": ["```"]}',
    ),
    ("pythonic", '[f(a="x", n=3), ', 'get the list(list=["a)]", (1, 2), {"b": 3}]'),
    ("lfm2", '<|tool_call_start|>[f(a="x", n=3), ', "get the list(list=['<|tool_call_end|>', '\\')]']"),
    (
        "kimi",
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": "x", "n": 3}'
        "<|tool_call_end|>",
        '<|tool_call_begin|>functions.get the list:1<|tool_call_argument_begin|>{"list": ["<|tool_calls_section_end|>"]',
    ),
    (
        "deepseek-v3",
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": "x", "n": 3}\n```<｜tool▁call▁end｜>\n',
        '<｜tool▁call▁begin｜>function<｜tool▁sep｜>get the list\n```json\n{"list": [1]',
    ),
    (
        "deepseek-v3.1",
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": "x", "n": 3}<｜tool▁call▁end｜>',
        '<｜tool▁call▁begin｜>get<｜tool▁sep｜>{"list": ["<｜tool▁calls▁end｜>"]',
    ),
    *(
        (
            name,
            f'<｜DSML｜{block}>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">x</｜DSML｜parameter>\n'
            '<｜DSML｜parameter name="n" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n',
            '<｜DSML｜invoke name="get the list">\n<｜DSML｜parameter name="list" string="false">["</｜DSML｜parameter>", '
            f'"</｜DSML｜{block}>"]</｜DSML｜parameter>\n</｜DSML｜invoke',
        )
        for name, block in (("deepseek-v3.2", "function_calls"), ("deepseek-v4", "tool_calls"))
    ),
    (
        "minimax",
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">x</parameter>\n<parameter name="n">3</parameter>\n</invoke>\n',
        '<invoke name="get the list">\n<parameter name="list">["</minimax:tool_call>", "</parameter>"]</parameter>\n</invoke',
    ),
]


@pytest.mark.parametrize("case", CUT, ids=lambda case: f"{case[0]}-{len(case[1])}")
def test_complete_calls_of_a_cut_block_are_kept(case: tuple[str, str, str]) -> None:
    name, first, second = case
    for n in range(len(second) + 1):
        rest = second[:n]
        wanted, found = "" if any(closer.startswith(rest) for closer in BY_NAME[name].closers) else rest, [FIRST]
        if rest.startswith("{") and rest.endswith("}") and unclosed(rest) == "}":  # the arguments are whole
            found.append((SECOND, next(value for value in json.loads(rest + "}").values() if isinstance(value, dict))))
            wanted = ""
        for size in (1, 5, 1000):
            shown, calls = split(name, "Well." * (not BY_NAME[name].at_start) + first + rest, size, TOOLS)
            assert [(call.name, call.arguments) for call in calls] == found, rest
            assert shown.removeprefix("Well.").strip() == wanted.strip()


@pytest.mark.parametrize("case", CUT, ids=lambda case: f"{case[0]}-{len(case[1])}")
def test_a_call_that_is_cut_alone_stays_text(case: tuple[str, str, str]) -> None:
    name, first, _ = case
    opener = next(opener for opener in BY_NAME[name].openers if first.startswith(opener))
    for n in range(len(opener), first.index('"x' if '"x' in first else "x") + 1):
        assert split(name, first[:n], 3, TOOLS) == (first[:n], [])


@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": "x"}}, {"name": 3}',
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": "x"}} and more of the text',
        '[TOOL_CALLS]f[ARGS]{"a": "x"}[TOOL_CALLS]f[ARGS][1',
        '[TOOL_CALLS]f[ARGS]{"a": 1e999}',
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": [NaN]}}]',
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": Infinity}}, {"na',
    ],
)
def test_what_is_wrong_is_not_cut(text: str) -> None:
    kept = text.endswith("[1")  # the list may be of anything as yet, the call before is complete
    shown, calls = split("mistral", text, 4, TOOLS)
    assert len(calls) == kept and (shown == text or kept)


def test_the_second_call_of_several_needs_no_other_block() -> None:
    text = '<minimax:tool_call><invoke name="h"><parameter name="a">["</parameter></invoke> and </minimax:tool_call>'
    shown, calls = split("minimax", text, 4, TOOLS)  # which has no second one, and is complete before the text
    assert shown == " and </minimax:tool_call>" and [call.arguments for call in calls] == [{"a": '["'}]
    assert split("lfm2", "<|tool_call_start|>[f(a=1), g]<|tool_call_end|>", 4, TOOLS)[1] == []


SCRIPT = '[TOOL_CALLS][{"name":"f","arguments":{"a":"x","n":3}}, {"name":"f","argum'
TEMPLATE = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}{# [TOOL_CALLS] #}"


def test_an_answer_cut_by_max_tokens_reports_the_complete_call(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", "F16", tokenizer="bpe", n_layers=1, context=2048, controls=("[TOOL_CALLS]",))
    with edgellm.load(path, context=2048) as model:
        model._loaded.template = ChatTemplate(TEMPLATE)
        token = model.tokenizer.token_id("[TOOL_CALLS]")
        assert token is not None
        script = [token, *model.tokenizer.encode_continuation(SCRIPT.removeprefix("[TOOL_CALLS]"))]

        def says() -> dict[str, Any]:
            left = list(script)

            def follow(ids: npt.NDArray[np.int32], logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
                logits[left.pop(0)] += 1000
                return logits

            return {"tools": [TOOLS[0].message], "max_tokens": len(script), "processors": [follow], "stop_loops": False}

        ask = [{"role": "user", "content": "hello"}]
        answer = model.chat(ask, **says())
        with model.chat(ask, stream=True, **says()) as stream:
            events = list(stream.events())
    assert answer.stop_reason == stream.result.stop_reason == "length"
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [FIRST]
    assert [event.tool_call.arguments for event in events if event.tool_call] == [FIRST[1]]
    assert answer.text == stream.result.text == '{"name":"f","argum'
    assert "".join(event.text for event in events if event.kind == "text") == answer.text


PARAMETER = "<parameter=a>x</parameter>"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("seed", "<seed:tool_call><function=f>" + PARAMETER * 500 + "</seed:tool_call>" * 1000),
        ("seed", "<seed:tool_call><function=f>" + PARAMETER * 500 + "and" + "</function></seed:tool_call>" * 1000),
        ("seed", "<seed:tool_call><function=f><parameter=a>" + "</seed:tool_call>" * 1000),
        ("glm", "<tool_call>f<arg_key>a</arg_key>" + "</tool_call>" * 1000),
        ("hermes", "<tool_call>[3]" + "</tool_call>" * 1000),
        ("nemotron", '<TOOLCALL>[{"name": "a"}, 3]' + "</TOOLCALL>" * 1000),
        ("lfm2", "<|tool_call_start|>[f(n=[1, 2], a='" + '\\" <|tool_call_end|>' * 1000),
        ("pythonic", "[f(n=" + "[1], " * 1000),
        ("pythonic", "[1, 2]" * 1000),
    ],
)
def test_false_closers_are_tried_a_few_times(name: str, text: str) -> None:
    tried, parse = list[str](), BY_NAME[name].parse

    def counting(block: str, tools: Sequence[Tool]) -> Sequence[Call | ToolCall] | None:
        tried.append(block)
        return parse(block, tools)

    splitter = CallSplitter(replace(BY_NAME[name], parse=counting, partial=None), TOOLS)  # deltas look at it as well
    shown = [splitter.push(text[at : at + 7])[0] for at in range(0, len(text), 7)]
    assert "".join([*shown, splitter.flush()[0]]) == text and len(tried) <= 4


def test_a_block_that_can_be_no_call_is_text_at_once() -> None:
    splitter = CallSplitter(BY_NAME["hermes"], TOOLS)
    assert splitter.push('<tool_call>{"name": 3}</tool_call> and') == ('<tool_call>{"name": 3}</tool_call> and', [])
    (call,) = splitter.push('<tool_call>{"name": "f", "arguments": {}}</tool_call>')[1]
    assert call.name == "f"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("seed", "<seed:tool_call><function=f><parameter=a>" * 100 + "</parameter><parameter=b>x" * 100),
        ("minimax", '<minimax:tool_call><invoke name="f"><parameter name="a">' * 100 + '</parameter><parameter name="b">x' * 100),
        (
            "seed",
            '<seed:tool_call><function=f><parameter=n>["</parameter>'
            + PARAMETER * 100
            + "and"
            + "</parameter></function></seed:tool_call>" * 100,
        ),
    ],
)
def test_arguments_that_are_read_in_vain_are_bounded(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """Each counts as 320 characters, about as long as the JSON module takes for them."""
    read, value = list[str](), Tags._value

    def counting(self: Tags, *given: Any) -> tuple[Any, int]:
        read.append(name)
        return value(self, *given)

    monkeypatch.setattr(Tags, "_value", counting)
    monkeypatch.setattr(_splitter, "MAX_BROKEN", 1_000_000)
    assert split(name, text, len(text), TOOLS) == (text, []) and 1000 < len(read) < 1_000_000 / 320 + 200


def test_values_are_evaluated_when_all_of_a_call_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated, value_of = list[str](), pythonic.value_of

    def counting(text: str) -> Any:
        evaluated.append(text)
        return value_of(text)

    monkeypatch.setattr(pythonic, "value_of", counting)
    text = "<|tool_call_start|>[f(n=[1, 2], a='" + "\\')<|tool_call_end|>" * 500
    assert split("lfm2", text, 50, TOOLS) == (text, [])
    assert len(evaluated) <= 2 * len(text) / 50  # for the deltas of each piece; none for each closer
    evaluated.clear()
    assert split("lfm2", text + "')]<|tool_call_end|>", 50, TOOLS)[0] == "" and len(evaluated) <= 2 * len(text) / 50 + 2


def test_quotes_that_do_not_end_are_passed_once() -> None:
    """It would take minutes if each of them began a search for its end."""
    text = "<|tool_call_start|>[f(a='" + "\\'" * 100_000
    assert split("lfm2", text, len(text), TOOLS) == (text, [])
