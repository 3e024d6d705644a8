"""Calls that models write under the grammar: arguments follow their schemas, and functions and tools of others become tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest
from call_formats import BY_NAME, MARKS, TEMPLATE, Begins, dsml, tag_ends, template
from tiny_models import tiny_model

import edgellm
from edgellm.api.tools import toolbox
from edgellm.chat.families import command, deepseek, kimi
from edgellm.chat.families._format import literal
from edgellm.chat.templates import ChatTemplate
from edgellm.errors import OptionError, SchemaError, TemplateError
from edgellm.tokenizer import StreamDecoder


def weather(city: Literal["Rome", "Oslo"], days: int = 1, warm: bool = False, near: list[float] | None = None) -> str:
    """The weather of a city.

    city: where
    days: how many days from now
    """
    return f"{city}: sun for {days} days"


ASK = [{"role": "user", "content": "hello"}]
# What tells a call from a text that begins with the same sign.
HEADS = {
    "llama3": '{{"name": "{}"',
    "xlam": '[{{"name": "{}"',
    "pythonic": "[{}(",
    "harmony": "<|channel|>commentary to=functions.{}",
    "functionary-v3.2": "{}\n",
}
SHORT = ("hermes", "xlam", "glm-4.7", "mistral-named", "functiongemma", "gigachat-3.1", "harmony", "qwen3-coder")  # soon written
LONG = ("deepseek-v3.2", "deepseek-v4")  # with long texts around each argument


@pytest.fixture(scope="module", params=["spm", "bpe"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[edgellm.Model]:
    path = tiny_model(
        tmp_path_factory.mktemp("tools") / "m.gguf", "llama", "F16", tokenizer=request.param, n_layers=1, context=2048
    )
    with edgellm.load(path, context=2048) as model:
        yield model


@pytest.mark.parametrize("name", list(BY_NAME))
def test_arguments_follow_their_schema(model: edgellm.Model, name: str) -> None:
    """The text before a call's arguments is forced by a bias; from there on the model is free to write what it may."""
    model._loaded.template, format = template(MARKS[name]), BY_NAME[name]
    box = toolbox([weather], model.template)
    assert box is not None and box.format is format
    opener, ended = format.openers[-1] if format.at_start else format.openers[0], 0
    closing = [tag_ends(model.tokenizer, format.closers[0])] if name.startswith("deepseek") else []  # many tokens long
    for seed in range(20):
        answer = model.chat(
            ASK,
            tools=[weather],
            seed=seed,
            max_tokens=600 if name in LONG else 200,
            temperature=1.2,
            top_k=0,
            top_p=1.0,
            min_p=0.0,
            processors=[
                Begins(model.tokenizer.encode_continuation(HEADS.get(name, opener).format("weather") + format.first[:1])),
                *closing,
            ],
            stop_loops=False,
        )
        for call in answer.tool_calls:
            ended += 1
            assert call.name == "weather"
            jsonschema.validate(call.arguments, dict(box.tools[0].parameters))
        if ended > 1:
            break
    assert ended


CITY = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "near": {"$ref": "#/$defs/City"}},
    "required": ["name"],
    "additionalProperties": False,
}
HARD: dict[str, Any] = {
    "type": "object",
    "$defs": {"City": CITY},
    "additionalProperties": False,
    "required": ["zip", "city", "mode", "size", "free"],
    "properties": {
        "zip": {"type": "string", "pattern": "^[0-9]{3}$"},
        "city": {"$ref": "#/$defs/City"},
        "mode": {"enum": ["fast", "slow <b>", 3, None]},
        "size": {"type": "integer", "minimum": -5, "maximum": 40},
        "Pairs": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"anyOf": [{"type": "boolean"}, {"type": "number"}]}},
        "tuple": {"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "integer"}], "items": False, "minItems": 2},
        "map": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
        "true": {"const": "on"},
        "free": {"type": "string"},
        "date": {"type": "string", "format": "date"},
        "word": {"type": "string", "pattern": "^a|b$"},
    },
}
ENDS = {
    "qwen3-coder": "\n</parameter>\n",
    "seed": "</parameter>\n",
    "minimax": "</parameter>\n",
    **dict.fromkeys(LONG, dsml("</@parameter>\n")),
}
CONTROLS = (
    "<tool_call>",
    "</tool_call>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "<|tool_call|>",
    "<|tool_call>",
    "<tool_call|>",
    '<|"|>',
    "<start_function_call>",
    "<end_function_call>",
    "<escape>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|channel|>",
    "<|message|>",
    "<|start|>",
    "<|end|>",
    "<|constrain|>",
    "<|call|>",
    "<|return|>",
    *kimi.FORMAT.markers,
    *deepseek.MARKERS,
    *command.FORMAT.markers,
    *BY_NAME["seed"].markers,
    *BY_NAME["minimax"].markers,
    *BY_NAME["glm"].markers[2:],
    "<|/tool_call|>",
    "<TOOLCALL>",
    "</TOOLCALL>",
    "<tool_calls>",
    "</tool_calls>",
    "<|tools_prefix|>",
    "<|tools_suffix|>",
    "<|action_start|>",
    "<|plugin|>",
    "<|action_end|>",
    "<|message_sep|>\n\n",
    "<|role_sep|>\n",
    "<|function_call|>",
)


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[edgellm.Model]:
    """A model in whose vocabulary the marks of every family are control tokens."""
    path = tiny_model(
        tmp_path_factory.mktemp("marked") / "m.gguf", "llama", "F16", tokenizer="bpe", n_layers=1, context=2048, controls=CONTROLS
    )
    with edgellm.load(path, context=2048) as model:
        yield model


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in SHORT else pytest.mark.slow) for name in BY_NAME])
def test_hard_schemas_hold_at_a_high_temperature(marked: edgellm.Model, name: str) -> None:
    marked._loaded.template, format = template(MARKS[name]), BY_NAME[name]
    tokens = marked.tokenizer
    opener = format.openers[0]
    begin = [tokens.token_id(opener)] if tokens.token_id(opener) is not None else tokens.encode_continuation(opener)
    following = next((token for mark in format.markers[1:2] if (token := tokens.token_id(mark)) is not None), None)
    if format.first and format.name in ("kimi", "deepseek-v3", "deepseek-v3.1", "internlm"):
        begin.append(tokens.token_id(kimi.BEGIN) if name == "kimi" else following)
    else:
        begin += tokens.encode_continuation(format.first[:1])
    if name in HEADS:
        begin = tokens.encode_continuation(HEADS[name].format("find"))
    if name == "harmony":
        begin = [tokens.token_id("<|channel|>"), *tokens.encode_continuation("commentary to=functions.find")]
    if name == "gigachat-3":
        begin = [tokens.token_id("<|message_sep|>\n\n"), *tokens.encode_continuation("function call")]
        begin.append(tokens.token_id("<|role_sep|>\n"))
    ends = [token for text in ('"', "'", "<", "]", "}", ")", *CONTROLS) if (token := tokens.token_id(text)) is not None]
    ended, more = 0, [tag_ends(tokens, ENDS[name], format.closers[0])] if name in ENDS else []
    wanted = 2 if name in SHORT else 1  # calls: an answer that ends is rare, and takes seconds
    for seed in range(30):
        answer = marked.chat(
            ASK,
            tools=[{"name": "find", "parameters": HARD}],
            seed=seed,
            max_tokens=1800 if name in ENDS else 500,  # arguments that need not come may come all the same
            temperature=1.5,
            top_k=0,
            top_p=1.0,
            min_p=0.0,
            stop_loops=False,
            processors=[Begins(list(begin), ends), *more],
        )
        assert answer.tool_calls or answer.stop_reason == "length" or "directly" in answer.text, answer.text
        for call in answer.tool_calls:
            jsonschema.validate(call.arguments, HARD)
            ended += call.name == "find"
        if ended == wanted:
            break
        if not answer.tool_calls:
            shown = frozenset(token for mark in format.markers if (token := tokens.token_id(mark)) is not None)
            decoder = StreamDecoder(tokens, continuation=True, shown=shown)
            assert answer.text == "".join(map(decoder.push, answer.token_ids)) + decoder.flush()
    assert ended >= wanted


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in SHORT else pytest.mark.slow) for name in BY_NAME])
def test_an_answer_is_a_call_or_has_its_form(marked: edgellm.Model, name: str) -> None:
    """What the mask takes for a call is read as one, also where the first text of an answer must be one of two things."""
    marked._loaded.template = template(MARKS[name])
    parameters = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
    hot: dict[str, Any] = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "stop_loops": False}
    for seed in range(8):
        answer = marked.chat(
            ASK, tools=[{"name": "f", "parameters": parameters}], choices=["yes", "no"], seed=seed, max_tokens=300, **hot
        )
        assert answer.stop_reason == "length" or answer.tool_calls or answer.text in ("yes", "no"), answer.text


def test_a_signature_becomes_a_tool() -> None:
    now = {"type": "function", "function": {"name": "now", "description": "The time"}}
    box = toolbox([weather, now, {"name": "x", "parameters": {}}], template("<tool_call>"))
    assert box is not None and [tool.name for tool in box.tools] == ["weather", "now", "x"]
    tool = box.tools[0]
    assert tool.description == "The weather of a city." and tool.parameters["required"] == ["city"]
    assert tool.parameters["properties"]["days"] == {"type": "integer", "description": "how many days from now"}
    assert box.messages[0]["function"]["name"] == "weather" and set(box.functions) == {"weather"}


@pytest.mark.parametrize(
    ("tools", "error"),
    [
        ("x", OptionError),
        ([3], OptionError),
        ([{"name": ""}], OptionError),
        ([weather, weather], OptionError),
        ([{"name": "a", "parameters": {"required": 3}}], SchemaError),
        ([{"name": "a", "parameters": 3}], SchemaError),
        ([lambda *a: 0], SchemaError),
    ],
)
def test_faulty_tools_are_refused(tools: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        toolbox(tools, template(""))


@pytest.mark.parametrize(
    ("schema", "dropped"),
    [
        ({"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"}, []),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, ["uniqueItems"]),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": False}, []),
        ({"type": "string", "not": {"const": ""}}, ["not"]),
        ({"type": "string", "pattern": "^(?!x)[a-z]+$"}, ["pattern"]),
        ({"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}, []),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, ["oneOf"]),
        ({"type": "string", "if": {"const": "a"}, "then": {"minLength": 1}}, ["if", "then"]),
        ({"type": "object", "propertyNames": {"pattern": "^a"}}, []),
        ({"type": "object", "properties": {"a": {}}, "dependentRequired": {"a": ["b"]}}, ["dependentRequired"]),
    ],
)
def test_tools_of_others_are_taken_and_the_rest_is_named(schema: dict[str, Any], dropped: list[str]) -> None:
    for mark in ("<tool_call>", "<tool_call> <function=", "<|tool_call>"):
        box = toolbox([{"name": "f", "parameters": {"type": "object", "properties": {"x": schema}}}], template(mark))
        assert box is not None and list(box.not_enforced) == dropped and box.grammars(literal)
        assert box.tools[0].parameters["properties"]["x"] == schema  # as the model is told


def test_a_template_for_tools_is_taken_when_there_are_some(tmp_path: Path) -> None:
    path = tiny_model(
        tmp_path / "m.gguf",
        "llama",
        "F16",
        tokenizer="spm",
        n_layers=1,
        metadata={"tokenizer.chat_template": "{{ messages[0].content }}", "tokenizer.chat_template.tool_use": TEMPLATE},
    )
    with edgellm.load(path, context=512) as model:
        short, long = (model.chat(ASK, max_tokens=1, tools=tools).stats.prompt_tokens for tools in (None, [weather]))
        assert short < 30 < long


def test_a_chat_with_tools_as_a_whole(model: edgellm.Model) -> None:
    model._loaded.template = template("<tool_call>")
    answer = model.chat(ASK, tools=[weather], run_tools=True, max_rounds=1, max_tokens=30, seed=0)
    assert answer.stop_reason in ("length", "eog")
    with model.chat(ASK, tools=[weather], stream=True, max_tokens=30, seed=0) as stream:
        events = list(stream.events())
    assert "".join(event.text for event in events if event.kind == "text") == stream.result.text
    with model.chat(ASK, tools=[weather], run_tools=True, stream=True, max_rounds=2, max_tokens=30, seed=0) as stream:
        assert [event.kind for event in stream.events()][-1] == "done" and stream.result.stop_reason in ("length", "eog")
    with pytest.raises(OptionError, match="run_tools"):
        model.chat(ASK, run_tools=True)
    answer = model.chat(ASK, tools=[weather], choices=["a"], seed=0)
    assert answer.text == "a" or answer.tool_calls
    with pytest.raises(OptionError, match="max_rounds"):
        model.chat(ASK, tools=[weather], run_tools=True, max_rounds=0)
    model._loaded.template = ChatTemplate("{{ messages[0].content }}")
    with pytest.raises(TemplateError, match="support tools"):
        model.chat(ASK, tools=[weather])
