"""Tool calls of each family: found in answers however they are cut, never at the cost of text, with arguments that fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from call_formats import BY_NAME, MARKS, TOOLS, dsml, split, template

from edgellm.api.tools import toolbox
from edgellm.chat.families import CallSplitter, _splitter, find_format, unknown_mark
from edgellm.chat.shape import shape_of
from edgellm.chat.templates import ChatTemplate
from edgellm.chat.tools import Tool
from edgellm.errors import TemplateError

ROME, NOTE = ("weather", {"city": "Rome", "days": 3}), ("note", {"text": 'a "b", [c]', "tags": ["x", "y"], "urgent": True})

GOLDEN: list[tuple[str, str, str, list[tuple[str, dict[str, Any]]]]] = [
    ("hermes", '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>', "", [ROME]),
    (
        "hermes",
        'Let me look.\n<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Rome\\", \\"days\\": 3}"}</tool_call> Done.',
        "Let me look.\n Done.",
        [ROME],
    ),
    (
        "hermes",
        '<tool_call>{"name": "note", "arguments": {"text": "</tool_call>"}}</tool_call>',
        "",
        [("note", {"text": "</tool_call>"})],
    ),
    (
        "hermes",
        '<tool_call>{"name": "a", "arguments": {}}</tool_call><tool_call>{"name": "b", "arguments": {}}</tool_call>',
        "",
        [("a", {}), ("b", {})],
    ),
    ("hermes", '<tool_call>{"name": "a", "arguments": {}}', "", [("a", {})]),
    (
        "qwen3-coder",
        "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
        "</function>\n</tool_call>",
        "",
        [ROME],
    ),
    (
        "qwen3-coder",
        '<tool_call>\n<function=note>\n<parameter=text>\na "b", [c]\n</parameter>\n<parameter=tags>\n["x", "y"]\n'
        "</parameter>\n<parameter=urgent>\nTrue\n</parameter>\n</function>\n</tool_call>",
        "",
        [NOTE],
    ),
    (
        "qwen3-coder",
        '<tool_call><function=note><parameter=tags>["</parameter>"]</parameter><parameter=text>\n\n</tool_call>\n\n'
        "</parameter></function></tool_call>!",
        "!",
        [("note", {"tags": ["</parameter>"], "text": "\n</tool_call>\n"})],
    ),
    (
        "seed",
        "Well.<seed:tool_call>\n<function=weather>\n<parameter=city>Rome</parameter>\n<parameter=days>3</parameter>\n"
        "</function>\n</seed:tool_call>",
        "Well.",
        [ROME],
    ),
    (
        "seed",
        '<seed:tool_call><function=note>\n<parameter=text>\na "b", [c]\n</parameter><parameter=tags> ["x", "y"] </parameter>'
        "<parameter=urgent>True</parameter></function></seed:tool_call>",
        "",
        [NOTE],
    ),
    ("seed", "<seed:tool_call>\n<function=a>\n</function>\n</seed:tool_call>", "", [("a", {})]),
    (
        "minimax",
        '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Rome</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n<invoke name="note">\n<parameter name="text">a "b", [c]</parameter>\n'
        '<parameter name="tags">["x", "y"]</parameter>\n<parameter name="urgent">true</parameter>\n</invoke>\n'
        "</minimax:tool_call> Done.",
        " Done.",
        [ROME, NOTE],
    ),
    (
        "minimax",
        '<minimax:tool_call><invoke name="a"></invoke><invoke name="note"><parameter name="text">def f():\n    x\n'
        "</parameter></invoke></minimax:tool_call>",
        "",
        [("a", {}), ("note", {"text": "def f():\n    x\n"})],
    ),
    (
        "glm",
        "Well.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>3</arg_value>\n</tool_call>",
        "Well.\n",
        [ROME],
    ),
    (
        "glm",
        '<tool_call>note<arg_key>text</arg_key><arg_value>a "b", [c]</arg_value><arg_key>tags</arg_key><arg_value>["x", "y"]'
        "</arg_value><arg_key>urgent</arg_key><arg_value>true</arg_value></tool_call><tool_call>weather\n</tool_call>",
        "",
        [NOTE, ("weather", {})],
    ),
    (
        "glm-4.7",
        '<tool_call>other<arg_key>x</arg_key><arg_value>{"</arg_value>": 1}</arg_value></tool_call>',
        "",
        [("other", {"x": {"</arg_value>": 1}})],
    ),
    ("llama3", '{"name": "weather", "parameters": {"city": "Rome", "days": 3}}', "", [ROME]),
    (
        "llama3",
        '<|python_tag|>{"type": "function", "name": "a", "parameters": {}}; {"name": "b", "parameters": {}}',
        "",
        [("a", {}), ("b", {})],
    ),
    ("mistral", '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome", "days": 3}, "id": "abcdefghi"}]', "", [ROME]),
    (
        "mistral",
        '[TOOL_CALLS]weather[ARGS]{"city": "Rome", "days": 3}[TOOL_CALLS]note[ARGS]{"text": "hi"}',
        "",
        [ROME, ("note", {"text": "hi"})],
    ),
    ("granite", '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome", "days": 3}}]', "", [ROME]),
    (
        "nemotron",
        'Well. <TOOLCALL>[{"name": "weather", "arguments": {"city": "Rome", "days": 3}}, {"name": "note", '
        '"arguments": {"text": "</TOOLCALL>"}}]</TOOLCALL> So.',
        "Well.  So.",
        [ROME, ("note", {"text": "</TOOLCALL>"})],
    ),
    (
        "nemotron",
        '<TOOLCALL>\n[{"name": "weather", "arguments": "{\\"city\\": \\"Rome\\", \\"days\\": 3}"}]\n</TOOLCALL>',
        "",
        [ROME],
    ),
    ("hunyuan", '<tool_calls>[{"name": "weather", "arguments": {"city": "Rome", "days": 3}}]</tool_calls>', "", [ROME]),
    (
        "hunyuan",
        '<tool_calls>\n{"name": "a", "arguments": {}}\n{"name": "b", "arguments": {}}\n</tool_calls>',
        "",
        [("a", {}), ("b", {})],
    ),
    (
        "hunyuan",
        'Hm.<tool_calls>\n<tool_call>weather\n```json\n{"city": "Rome", "days": 3}\n```</tool_call>\n<tool_call>\n'
        '{"name": "b", "arguments": {"c": "}</tool_call>"}}</tool_call>\n</tool_calls>',
        "Hm.",
        [ROME, ("b", {"c": "}</tool_call>"})],
    ),
    (
        "phi",
        '<|tool_call|>[{"type": "function", "name": "weather", "arguments": {"city": "Rome", "days": 3}}]<|/tool_call|>',
        "",
        [ROME],
    ),
    ("phi", '<|tool_call|>{"name": "a", "arguments": {}}<|/tool_call|> So.', " So.", [("a", {})]),
    ("phi", 'functools[{"name": "weather", "parameters": {"city": "Rome", "days": 3}}]', "", [ROME]),
    (
        "functionary",
        'So: <function=weather>{"city": "Rome", "days": 3}</function>\n<function=note>{"text": "</function>"}</function>',
        "So: \n",
        [ROME, ("note", {"text": "</function>"})],
    ),
    ("functionary-v3.2", 'So:>>>weather\n{"city": "Rome", "days": 3}\n', "So:", [ROME]),
    (
        "gigachat-3",
        'Well.<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}',
        "Well.",
        [ROME],
    ),
    (
        "gigachat-3",
        'So function call<|role_sep|>\n{"name": "note", "arguments": {"text": "<|message_sep|>\\n\\n"}}<|message_sep|>\n\n',
        "So ",
        [("note", {"text": "<|message_sep|>\n\n"})],
    ),
    ("gigachat-3.1", 'Well.<|function_call|>{"name": "weather", "arguments": {"city": "Rome", "days": 3}}', "Well.", [ROME]),
    ("gigachat-3.1", '<|function_call|>{"name": "a", "arguments": {}}<|message_sep|>\n\n', "", [("a", {})]),
    ("xlam", '[{"name": "weather", "arguments": {"city": "Rome", "days": 3}}, {"name": "b"}]', "", [ROME, ("b", {})]),
    ("xlam", 'I call [{"name": "a", "arguments": {}}]', 'I call [{"name": "a", "arguments": {}}]', []),
    ("apertus", '<|tools_prefix|>[{"weather": {"city": "Rome", "days": 3}}, {"b": {}}]<|tools_suffix|>.', ".", [ROME, ("b", {})]),
    (
        "internlm",
        'Hm.<|action_start|><|plugin|>\n{"name": "weather", "parameters": {"city": "Rome", "days": 3}}\n<|action_end|>',
        "Hm.",
        [ROME],
    ),
    ("internlm", '<|action_start|> <|plugin|>{"name": "a", "arguments": {}}<|action_end|>', "", [("a", {})]),
    ("gemma", '<|tool_call>call:weather{city:<|"|>Rome<|"|>,days:3}<tool_call|>', "", [ROME]),
    (
        "gemma",
        'Well. <|tool_call>call:note{tags:[<|"|>x<|"|>,<|"|>y<|"|>],text:<|"|>a "b", [c]<|"|>,urgent:true}<tool_call|>',
        "Well. ",
        [NOTE],
    ),
    ("functiongemma", "<start_function_call>call:weather{city:<escape>Rome<escape>,days:3}<end_function_call>", "", [ROME]),
    ("harmony", '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Rome", "days": 3}', "", [ROME]),
    (
        "harmony",
        '<|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{"city": "Rome", "days": 3}<|call|>',
        "",
        [ROME],
    ),
    ("lfm2", '<|tool_call_start|>[weather(city="Rome", days=3)]<|tool_call_end|>Looking it up.', "Looking it up.", [ROME]),
    ("lfm2", "<|tool_call_start|>[note(text='a \"b\", [c]', tags=['x', 'y'], urgent=True)]<|tool_call_end|>", "", [NOTE]),
    ("pythonic", "weather", "weather", []),
    (
        "deepseek-v3",
        "Well.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
        '{"city": "Rome", "days": 3}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>note\n```json\n'
        '{"text": "```<｜tool▁calls▁end｜>"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>.',
        "Well..",
        [ROME, ("note", {"text": "```<｜tool▁calls▁end｜>"})],
    ),
    (
        "deepseek-v3",
        "<｜tool▁calls▁begin｜>\n<｜tool▁call▁begin｜> function <｜tool▁sep｜> a/b ```json {}``` <｜tool▁call▁end｜>\n"
        "<｜tool▁calls▁end｜>",
        "",
        [("a/b", {})],
    ),
    (
        "deepseek-v3.1",
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "Rome", "days": 3}'
        "<｜tool▁call▁end｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "",
        [ROME, ("function", {})],
    ),
    ("deepseek-v3.1", '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "Rome", "days": 3}', "", [ROME]),
    (
        "deepseek-v3.2",
        dsml(
            'Well.\n\n<@function_calls>\n<@invoke name="weather">\n<@parameter name="city" string="true">Rome'
            '</@parameter>\n<@parameter name="days" string="false">3</@parameter>\n</@invoke>\n<@invoke name="note">\n'
            '<@parameter name="text" string="true"></@function_calls>\n</@parameter>\n</@invoke>\n</@function_calls>.'
        ),
        "Well.\n\n.",
        [ROME, ("note", {"text": dsml("</@function_calls>\n")})],
    ),
    ("deepseek-v3.2", dsml('<@function_calls><@invoke name="a b"></@invoke>'), "", [("a b", {})]),
    (
        "deepseek-v4",
        dsml(
            '<@tool_calls>\n<@invoke name="note">\n<@parameter name="text" string="true">a "b", [c]</@parameter>\n'
            '<@parameter name="tags" string="false"> ["x", "y"]\n</@parameter>\n<@parameter name="urgent" string="false">true'
            "</@parameter>\n</@invoke>\n</@tool_calls>"
        ),
        "",
        [NOTE],
    ),
    (
        "command",
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", "parameters": {"city": "Rome", "days": 3}},\n'
        '    {"tool_call_id": "1", "tool_name": "note", "parameters": {"text": "<|END_ACTION|>"}}\n]<|END_ACTION|>',
        "",
        [ROME, ("note", {"text": "<|END_ACTION|>"})],
    ),
    ("command", 'Well. <|START_ACTION|>{"tool_name": "a", "parameters": {}}', "Well. ", [("a", {})]),
    (
        "command-r",
        'Plan: ask.\nAction: ```json\n[\n    {\n        "tool_name": "weather",\n        "parameters": {"city": "Rome", '
        '"days": 3}\n    },\n{"tool_name": "directly_answer", "parameters": {}}, {"tool_name": "note", "parameters": '
        '{"text": "```"}}]\n``` and',
        "Plan: ask.\n and",
        [ROME, ("note", {"text": "```"})],
    ),
    (
        "kimi",
        'Well.<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{"city": "Rome", '
        '"days": 3}<|tool_call_end|><|tool_call_begin|>functions.note:1<|tool_call_argument_begin|>{"text": "<|tool_call_end|>"}'
        "<|tool_call_end|><|tool_calls_section_end|>",
        "Well.",
        [ROME, ("note", {"text": "<|tool_call_end|>"})],
    ),
    (
        "kimi",
        "<|tool_call_section_begin|>\n<|tool_call_begin|> a.b:c \n<|tool_call_argument_begin|> {} \n<|tool_call_end|>\n"
        "<|tool_calls_section_end|>!",
        "!",
        [("a.b:c", {})],
    ),
    (
        "kimi",
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{"city": "Rome", "days": 3}',
        "",
        [ROME],
    ),
    ("pythonic", '[weather(city="Rome", days=3), note(text="a \\"b\\", [c]", tags=["x", "y"], urgent=true)]', "", [ROME, NOTE]),
]

PLAIN = [
    "Just text.",
    "",
    "1 < 2 and [3] is {a list}",
    "<tool",
    "<tool_call>",
    "<tool_call>\n{not json}\n</tool_call> and more",
    '{"a": 1}',
    "[1, 2, 3]",
    "[TOOL_CALLS]",
    "[TOOL_CALLS] none",
    "<|tool_call>call:",
    "<|channel|>commentary<|message|>Hello",
    '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
    '<tool_call>{"name": "a", "arguments": [1]}</tool_call>',
    "[f(1), g(**x)]",
    "[open(x=b'1')]",
    "{" * 5000,
    "[" * 5000,
    "<|tool_call>call:a{" + "[" * 5000 + "<tool_call|>",
    "<|action_start|><|interpreter|>\nprint(1)<|action_end|>",
    '<|action_start|>{"name": "a"}<|action_end|>',
    '<|tools_prefix|>[{"a": 1}]<|tools_suffix|>',
    "<|tools_prefix|>[1]<|tools_suffix|>",
    "<tool_calls>[3]</tool_calls>",
    "function call<|role_sep|>\n",
    '<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": 3}<|message_sep|>\n\n',
    "<|message_sep|>\n\n" * 3000,
    "<|message_sep|>\n\nfunction call",
    "<|function_call|>{}",
    ">>>",
    ">>> 1 + 1\n2",
    ">>>all\n{}",
    ">>>f\n[]>>>",
    ">>>f\n{" * 3000,
    "<tool_calls><tool_call>a {}</tool_call></tool_calls>",
    "functools[1]",
    "<function=a>[1]</function>",
    "<function=",
    "<function=>{}</function>",
    "<function=a>{</function>",
    "<TOOLCALL>" * 3000,
    "<tool_calls><tool_call>a```json{" + "}" * 5000,
    "<TOOLCALL>" + '[{"a":' * 5000 + "</TOOLCALL>",
    "<|tool_call_start|>[" + "-" * 9999 + "1]<|tool_call_end|>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>[]<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>" + "a" * 100_000 + "<｜tool▁calls▁end｜>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>" + '[{"a":' * 20_000 + "<｜tool▁calls▁end｜>",
    *map(
        dsml,
        (
            "<@function_calls>\n</@function_calls>",
            "<@function_calls>none</@function_calls>",
            '<@function_calls><@invoke name="f"><@parameter name="x" string="false">one</@parameter></@invoke></@function_calls>',
            '<@tool_calls><@invoke name="f"> and </@invoke></@tool_calls>',
            '<@function_calls><@invoke name="f"><@parameter name="x" string="true">' * 3000,
            '<@tool_calls><@invoke name="f"><@parameter name="x" string="false">' + "[" * 50_000 + "</@tool_calls>",
        ),
    ),
    "<|START_ACTION|>[]<|END_ACTION|>",
    '<|START_ACTION|>[{"tool_name": "a", "parameters": 3}, 1]<|END_ACTION|>',
    "<|START_ACTION|>" + '[{"a":' * 20_000 + "<|END_ACTION|>",
    "<|START_ACTION|>" + "a" * 100_000 + "<|END_ACTION|>",
    "Action: ```json\n[3]\n```",
    'Action: ```json\n[{"tool_name": "directly-answer", "parameters": {}}]\n```',
    "Action: ```json\n[" + "`" * 3000,
    "Action:\n```python\nx\n```",
    "<tool_call>hello</tool_call>",
    "<tool_call>f\n<arg_key>x</arg_key></tool_call>",
    "<tool_call><arg_key>x</arg_key><arg_value>1</arg_value></tool_call>",
    "<seed:tool_call>none</seed:tool_call>",
    "<minimax:tool_call>\n</minimax:tool_call>",
    "<tool_call>f <arg_key>" * 5000,
    '<minimax:tool_call><invoke name="f">' + '<parameter name="a">' * 5000,
    "<seed:tool_call>" + " " * 100_000 + "</seed:tool_call>",
    "<tool_call><function=f>" + "<parameter=a>x</parameter>" * 200 + "and" + "</function></tool_call>" * 200,
    "<tool_call>f<arg_key>x</arg_key><arg_value>" + "[" * 100_000 + "</arg_value></tool_call>",
    "</tool_call>" * 9000,
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_begin|><|tool_calls_section_end|>.",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.a:0<|tool_call_argument_begin|>[1]<|tool_call_end|>"
    "<|tool_calls_section_end|>",
    "<|tool_calls_section_begin|><|tool_call_begin|>" + "a:" * 50_000,
    "<|tool_calls_section_begin|><|tool_call_begin|>f:0<|tool_call_argument_begin|>" + '{"a":' * 20_000,
]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"{case[0]}-{len(case[1])}")
def test_calls_are_found_however_the_text_is_cut(case: tuple[str, str, str, list[tuple[str, dict[str, Any]]]], size: int) -> None:
    name, text, shown, wanted = case
    found, calls = split(name, text, size)
    assert [(call.name, call.arguments) for call in calls] == wanted and found == shown
    assert len({call.id for call in calls}) == len(calls)
    if BY_NAME[name].call_id is None:
        assert all(len(call.id) == 9 for call in calls)


def of_plain_texts() -> Iterator[Any]:
    """Each family and text; of long texts that hold nothing the family looks for, which are slow, one of five in turn."""
    for place, (name, format) in enumerate(BY_NAME.items()):
        for number, text in enumerate(PLAIN):
            usual = len(text) < 2000 or any(opener in text for opener in format.openers)
            if not usual and (place + number) % 5:
                continue
            yield pytest.param(name, text, id=f"{number}-{name}", marks=() if usual else pytest.mark.slow)


@pytest.mark.parametrize(("name", "text"), [*of_plain_texts()])
def test_text_that_is_no_call_stays_text(name: str, text: str) -> None:
    for size in (max(7, len(text) // 2000), 100_000):
        assert split(name, text, size) == (text, [])


def test_calls_keep_the_ids_that_the_model_writes() -> None:
    one = "<|tool_call_begin|>functions.a.b:{}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    text = f"<|tool_calls_section_begin|>{one.format(7)}{one.format(8)}{one.format(7)}<|tool_calls_section_end|>"
    ids = [call.id for call in split("kimi", text, 9)[1]]
    assert ids[:2] == ["functions.a.b:7", "functions.a.b:8"] and len(set(ids)) == 3


def test_a_closer_that_ended_no_call_is_not_tried_again() -> None:
    tried = list[str]()

    def parse(block: str, tools: Sequence[Tool]) -> None:
        tried.append(block)
        raise ValueError("no call as yet")

    splitter, text = CallSplitter(replace(BY_NAME["hermes"], parse=parse), TOOLS), "<tool_call>" + "{</tool_call>" * 50
    assert "".join([*(splitter.push(letter)[0] for letter in text), splitter.flush()[0]]) == text and len(tried) == 52


@pytest.mark.parametrize("size", [50, 100_000])
def test_broken_blocks_cost_no_more_than_a_bound(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    read = list[int]()

    def parse(block: str, tools: Sequence[Tool]) -> None:
        read.append(len(block))
        raise ValueError("no call as yet")

    monkeypatch.setattr(_splitter, "MAX_BROKEN", 50_000)
    splitter, text = (
        CallSplitter(replace(BY_NAME["hermes"], parse=parse, cost=len), TOOLS),
        "<tool_call>{</tool_call>" * 400 + "end",
    )
    shown = [splitter.push(text[at : at + size])[0] for at in range(0, len(text), size)]
    assert "".join([*shown, splitter.flush()[0]]) == text and 50_000 < sum(read) < 50_000 + len(text)


def test_a_call_behind_a_broken_one_is_found() -> None:
    text, calls = split("hermes", '<tool_call>broken</tool_call> so <tool_call>{"name": "a", "arguments": {}}</tool_call>.', 5)
    assert text == "<tool_call>broken</tool_call> so ." and [call.name for call in calls] == ["a"]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("Qwen-Qwen3-0.6B", "hermes"),
        ("Qwen-Qwen2.5-7B-Instruct", "hermes"),
        ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes"),
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek-v3"),
        ("Qwen3.5-4B", "qwen3-coder"),
        ("LFM2-8B-A1B", "lfm2"),
        ("meta-llama-Llama-3.1-8B-Instruct", "llama3"),
        ("meta-llama-Llama-3.2-3B-Instruct", "llama3"),
        ("mistralai-Mistral-Nemo-Instruct-2407", "mistral"),
        ("google-gemma-4-31B-it", "gemma"),
        ("openai-gpt-oss-120b", "harmony"),
        ("ibm-granite-granite-3.3-2B-Instruct", "granite"),
    ],
)
def test_the_format_is_recognised_by_the_template(shared: Path, file: str, name: str) -> None:
    assert find_format((shared / "templates" / f"{file}.jinja").read_text()).name == name


def clock(zone: str) -> str:
    """The time of day."""
    return zone


def test_a_format_that_no_parser_knows_is_refused(shared: Path) -> None:
    for mark in ("<|odd_tool_calls_begin|>", "<odd:tool_call>", "<odd_function_calls>", "<|ODD_START_ACTION|>"):
        with pytest.raises(TemplateError, match=r"has calls begin with .*not supported; leave tools out") as caught:
            toolbox([clock], template(mark))
        assert mark in str(caught.value) and toolbox([], template(mark)) is None
    for text in (
        "",
        "tool_calls",
        "<b>",
        "</odd_tool_call>",
        "<odd_tool_call_id>",
        "<|tool_calls_end|>",
        "<|end_tool_call|>",
        "<function_call_result>",
        "<tools>",
        "<" + "tool_call" * 20_000,
    ):
        box = toolbox([clock], template(text))
        assert box is not None and box.format.name == "hermes"
    for mark in MARKS.values():
        assert unknown_mark(template(mark + "<odd_tool_call>").source) is None
    published = [ChatTemplate(path.read_text()) for path in (shared / "templates").glob("*.jinja")]
    assert sum(toolbox([clock], each) is not None for each in published if shape_of(each).tools) > 9
