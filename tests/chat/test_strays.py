"""Calls that stray from a family's format, through the reader and through the masks, for every format that has one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from call_formats import BY_NAME, TOOLS, accepts, split

from edgellm.chat.channels import Channel, Reader, splitter_of
from edgellm.chat.families import CallSplitter, Format, find_format
from edgellm.chat.tools import CallDelta, Tool, ToolCall

SIZES = (1, 3, 1000)
TEXT = Tool("f", "", {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]})
TAGGED = {
    "qwen3-coder": ("<function=f>\n<parameter=x>\na\n</parameter>\n</function>", "<tool_call>\n{}\n</tool_call>"),
    "seed": ("<function=f>\n<parameter=x>a</parameter>\n</function>", "<seed:tool_call>\n{}\n</seed:tool_call>"),
    "minimax": ('<invoke name="f">\n<parameter name="x">a</parameter>\n</invoke>', "<minimax:tool_call>\n{}\n</minimax:tool_call>"),
    "glm": ("f\n<arg_key>x</arg_key>\n<arg_value>a</arg_value>\n", "<tool_call>{}</tool_call>"),
    "hermes": ('{"name": "f", "arguments": {"x": "a"}}', "<tool_call>\n{}\n</tool_call>"),
    "nemotron": ('[{"name": "f", "arguments": {"x": "a"}}]', "<TOOLCALL>{}</TOOLCALL>"),
    "lfm2": ('[f(x="a")]', "<|tool_call_start|>{}<|tool_call_end|>"),
    "apertus": ('[{"f": {"x": "a"}}]', "<|tools_prefix|>{}<|tools_suffix|>"),
    "gemma": ('call:f{x:<|"|>a<|"|>}', "<|tool_call>{}<tool_call|>"),
    "kimi": (
        '<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"x": "a"}<|tool_call_end|>',
        "<|tool_calls_section_begin|>{}<|tool_calls_section_end|>",
    ),
    "deepseek-v3.1": (
        '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"x": "a"}<｜tool▁call▁end｜>',
        "<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>",
    ),
}
JSON = '{"name": "f", "arguments": {"x": "a"}}'


def read(
    format: Format, text: str, size: int, tools: Sequence[Tool] = (TEXT,), *, stray: bool = True
) -> tuple[str, str, list[dict[str, object]]]:
    """The thinking, the text and the arguments of the calls of an answer that comes in pieces, behind <think>."""
    from edgellm.chat.thinking import THINK

    reader = Reader(splitter_of("<think>", THINK, stray=stray), CallSplitter(format, tools))
    parts = [part for at in range(0, len(text), size) for part in reader.push(text[at : at + size]).parts] + reader.flush().parts
    thinking, said = (
        "".join(str(part) for channel, part in parts if channel is wanted) for wanted in (Channel.THINKING, Channel.TEXT)
    )
    return thinking, said, [dict(part.arguments) for _, part in parts if isinstance(part, ToolCall)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", TAGGED)
def test_calls_are_read_in_the_channel_in_which_they_stand(name: str, size: int) -> None:
    inner, around = TAGGED[name]
    call, format = around.format(inner), BY_NAME[name]
    assert read(format, f"Hm.</think>\n\nWell.{call}", size) == ("Hm.", "Well.", [{"x": "a"}])
    assert read(format, f"Hm.{call}", size) == ("Hm.", "", [{"x": "a"}])
    assert read(format, f"Hm. {call}</think>\n\nDone.", size) == ("Hm.", "Done.", [{"x": "a"}])
    assert read(format, f"one</think>two</think>\n\nthree{call}", size) == ("one", "two\n\nthree", [{"x": "a"}])


@pytest.mark.parametrize("size", SIZES)
def test_a_closing_mark_that_is_quoted_stays(size: int) -> None:
    for text in ("Write `</think>` at the end.", 'It is "</think>"\nby itself.', "Thinking ends with </think> here.", "`</think>`"):
        assert read(BY_NAME["hermes"], f"Hm.</think>{text}", size) == ("Hm.", text, []), text
    for text in ("Paris.</think>", "Paris.</think>\n"):
        assert read(BY_NAME["hermes"], f"Hm.</think>{text}", size)[1].strip() == "Paris."


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", TAGGED)
def test_a_closer_may_be_missing(name: str, size: int) -> None:
    inner, around = TAGGED[name]
    call = around.partition("{}")[0] + inner
    assert split(name, f"Well.{call}", size, [TEXT])[1][0].arguments == {"x": "a"}
    assert accepts(BY_NAME[name], [TEXT], f"Well.{call}")
    if name != "glm":  # whose calls end with their closer alone
        text, calls = split(name, f"Well.{call}\nDone.", size, [TEXT])
        assert text.replace("\n", "") == "Well.Done." and len(calls) == 1


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [name for name in TAGGED if BY_NAME[name].bare is not None])
def test_an_opener_may_be_missing(name: str, size: int) -> None:
    inner, around = TAGGED[name]
    closer = around.partition("{}")[2]
    for call in (inner, inner + closer):
        text, calls = split(name, f"Well.\n{call}", size, [TEXT])
        assert text == "Well.\n" and [each.arguments for each in calls] == [{"x": "a"}], call
        assert accepts(BY_NAME[name], [TEXT], f"Well.\n{call}")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [*TAGGED, "llama3", "mistral", "granite", "phi", "hunyuan", "command", "functionary"])
def test_calls_may_be_json_on_lines_of_their_own(name: str, size: int) -> None:
    for call in (
        f"```json\n{JSON}\n```",
        f"```\n{JSON}\n```",
        JSON,
        JSON.replace(" ", "\n  "),
        JSON.replace("arguments", "parameters"),
    ):
        text, calls = split(name, f"Well.\n{call}", size, [TEXT])
        assert text == "Well.\n" and [each.arguments for each in calls] == [{"x": "a"}], call
        assert accepts(BY_NAME[name], [TEXT], f"Well.\n{call}"), call
    for other in ('{"name": "Bob", "arguments": {"x": 1}}', '```json\n{"x": "a"}\n```', f"So {JSON}", "```python\nf(x='a')\n```"):
        assert split(name, f"Well.\n{other}", size, [TEXT]) == (f"Well.\n{other}", [])
        assert accepts(BY_NAME[name], [TEXT], f"Well.\n{other}"), other


@pytest.mark.parametrize("name", TAGGED)
def test_marks_may_be_named(name: str) -> None:
    """Thinking and text that speak of an opener are not calls, and nothing is masked."""
    opener = TAGGED[name][1].partition("{}")[0].strip()
    text = f"I write {opener} in a call."
    if BY_NAME[name].first:
        assert accepts(BY_NAME[name], [TEXT], text)
    for size in SIZES:
        assert split(name, text, size, [TEXT]) == (text, [])
        assert read(BY_NAME[name], f"{text}</think>{text}", size) == (text, text, [])


UNIONS = [
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "red apple", "red apple"),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
    ({"type": ["string", "null"]}, "red", "red"),
    ({"type": ["string", "integer"]}, "12", "12"),
    ({"anyOf": [{"enum": ["a", "b"]}, {"const": "c"}]}, "c", "c"),
    ({"anyOf": [{"enum": ["a", "b"]}, {"type": "boolean"}]}, "true", True),
    ({"$ref": "#/$defs/N"}, "12", "12"),
    ({"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}, "12", "12"),
    ({"allOf": [{"$ref": "#/$defs/N"}, {"description": "x"}]}, "12", "12"),
    ({"oneOf": [{"type": "array"}, {"type": "string"}]}, "[1]", [1]),
    ({"oneOf": [{"type": "array"}, {"type": "string"}]}, "[1", "[1"),
    ({}, "red apple", "red apple"),
    ({}, '{"a": 1}', {"a": 1}),
    ({"type": "integer"}, "12", 12),
    ({"enum": ["fast", 3, None]}, "3", 3),
    ({"enum": ["fast", "3", 3]}, "3", "3"),
]


@pytest.mark.parametrize("case", UNIONS, ids=range(len(UNIONS)))
@pytest.mark.parametrize("name", ["qwen3-coder", "seed", "minimax", "glm", "glm-4.7"])
def test_what_may_be_a_text_stays_one(name: str, case: tuple[dict[str, object], str, object]) -> None:
    schema, written, value = case
    parameters = {"type": "object", "properties": {"x": schema}, "required": ["x"], "$defs": {"N": {"type": "string"}}}
    inner, around = TAGGED["glm" if name == "glm-4.7" else name]
    if name == "glm-4.7":
        inner = inner.replace("\n", "")
    call = around.format(inner.replace("\na\n", f"\n{written}\n").replace(">a<", f">{written}<"))
    tools = [Tool("f", "", parameters)]
    assert accepts(BY_NAME[name], tools, call), call
    for size in SIZES:
        assert [each.arguments for each in split(name, call, size, tools)[1]] == [{"x": value}]


def test_arguments_come_in_any_order_once() -> None:
    properties = {key: {"type": "string"} for key in "abc"}
    tools = [Tool("f", "", {"type": "object", "properties": properties, "required": ["b"]})]
    for name in ("qwen3-coder", "seed", "minimax", "glm"):
        inner, around = TAGGED[name]
        parameter = inner[
            inner.index("\n") + 1 : inner.index("\n</function>")
            if "</function>" in inner
            else inner.index("\n</invoke>")
            if "</invoke>" in inner
            else len(inner) - 1
        ]

        def call(keys: str, inner: str = inner, parameter: str = parameter, around: str = around) -> str:
            written = "\n".join(
                parameter.replace("=x>", f"={key}>").replace('"x"', f'"{key}"').replace(">x<", f">{key}<") for key in keys
            )
            return around.format(inner.replace(parameter, written) if keys else inner.replace(parameter + "\n", ""))

        for keys in ("b", "ab", "ba", "bca", "cab", "bc"):
            assert accepts(BY_NAME[name], tools, call(keys)), call(keys)
            assert [list(each.arguments) for each in split(name, call(keys), 3, tools)[1]] == [list(keys)]
        for keys in ("", "a", "ac", "bb", "abb"):
            assert not accepts(BY_NAME[name], tools, call(keys)), call(keys)


def test_tools_of_before_are_still_found() -> None:
    assert split("hermes", '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>', 3, TOOLS)[1]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", TAGGED)
def test_text_may_stand_in_the_place_of_a_closer(name: str, size: int) -> None:
    inner, around = TAGGED[name]
    opener, _, closer = around.partition("{}")
    for after in (" and", "\nDone.", f" so.{closer}"):
        assert accepts(BY_NAME[name], [TEXT], opener + inner + after), after
    text, calls = split(name, opener + inner + f" and{closer}.", size, [TEXT])
    assert text.replace("\n", "") == " and." and [each.arguments for each in calls] == [{"x": "a"}]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    "written",
    [
        '{"type": "function", "function": {"name": "f", "arguments": {"x": "a\\nb"}}}',
        '{"name": "functions.f", "arguments": {"x": "a\\nb"}}',
        '{"name": "f", "args": {"x": "a\\nb"}}',
        '{"name": "f", "x": "a\\nb"}',
        '{"name": "f", "input": {"x": "a\\nb"}}',
        "{'name': 'f', 'arguments': {'x': 'a\\nb'}}",
        '{"name": "f", "arguments": {"x": "a\\nb",},}',
        '{"name": "f", "arguments": {"x": "a\nb"}}',
        '{"name": "f", "arguments": "{\\"x\\": \\"a\\\\nb\\"}"}',
    ],
)
def test_calls_in_the_words_of_others_are_read(written: str, size: int) -> None:
    tool = Tool("f", "", {"type": "object", "properties": {"x": {"type": "string"}}})
    splitter, text, calls = CallSplitter(BY_NAME["hermes"], [tool]), f"<tool_call>\n{written}\n</tool_call>", list[ToolCall]()
    for at in range(0, len(text), size):
        calls += splitter.push(text[at : at + size])[1]
    assert splitter.flush() == ("", []) and [(call.name, call.arguments) for call in calls] == [("f", {"x": "a\nb"})]


@pytest.mark.parametrize("arguments", ["null", '""', "{}"])
def test_no_arguments_however_they_are_written(arguments: str) -> None:
    splitter = CallSplitter(BY_NAME["hermes"], [Tool("f", "", {"type": "object"})])
    text, calls = splitter.push(f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>')
    assert not text and [call.arguments for call in calls] == [{}]


STRAYS = {
    "a brace is missing": (f"<tool_call>\n{JSON[:-1]}\n</tool_call>", False),
    "at the end": (f"<tool_call>\n{JSON[:-1]}", False),
    "two braces": (f"<tool_call>\n{JSON[:-2]}\n</tool_call>", False),
    "of a line": (JSON[:-1], False),
    "of a list": (f"```json\n[{JSON}", False),
    "function": ("<function=f>\n<parameter=x>\na\n</parameter>\n</function>", True),
    "function with JSON": ('<function=f>{"x": "a"}</function>', True),
    "function in other tags": ("<tool_call>\n<function=f>\n<parameter=x>\na\n</parameter>\n</function>\n</tool_call>", True),
    "tools": (f"<tools>\n{JSON}\n</tools>", True),
    "function_call": (f"<function_call>{JSON}</function_call>", True),
    "tool_call": (f"<tool_call>\n{JSON}\n</tool_call>", True),
    "a list in tags": (f"<tool_calls>\n[{JSON}]\n</tool_calls>", True),
    "a fence in tags": (f"<tool_call>\n```json\n{JSON}\n```\n</tool_call>", True),
    "a fenced list": (f"```json\n[{JSON}]\n```", True),
    "Python": ('f(x="a")', True),
    "a list in Python": ('[f(x="a")]', True),
    "tool_code": ('```tool_code\nf(x="a")\n```', True),
}
NO_CALLS = (
    '<tools>\n{"name": "g", "arguments": {"x": "a"}}\n</tools>',
    '<tools>\n{"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}\n</tools>',
    "```python\nf(x='a')\n```",
    "f(x='a') is Python.",
    "f(y='a')",
    "f(x=",
    '{"name": "f", "arguments": {"x": "a',
    "<tools> are listed there.",
    "<function=g>\n<parameter=x>\na\n</parameter>\n</function>",
    '[{"name": "Bob", "arguments": {"x": 1}}]',
)


@pytest.mark.parametrize("name", sorted(set(BY_NAME) - {"functionary"}))
def test_calls_in_the_ways_of_other_families(name: str) -> None:
    """Read in pieces of any size; the mask lets a model write them, or has it write the brackets that are missing."""
    for stray, (written, free) in STRAYS.items():
        for before in ("", "Well.\n", "So: " if written.startswith("<") else "Hm.\n\n"):
            for size in SIZES:
                text, calls = split(name, before + written, size, [TEXT])
                assert text == before and [dict(call.arguments) for call in calls] == [{"x": "a"}], (stray, size, text)
        assert not free or accepts(BY_NAME[name], [TEXT], f"Well.\n{written}"), stray
    for other in NO_CALLS:
        for size, before in product(SIZES, ("Well.\n", "") if other[0] != "[" else ("Well.\n",)):
            assert split(name, before + other, size, [TEXT]) == (before + other, []), other


def test_every_published_template_reads_them(shared: Path) -> None:
    for path in sorted((shared / "templates").glob("*.jinja")):
        format = find_format(path.read_text(encoding="utf-8"))
        for written in [f"```json\n{JSON}\n```", *(written for written, _ in STRAYS.values())]:
            for size in SIZES:
                text, calls = split(format.name, f"Well.\n{written}", size, [TEXT])
                assert text == "Well.\n" and len(calls) == 1, (path.name, written)


def test_a_mark_of_llama_begins_a_call_anywhere() -> None:
    for size in SIZES:
        text, calls = split("llama3", f"I look. <|python_tag|>{JSON}", size, [TEXT])
        assert text == "I look. " and len(calls) == 1


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["qwen3-coder", "seed", "minimax", "glm"])
def test_cdata_is_no_part_of_a_value_and_escapes_are(name: str, size: int) -> None:
    inner, around = TAGGED[name]
    for written, value in (
        ("<![CDATA[if a < b && c]]>", "if a < b && c"),
        ("if a &lt; b &amp;&amp; c", "if a &lt; b &amp;&amp; c"),
        ("<b>&lt;</b>", "<b>&lt;</b>"),
        ("R&amp;D", "R&amp;D"),
    ):
        call = around.format(inner.replace("\na\n", f"\n{written}\n").replace(">a<", f">{written}<"))
        splitter = CallSplitter(BY_NAME[name], [TEXT])
        found = [each for at in range(0, len(call), size) for each in splitter.segments(call[at : at + size])] + splitter.rest()
        assert [dict(each.arguments) for each in found if isinstance(each, ToolCall)] == [{"x": value}], written
        told = "".join(each.arguments for each in found if isinstance(each, CallDelta))
        assert json.loads(told) == {"x": value}, told
        assert accepts(BY_NAME[name], [TEXT], call), written
