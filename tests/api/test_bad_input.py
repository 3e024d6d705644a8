"""Wrong arguments of all kinds: each raises an error of edgellm's own before anything is computed."""

from __future__ import annotations

import asyncio
import math
import os
import pickle
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from fake_backend import toys
from tiny_models import tiny_model

import edgellm
from edgellm.api.chat_options import ChatKeywords
from edgellm.api.context_policy import ContextPolicy
from edgellm.api.generation_options import GenerationKeywords
from edgellm.errors import EdgeError, OptionError, SchemaError, SessionError, TemplateError

NO_WINDOWS = pytest.mark.skipif(os.name == "nt", reason="its names may have lone surrogates")
HELLO = [{"role": "user", "content": "hello"}]
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{{ loud }}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[edgellm.Model]:
    path = tiny_model(
        tmp_path_factory.mktemp("bad") / "m.gguf", tokenizer="spm", n_layers=1, metadata={"tokenizer.chat_template": TEMPLATE}
    )
    with toys().load(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[edgellm.Model]:
    path = tiny_model(tmp_path_factory.mktemp("bad") / "e.gguf", "bert", tokenizer="spm", n_layers=1)
    with edgellm.load(path, backend="cpu") as opened:
        yield opened


@pytest.mark.parametrize("given", ["x", b"x", 3, [None], {1: 2}, {"tools": []}, {"messages": []}, {"self": 1}, True, object()])
def test_template_options(given: Any, model: edgellm.Model) -> None:
    with pytest.raises(OptionError, match="template_options"):
        model.chat(HELLO, template_options=given)


@pytest.mark.parametrize("given", [{}, None, {"loud": True}])
def test_template_options_that_are_possible(given: Any, model: edgellm.Model) -> None:
    assert model.chat(HELLO, template_options=given, max_tokens=1).stats.generated_tokens <= 1


@pytest.mark.parametrize(("role", "kind"), [([], "list"), ({}, "dict"), (3, "int")])
def test_roles(role: Any, kind: str, model: edgellm.Model) -> None:
    with pytest.raises(TemplateError, match=f"role of a message is a text .* not {kind}"):
        model.chat([{"role": role, "content": "a"}])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"choices": ["a", "\ud800"]}, "choices has the lone surrogate"),
        ({"regex": "a\ud800"}, "regex has the lone surrogate"),
        ({"grammar": 'start: "\ud800"'}, "grammar has the lone surrogate"),
        ({"schema": {"const": "\ud800"}}, "surrogates"),
        ({"schema": {"properties": {"\udc80": {}}}}, "surrogates"),
        ({"schema": False}, "no answer fits"),
    ],
)
def test_forms(options: Any, named: str, model: edgellm.Model) -> None:
    with pytest.raises(SchemaError, match=named):
        model.generate([1], **options)


def test_the_schema_true_is_any_json(model: edgellm.Model) -> None:
    schemas: tuple[Any, ...] = (True, {})
    answers = [model.generate([1], schema=schema, max_tokens=50, seed=1).token_ids for schema in schemas]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "path", [None, b"x", "", "\0", pytest.param("a\ud800", marks=NO_WINDOWS), 3, 1.5, [], object(), np.array([1])]
)
def test_paths_of_sessions(path: Any, model: edgellm.Model) -> None:
    uses: list[Callable[[], object]] = [lambda: model.session().save(path), lambda: model.resume(path)]
    for use in uses:
        with pytest.raises(SessionError, match="not the path of a file"):
            use()


def test_paths_of_sessions_that_are_possible(model: edgellm.Model, tmp_path: Path) -> None:
    for path in (tmp_path / "a", str(tmp_path / "b")):
        model.session().save(path)
        assert model.resume(path).n_tokens == 0


@pytest.mark.parametrize("option", ["context_policy", "think"])
def test_arrays_for_words(option: str, model: edgellm.Model) -> None:
    wrong: Any = {option: np.array([1, 2])}
    with pytest.raises(OptionError, match=option):
        model.chat(HELLO, **wrong)
    with pytest.raises(OptionError, match="priority"):
        model.session(priority=wrong[option])


def test_numbers_of_other_kinds_are_numbers(model: edgellm.Model) -> None:
    given: Any = {"temperature": Fraction(1, 2), "top_k": np.int64(3), "top_p": np.float32(0.5), "seed": np.int64(7)}
    plain: Any = {"temperature": 0.5, "top_k": 3, "top_p": 0.5, "seed": 7}
    answers = [model.generate([1, 2], max_tokens=5, ignore_eos=True, **options).token_ids for options in (given, plain)]
    assert answers[0] == answers[1]


ODD: dict[str, Any] = {
    "array without dimensions": np.array(1),
    "text array without dimensions": np.array("a"),
    "array": np.array([1, 2]),
    "empty array": np.array([]),
    "table": np.zeros((2, 2)),
    "objects": np.array([None, "a"], object),
    "number": np.uint64(2**64 - 1),
    "fraction": np.float32(0.5),
    "nan": float("nan"),
    "infinity": -math.inf,
    "complex": 1j,
    "bytes": b"abc",
    "bytearray": bytearray(b"abc"),
    "none in a list": [None],
    "none among texts": ["a", None],
    "list in a list": [["a"]],
    "huge": 10**30,
    "huge in a list": [10**5000],
    "true": True,
    "set": {"a"},
    "mapping": {1: None},
    "object": object(),
    "nul": "\0",
    "minus": -1,
    "empty": "",
    "dots": ...,
}


def refused(act: Callable[[], object]) -> None:
    """Whatever is given ends well, or in one line of ours."""
    try:
        act()
    except EdgeError as error:
        assert len(str(error)) < 600 and "\n" not in str(error)


@pytest.mark.parametrize("given", ODD.values(), ids=ODD)
@pytest.mark.parametrize("option", [name for name in ChatKeywords.__annotations__ if name != "progress"])
def test_odd_options(option: str, given: Any, model: edgellm.Model) -> None:
    options: Any = {"max_tokens": 1, option: given}
    refused(lambda: model.chat(HELLO, **options))
    if option in GenerationKeywords.__annotations__:
        refused(lambda: model.generate("a", **options))
        refused(lambda: model.generate("a", **{"regex": "a|b", **options}))


@pytest.mark.parametrize("given", ODD.values(), ids=ODD)
def test_odd_prompts_and_messages(given: Any, model: edgellm.Model) -> None:
    refused(lambda: model.generate(given, max_tokens=1))
    refused(lambda: model.logits(given))
    refused(lambda: model.session(adapters=given))
    refused(lambda: model.chat(given, max_tokens=1))
    refused(lambda: model.chat(HELLO, stream=given, max_tokens=1))
    refused(lambda: asyncio.run(model.achat(HELLO, stream=given, max_tokens=1)))
    for key in ("role", "content", "pinned", "tool_calls", "name", "reasoning_content"):
        for policy in get_args(ContextPolicy):
            messages: Any = [{"role": "user", "content": None, key: given}, *HELLO]
            refused(partial(model.chat, messages, max_tokens=1, context_policy=policy))


def loaded(path: Any, **options: Any) -> None:
    toys().load(path, **options).close()


@pytest.mark.parametrize("given", ODD.values(), ids=ODD)
def test_odd_options_of_load(given: Any, model: edgellm.Model) -> None:
    for option in signature(edgellm.load).parameters:
        if option != "progress":
            options: dict[str, Any] = {"path_or_name": model.path, option: given}
            refused(partial(loaded, options.pop("path_or_name"), **options))


@pytest.mark.parametrize("given", ODD.values(), ids=ODD)
def test_odd_texts_to_embed(given: Any, encoder: edgellm.Model) -> None:
    refused(lambda: encoder.embed(given))
    refused(lambda: encoder.embed("a", normalize=given))


def test_texts_to_embed_from_arrays(encoder: edgellm.Model) -> None:
    plain = encoder.embed(["a", "b"])
    for given in (("a", "b"), np.array(["a", "b"]), np.array(["a", "b"], object)):
        assert np.array_equal(encoder.embed(given), plain)
    assert encoder.embed(np.array([])).shape == (0, plain.shape[1])
    odd: list[Any] = [None, 3, np.array(3), (text for text in "ab"), {"a", "b"}, {"a": "b"}]
    for wrong in odd:
        with pytest.raises(OptionError, match=r"^texts (is|has)"):
            encoder.embed(wrong)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"stop": np.array(1)}, r"stop=array\(1\) is not a stop text"),
        ({"stop": b"a"}, "stop=b'a'"),
        ({"stop": [None]}, "stop=None"),
        ({"stop": (text for text in ("a", ""))}, "stop=''"),
        ({"stop_loops": 1}, "stop_loops=1"),
        ({"think": np.array([True])}, "think="),
        ({"run_tools": "no"}, "run_tools='no'"),
        ({"stream": "no"}, "stream='no'"),
        ({"tools": np.array([1, 2])}, "tools is not a list"),
    ],
)
def test_what_is_wrong_is_named(options: Any, named: str, model: edgellm.Model) -> None:
    with pytest.raises(OptionError, match=named):
        model.chat(HELLO, **options)


@pytest.mark.parametrize(
    ("adapters", "named"),
    [
        ("a.gguf", "adapters='a.gguf' is not a list"),
        (3, "adapters=3 is not a list"),
        ([("a", True)], "finite scale"),
        ([("a", 10**400)], "finite scale"),
        ([("a", math.nan)], "finite scale"),
        ([(b"a", 1.0)], "finite scale"),
    ],
)
def test_adapters_that_are_none(adapters: Any, named: str, model: edgellm.Model) -> None:
    for act in (lambda: toys().load(model.path, adapters=adapters), lambda: model.session(adapters=adapters)):
        with pytest.raises(OptionError, match=named):
            act()


def test_switches_of_numpy_are_switches(model: edgellm.Model) -> None:
    given: Any = {"stop_loops": np.True_, "run_tools": np.False_, "stream": np.False_}
    assert model.chat(HELLO, max_tokens=1, **given).stats.generated_tokens <= 1


def test_a_model_is_not_sent_to_another_process(tmp_path: Path) -> None:
    with edgellm.load(tiny_model(tmp_path / "m.gguf")) as model, pytest.raises(OptionError, match="send its path"):
        pickle.dumps(model)
