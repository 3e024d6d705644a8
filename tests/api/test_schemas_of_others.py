"""Schemas of Pydantic and of others: exact where a grammar can be, checked afterwards where strict=False, compact or indented."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pydantic
import pytest
from tiny_models import tiny_model

import edgellm
from edgellm.api.forms.schema import reader_of, schema_of
from edgellm.api.indenting import Indenter
from edgellm.chat.schemas import restated
from edgellm.errors import OptionError, SchemaError

HOT: dict[str, Any] = {"temperature": 1.3, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 700}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[edgellm.Model]:
    path = tiny_model(tmp_path_factory.mktemp("form") / "m.gguf", "llama", "F16", tokenizer="bpe", n_layers=1, context=1024)
    with edgellm.load(path, context=1024) as model:
        yield model


class Settings(pydantic.BaseModel):
    tags: set[bool]
    file: Path
    host: pydantic.IPvAnyAddress
    secret: pydantic.SecretStr = pydantic.Field(max_length=8)
    raw: bytes = pydantic.Field(max_length=8)
    numbers: pydantic.Json[list[bool]]
    sides: dict[Literal["left", "right"], bool]
    key: pydantic.UUID4


class Open(pydantic.BaseModel, extra="allow"):
    a: bool


class Closed(pydantic.BaseModel):
    a: bool


def test_types_of_pydantic_are_taken_and_parsed_exists(model: edgellm.Model) -> None:
    answers = [model.generate("hello", schema=Settings, seed=seed, **HOT) for seed in range(6)]
    ended = [answer.parsed for answer in answers if answer.stop_reason == "eog"]
    assert ended and all(isinstance(found, Settings) and isinstance(found.tags, set) for found in ended)
    assert all(set(found.sides) <= {"left", "right"} for found in ended)


def test_objects_of_pydantic_are_closed_unless_they_are_open() -> None:
    assert schema_of(Closed)["additionalProperties"] is False and schema_of(Open)["additionalProperties"] is True
    assert schema_of(list[Closed])["items"]["additionalProperties"] is False


def test_a_type_adapter_and_lists_of_models(model: edgellm.Model) -> None:
    for kind in (pydantic.TypeAdapter(list[Closed]), list[Closed]):
        for seed in range(8):
            answer = model.generate("hello", schema=kind, seed=seed, **HOT | {"max_tokens": 200})
            if answer.stop_reason == "eog" and answer.parsed:
                assert all(isinstance(each, Closed) for each in answer.parsed)
                break
        else:
            raise AssertionError("no answer ended")
    assert reader_of(dict[str, Closed])('{"x":{"a":true}}') == {"x": Closed(a=True)}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": [{"type": "boolean"}, {"type": "null"}], "additionalItems": False, "minItems": 2},
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "boolean"}},
        {"type": "object", "propertyNames": {"pattern": "^[ab]$"}, "additionalProperties": {"type": "null"}},
        {"type": "string", "contentEncoding": "base64", "maxLength": 5},
    ],
)
def test_what_can_be_said_in_other_words_is_enforced(model: edgellm.Model, schema: dict[str, Any]) -> None:
    ended = 0
    for seed in range(6):
        answer = model.generate("hello", schema=schema, seed=seed, **HOT | {"max_tokens": 200})
        if answer.stop_reason == "eog":
            ended += 1
            kind = jsonschema.Draft7Validator if isinstance(schema.get("items"), list) else jsonschema.Draft202012Validator
            kind(schema).validate(answer.parsed)
    assert ended and restated(restated(schema)) == restated(schema)


def test_the_rest_is_refused_or_checked_and_asked_again(model: edgellm.Model) -> None:
    schema = {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 2, "maxItems": 2}
    with pytest.raises(SchemaError, match="uniqueItems"):
        model.generate("hello", schema=schema)
    answers = [model.generate("hello", schema=schema, strict=False, seed=seed, **HOT) for seed in range(10)]
    assert all(answer.not_enforced == ("uniqueItems",) for answer in answers)
    fit = [answer for answer in answers if answer.stop_reason == "eog" and answer.problem is None]
    assert len(fit) > 6 and all(len(set(answer.parsed)) == 2 for answer in fit)
    greedy = model.generate("hello", schema={"const": 1, "not": {"const": 1}}, strict=False, temperature=0)
    assert greedy.text == "1" and greedy.problem is not None


def test_tools_are_refused_where_strict_is_asked_for(model: edgellm.Model) -> None:
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True}}}}]
    model._loaded.template = edgellm.chat.ChatTemplate("{{ tools }}{{ messages[0].content }}{# <tool_call> #}")
    assert model.chat([{"role": "user", "content": "x"}], tools=tools, max_tokens=2).not_enforced == ("uniqueItems",)
    with pytest.raises(SchemaError, match="f have 'uniqueItems'"):
        model.chat([{"role": "user", "content": "x"}], tools=tools, strict=True)


def test_calls_that_break_their_schema_are_listed_and_asked_again(model: edgellm.Model) -> None:
    """The pair of one call in two has members that are equal."""
    pair = {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 2, "maxItems": 2}
    parameters = {"type": "object", "properties": {"x": pair}, "required": ["x"], "additionalProperties": False}
    called, tools = list[list[bool]](), [{"name": "f", "parameters": parameters, "run": lambda x: called.append(x)}]
    model._loaded.template = edgellm.chat.ChatTemplate("{{ tools }}{{ messages[0].content }}{# <tool_call> #}")
    ask, options = [{"role": "user", "content": "x"}], {"tools": tools, "tool_choice": "f", "parallel_tool_calls": False, **HOT}
    streamed = [model.chat(ask, stream=True, seed=seed, **options).drain() for seed in range(12)]
    wrong = [each for each in streamed if each.call_problems]
    assert wrong and len(wrong) < 12
    for each in wrong:
        assert each.call_problems[0].call == each.tool_calls[0] and "non-unique" in each.call_problems[0].problem
        assert len(set(each.tool_calls[0].arguments["x"])) == 1 and each.problem == each.call_problems[0].problem
    again = [model.chat(ask, seed=seed, **options) for seed in range(12)]
    assert sum(bool(each.call_problems) for each in again) < len(wrong)
    ran = model.chat(ask, seed=wrong[0].seed, run_tools=True, max_rounds=1, **options)
    assert not called and "break its schema" in str(ran.tool_errors[0].error) and "non-unique" in str(ran.messages[-1]["content"])


def test_json_is_compact_or_indented(model: edgellm.Model) -> None:
    schema = schema_of(Settings)
    for seed in range(4):
        plain, wide = (model.generate("hello", schema=schema, seed=seed, indent=indent, **HOT) for indent in (None, 2))
        assert plain.token_ids == wide.token_ids
        if plain.stop_reason == "eog":
            assert plain.text == json.dumps(json.loads(plain.text), separators=(",", ":"), ensure_ascii=False)
            assert wide.parsed == plain.parsed and wide.text == json.dumps(plain.parsed, indent=2, ensure_ascii=False)
    with pytest.raises(OptionError, match="indent"):
        model.generate("hello", schema=schema, indent=-1)


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("value", [[], {}, [[], {}], {"a": [1, 2.5, {"b": 'x,:"[]{}\\'}], "c": None}, "[", 3])
def test_an_indenter_writes_as_json_does(value: object, size: int) -> None:
    text, indenter = json.dumps(value, separators=(",", ":")), Indenter(2)
    found = "".join(indenter.push(text[at : at + size])[0] for at in range(0, len(text), size)) + indenter.flush()
    assert found == json.dumps(value, indent=2)


def test_a_model_is_warmed_up_for_a_schema_and_tools(model: edgellm.Model) -> None:
    model.warm_up(schema=Closed)
    model._loaded.template = edgellm.chat.ChatTemplate("{{ tools }}{{ messages[0].content }}{# <tool_call> #}")
    model.warm_up(tools=[{"name": "f"}], response_format={"type": "json_object"})
    with pytest.raises(SchemaError, match="uniqueItems"):
        model.warm_up(schema={"uniqueItems": True})
