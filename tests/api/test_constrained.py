"""Answers with a form: every one that ends by itself is valid, whatever the model, the tokenizer and the sampling options."""

from __future__ import annotations

import asyncio
import datetime
import enum
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema
import numpy as np
import pydantic
import pytest
from schema_cases import SCHEMAS
from tiny_models import tiny_model

import edgellm
from edgellm.api.forms.schema import check as schema_check
from edgellm.api.forms.schema import parameters_of, schema_of
from edgellm.api.forms.typed import typed
from edgellm.errors import OptionError, SchemaError
from edgellm.tokenizer import Tokenizer

HOT: dict[str, Any] = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 300}


@pytest.fixture(scope="module", params=["spm", "bpe"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[edgellm.Model]:
    path = tiny_model(tmp_path_factory.mktemp("form") / "m.gguf", "llama", "F16", tokenizer=request.param, n_layers=1, context=1024)
    with edgellm.load(path, context=1024) as model:
        yield model


def check(answer: edgellm.Generation, schema: dict[str, Any], kind: Any = None) -> bool:
    """True if an answer ended by itself; then it must be valid."""
    assert answer.stop_reason in ("eog", "length")
    if answer.stop_reason == "length":
        assert answer.parsed is None
        return False
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(json.loads(answer.text))
    assert answer.parsed == (json.loads(answer.text) if kind is None else typed(kind, json.loads(answer.text)))
    return True


@pytest.mark.parametrize("name", SCHEMAS)
def test_answers_under_a_schema_are_valid(model: edgellm.Model, name: str) -> None:
    check(model.generate("hello", schema=SCHEMAS[name], seed=0, **HOT | {"max_tokens": 60}), SCHEMAS[name])


@pytest.mark.slow
def test_six_hundred_answers_under_thirty_schemas_are_valid(model: edgellm.Model) -> None:
    ended = [
        check(model.generate("hello", schema=schema, seed=seed, **HOT), schema) for schema in SCHEMAS.values() for seed in range(20)
    ]
    assert len(ended) == 600 and sum(ended) > 300


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 10**18 + 1, "maximum": 10**18 + 1009},
        {"type": "number", "minimum": 1e18 + 128, "maximum": 2e18},
        {"type": "integer", "exclusiveMinimum": 2**53 + 1, "exclusiveMaximum": 2**53 + 9},
        {"type": "integer", "minimum": -(2**63)},
        {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
        {"type": "number", "minimum": -1e300, "maximum": 1e300},
        {"const": 2**53},
        {"enum": [1e22]},
        {"type": "string", "pattern": r"^a[^\x00-\x1f]b$"},
        {"const": "a\tb\b"},
    ],
)
def test_answers_keep_to_bounds_that_f64_does_not_have(model: edgellm.Model, schema: dict[str, Any]) -> None:
    for seed in range(3):
        check(model.generate("hello", schema=schema, seed=seed, **HOT), schema)


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"enum": [1, 2**63]}, r"schema\['enum'\] has 9223372036854775808"),
        ({"const": {"id": [2**53 + 1]}}, "has 9007199254740993"),
        ({"const": 1e300}, "64-bit floats"),
        ({"multipleOf": 2**60 + 1}, "multipleOf"),
        ({"const": 10**400}, "const"),
        ({"items": {"minimum": 2**63}}, r"\['items'\]\['minimum'\]"),
        ({"maximum": -(2**63) + 5, "minimum": -(2**63)}, "less than 2"),
        ({"const": "a\x1bb"}, "control character"),
        ({"enum": ["a", "b\x7f"]}, "control character"),
        ({"pattern": r"^a\x1bb$"}, "control character"),
        ({"pattern": "a\x01"}, "control character"),
        ({"pattern": r"a\u0001"}, "control character"),
        ({"$ref": "#"}, "no text can follow"),
    ],
)
def test_what_would_be_changed_is_refused(model: edgellm.Model, schema: dict[str, Any], named: str) -> None:
    with pytest.raises(SchemaError, match=named):
        model.generate("hello", schema=schema, max_tokens=5)


def test_choices_of_any_number_and_of_control_characters(model: edgellm.Model) -> None:
    for choices in ([f"option {number}" for number in range(3000)], ["a\x7fb", "\x1b[0m"], ["a", "ab", 'a"\n\\/']):
        assert model.generate("hello", choices=choices, **HOT).text in choices


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Invoice(pydantic.BaseModel):
    number: int = pydantic.Field(ge=1, le=99)
    colour: Colour
    lines: list[tuple[Annotated[str, pydantic.Field(max_length=5)], bool]] = pydantic.Field(max_length=2)


class Person(TypedDict):
    name: Literal["Ann", "Bob"]
    age: NotRequired[Annotated[bool, "grown up"]]
    friend: Person | None


@dataclass
class Point:
    x: bool
    label: Literal["a", "b"] = "a"


def test_a_pydantic_model_comes_back_as_its_instance(model: edgellm.Model) -> None:
    answers = [model.generate("hello", schema=Invoice, seed=seed, **HOT | {"max_tokens": 150}) for seed in range(5)]
    ended = [answer.parsed for answer in answers if answer.stop_reason == "eog"]
    assert ended and all(isinstance(found, Invoice) and 1 <= found.number <= 99 for found in ended)


@pytest.mark.parametrize("kind", [Person, Point, dict[str, bool], tuple[bool, Colour], list[Literal[1, 2]]])
def test_types_become_schemas(model: edgellm.Model, kind: Any) -> None:
    schema = schema_of(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert sum(check(model.generate("hello", schema=kind, seed=seed, **HOT), schema, kind) for seed in range(4))


def test_a_typed_dicts_schema() -> None:
    schema = schema_of(Person)
    assert schema["$ref"] == "#/$defs/Person" and schema["$defs"]["Person"] == {
        "type": "object",
        "required": ["name", "friend"],
        "additionalProperties": False,
        "properties": {
            "name": {"enum": ["Ann", "Bob"]},
            "age": {"type": "boolean", "description": "grown up"},
            "friend": {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}]},
        },
    }


def test_a_signatures_schema() -> None:
    def weather(city: str, days: int = 3, *, unit: Literal["C", "F"] = "C", near: list[float] | None = None) -> str:
        return city

    schema = parameters_of(weather)
    assert schema["required"] == ["city"] and schema["properties"]["days"] == {"type": "integer"}
    assert schema["properties"]["near"] == {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}]}


def test_types_of_one_name_are_told_apart() -> None:
    first, second = (make_dataclass("Place", [(name, kind)]) for name, kind in (("street", str), ("lat", float)))
    place = pydantic.create_model("Place", zip=(int, ...))
    order = pydantic.create_model("Order", place=(place, ...))
    schema = schema_of(make_dataclass("Route", [("a", first), ("b", second), ("c", order), ("d", first), ("e", order)]))
    jsonschema.validate(
        {"a": {"street": ""}, "b": {"lat": 1.5}, "c": {"place": {"zip": 1}}, "d": {"street": ""}, "e": {"place": {"zip": 1}}},
        schema,
    )
    for key, value in (("b", {"street": ""}), ("c", {"place": {"street": ""}}), ("a", {"zip": 1})):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(value, {**schema["$defs"]["Route"]["properties"][key], "$defs": schema["$defs"]})


def test_members_of_enums_and_types_of_defaults() -> None:
    def paint(colour: Literal[Colour.RED], times=3, dry=True, *, note="", lot=None) -> None:  # type: ignore[no-untyped-def]  # the case
        ...

    properties = parameters_of(paint)["properties"]
    assert properties["colour"] == {"enum": ["red"]}
    assert [properties[name]["type"] for name in ("times", "dry", "note", "lot")] == ["integer", "boolean", "string", "string"]


def unnamed(*words: str) -> None: ...


def untyped(z: complex) -> None: ...


@pytest.mark.parametrize(("function", "named"), [(unnamed, "words"), (untyped, "complex")])
def test_signatures_without_a_schema_are_refused(function: Any, named: str) -> None:
    with pytest.raises(SchemaError, match=named):
        parameters_of(function)


CHOICES = ["yes", "no", 'it depends: "maybe"\\ ünïcode 😀', " with a blank"]


def test_choices(model: edgellm.Model) -> None:
    answers = {model.generate("hello", choices=CHOICES, seed=seed, **HOT).text for seed in range(12)}
    assert answers <= set(CHOICES) and len(answers) > 2
    assert model.generate("hello", choices=CHOICES, temperature=0).text in CHOICES


@pytest.mark.parametrize("expression", [r"[a-z]{3,8} [0-9]+", r"(?i)abc|x/y", r"\w+@\w+\.(com|org)", r"[ a]b{2}", "(äö)+ü"])
def test_regular_expressions(model: edgellm.Model, expression: str) -> None:
    answers = [model.generate("hello", regex=expression, seed=seed, **HOT) for seed in range(4)]
    assert any(answer.stop_reason == "eog" for answer in answers)
    assert all(re.fullmatch(expression, answer.text, re.ASCII) for answer in answers if answer.stop_reason == "eog")


def test_a_grammar(model: edgellm.Model) -> None:
    grammar = 'start: sum\nsum: product ("+" product)*\nproduct: NUMBER ("*" NUMBER)*\nNUMBER: /[1-9][0-9]?/'
    for seed in range(4):
        answer = model.generate("hello", grammar=grammar, seed=seed, **HOT)
        assert answer.stop_reason == "length" or isinstance(eval(answer.text), int)


GBNF = [  # and what the whole answer matches
    ('root ::= "a\\"b\\\\" [\\x41-\\x43\\]] # a comment with "\n', r'a"b\\[A-C\]]'),
    ('root ::= item item{2}\nitem ::= ("- " word "\\n")\nword ::= [^\\n#-]{1,3} | "\\u00fc"', r"(- ([^\n#-]{1,3}|ü)\n){3}"),
    ('root ::= ("[x]" | "\\[y\\]") .{2}\n', r"(?s)\[(x|y)\].."),
    ('root ::= ws "1"\nws ::= | " " | "\\n" [ \\t]{0,3}\n', r"( |\n[ \t]{0,3})?1"),
    ('root   ::= value\nvalue ::= "x" | "(" value ("," value)* ")"\n', r"[x(),]+"),
]


@pytest.mark.parametrize(("grammar", "expression"), GBNF)
def test_a_grammar_of_llama_cpp(model: edgellm.Model, grammar: str, expression: str) -> None:
    answers = [model.generate("hello", grammar=grammar, seed=seed, **HOT) for seed in range(4)]
    ended = [answer.text for answer in answers if answer.stop_reason == "eog"]
    assert ended and all(re.fullmatch(expression, text) for text in ended), ended


def test_in_a_session_a_stream_and_a_chat(model: edgellm.Model) -> None:
    with model.session() as session, session.stream("hello", choices=CHOICES, seed=1) as stream:
        assert "".join(stream) == stream.result.text in CHOICES
    answer = model.chat([{"role": "user", "content": "hello"}], schema={"type": "boolean"})
    assert answer.parsed in (True, False)
    assert asyncio.run(model.agenerate("hello", choices=["a", "b"])).text in ("a", "b")
    assert asyncio.run(model.achat([{"role": "user", "content": "x"}], choices=["a", "b"])).text in ("a", "b")


def test_ends_where_nothing_may_follow_also_without_a_token_for_it(model: edgellm.Model) -> None:
    answer = model.generate("hello", regex="a{5}", ignore_eos=True)
    assert (answer.text, answer.stop_reason) == ("aaaaa", "eog")


def test_is_the_same_answer_with_the_same_seed(model: edgellm.Model) -> None:
    first, second = (model.generate("hello", schema=SCHEMAS["record"], seed=3, **HOT) for _ in range(2))
    assert first.token_ids == second.token_ids


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"schema": {"not": {}}}, "'not'"),
        ({"schema": {"items": {"uniqueItems": True}}}, r"\['items'\] has 'uniqueItems'"),
        ({"schema": {"$defs": {"a": {"if": {}}}}}, "'if'"),
        ({"schema": {"minimun": 3}}, "minimun"),
        ({"schema": {"type": "string", "format": "colour"}}, "colour"),
        ({"schema": {"type": "strin"}}, "strin"),
        ({"schema": {"pattern": "(?=a)"}}, "look-around"),
        ({"schema": {"type": "integer", "minimum": 3, "maximum": 2}}, "minimum"),
        ({"schema": {"type": "object", "minProperties": 3}}, "minProperties"),
        ({"schema": {"x-guidance": {}}}, "x-guidance"),
        ({"schema": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}, "oneOf"),
        ({"schema": [1]}, "no JSON schema"),
        ({"schema": '{"type": "integer"}'}, "json.loads"),
        ({"schema": {"const": float("nan")}}, "JSON"),
        ({"schema": {"properties": {"a": 3}}}, "mapping"),
        ({"schema": {"$ref": "#/$defs/gone"}}, "gone"),
        ({"regex": "(a"}, "unclosed"),
        ({"regex": ""}, "regex"),
        ({"grammar": "start: gone"}, "gone"),
        ({"grammar": " "}, "grammar"),
        ({"grammar": "start: <gone>"}, "gone"),
        ({"grammar": "root ::= gone"}, "gone"),
        ({"grammar": 'rot ::= "a"'}, "root"),
        ({"grammar": 'root ::= "a'}, "GBNF.*end of input"),
        ({"grammar": 'root ::= "\\UFFFFFFFF"'}, "GBNF"),
        ({"grammar": "root ::= " + "(" * 900 + '"a"' + ")" * 900}, "too deep"),
        ({"choices": []}, "choices"),
        ({"choices": "yes"}, "choices"),
        ({"choices": [""]}, "choices"),
    ],
)
def test_what_cannot_be_enforced_is_refused_before_anything_is_computed(model: edgellm.Model, options: Any, named: str) -> None:
    def computed(done: int, of: int) -> None:
        raise AssertionError("a step was computed")

    with pytest.raises(SchemaError, match=named) as caught:
        model.generate("hello", progress=computed, **options)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_one_form_at_a_time_and_no_stop_texts(model: edgellm.Model) -> None:
    with pytest.raises(OptionError, match="choices and regex"):
        model.generate("hello", choices=["a"], regex="a")
    with pytest.raises(OptionError, match="stop"):
        model.generate("hello", choices=["a"], stop="b")


def test_a_deep_schema_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(1000):
        schema = {"items": schema}
    with pytest.raises(SchemaError, match="deeper"):
        schema_check(schema)


@pytest.mark.parametrize("levels", [100, 111, 200, 5000])
def test_values_nested_deeper_than_the_parser_reads_are_refused_by_name(model: edgellm.Model, levels: int) -> None:
    deep: Any = 1
    for _ in range(levels):
        deep = [deep]
    for schema in ({"const": deep}, {"enum": [deep]}, {"type": "integer", "default": deep}):
        if levels <= 100:
            assert model.generate("hello", schema=schema, max_tokens=2).text
        else:
            with pytest.raises(SchemaError, match="deeper"):
                model.generate("hello", schema=schema, max_tokens=2)


def test_log_probabilities(model: edgellm.Model) -> None:
    with model.stream("hello", max_tokens=6, logprobs=3, seed=0) as stream:
        pieces = list(stream)
    answer, prompt = stream.result, model.tokenizer.encode("hello")
    assert answer.logprobs is not None and [each.token_id for each in answer.logprobs] == list(answer.token_ids)
    assert [piece.logprobs for piece in pieces if piece.token_id is not None] == list(answer.logprobs)
    logits = model.logits([*prompt, *answer.token_ids])[len(prompt) - 1 : -1].astype(np.float64)
    wanted = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    for row, each in zip(wanted, answer.logprobs, strict=True):
        assert each.logprob == pytest.approx(row[each.token_id], abs=1e-3) and len(each.top) == 3
        assert [value for _, value in each.top] == pytest.approx(np.sort(row)[::-1][:3], abs=1e-3)
    with model.stream("hello", max_tokens=6, logprobs=0, seed=0) as stream:
        events = list(stream.events())
    assert sum(len(event.logprobs) for event in events) <= 6 and all(not each.top for event in events for each in event.logprobs)
    assert model.generate("hello", max_tokens=2).logprobs is None
    with pytest.raises(OptionError, match="logprobs"):
        model.generate("hello", logprobs=-1)


def test_continuations_have_the_bytes_of_the_text(model: edgellm.Model) -> None:
    tokenizer: Tokenizer = model.tokenizer
    for text in ("lue", " the", "ünï", "\n\n", "", "hello world"):
        assert b"".join(map(tokenizer.piece, tokenizer.encode_continuation(text))) == text.encode()


def writes(model: edgellm.Model, text: str, schema: Any, **options: Any) -> edgellm.Generation:
    """The answer of a model that wants to write a text and then a quote, a bracket or the end."""
    ids = model.tokenizer.encode_continuation(text)

    def wants(_: Any, logits: Any) -> Any:
        if ids:
            logits[ids.pop(0)] += 1e4
        return logits

    return model.generate("hello", schema=schema, processors=[wants], temperature=0, max_tokens=600, **options)


class Times(pydantic.BaseModel):
    at: datetime.date | None = None
    clock: datetime.time | None = None
    moment: datetime.datetime | None = None
    span: datetime.timedelta | None = None
    count: int | None = None
    size: float | None = None


@pytest.mark.parametrize(
    "text",
    [
        '{"at": "2023-02-29"}',
        '{"at": "0000-01-01"}',
        '{"at": "1900-02-29"}',
        '{"at": "2024-02-29"}',
        '{"clock": "23:59:60Z"}',
        '{"moment": "2023-02-30T00:00:60Z"}',
        '{"span": "P100000000000D"}',
        '{"span": "P1Y2M3DT4H5M6S"}',
        '{"count": ' + "9" * 500 + "}",
        '{"size": 1e999}',
        '{"size": -1.5E+400}',
        '{"size": 1e-99}',
    ],
)
def test_valid_means_that_parsed_exists(model: edgellm.Model, text: str) -> None:
    answer = writes(model, text, Times)
    if answer.stop_reason == "eog":
        found = answer.parsed
        assert isinstance(found, Times) and (found.size is None or abs(found.size) < 1e300)
    answer = writes(model, text, {"type": "object"})
    if answer.stop_reason == "eog":
        json.dumps(answer.parsed, allow_nan=False)


def test_lists_without_end_are_bounded(model: edgellm.Model) -> None:
    answer = writes(model, "[" * 400, {"type": "array"})
    assert not answer.text.startswith("[" * 130)  # 120, where one token may open several; a text may have more
    assert answer.stop_reason != "eog" or answer.parsed is not None


@pytest.mark.parametrize("kind", ["date", "time", "date-time", "duration"])
def test_the_calendar_of_schemas_is_pythons(kind: str) -> None:
    import re

    from edgellm.chat.schemas import HELD

    pattern = re.compile(HELD[kind])
    if kind == "date":
        for year in (1, 4, 100, 400, 1900, 2000, 2023, 2024, 9999):
            for month in range(0, 14):
                for day in range(0, 33):
                    text = f"{year:04}-{month:02}-{day:02}"
                    try:
                        datetime.date.fromisoformat(text)
                    except ValueError:
                        assert not pattern.fullmatch(text), text
                    else:
                        assert pattern.fullmatch(text), text
    else:
        good = {"time": "23:59:59.5+01:00", "date-time": "2024-02-29T00:00:00Z", "duration": "P1DT2H"}[kind]
        bad = {"time": "23:59:60Z", "date-time": "2023-02-29T00:00:00Z", "duration": "P99999999999D"}[kind]
        assert pattern.fullmatch(good) and not pattern.fullmatch(bad)
