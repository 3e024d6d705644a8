"""What callers may give by mistake: each is told in an error of edgellm's own, before anything is computed."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_backend import toys
from tiny_models import tiny_model

import edgellm
from edgellm.errors import OptionError, SchemaError, SessionError, TemplateError

NO_WINDOWS = pytest.mark.skipif(os.name == "nt", reason="its names may have lone surrogates")
HELLO = [{"role": "user", "content": "hello"}]
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{{ loud }}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[edgellm.Model]:
    path = tiny_model(tmp_path_factory.mktemp("bad") / "m.gguf", tokenizer="spm", n_layers=1,
                      metadata={"tokenizer.chat_template": TEMPLATE})
    with toys().load(path) as opened:
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


@pytest.mark.parametrize(("options", "named"), [
    ({"choices": ["a", "\ud800"]}, "choices has the lone surrogate"), ({"regex": "a\ud800"}, "regex has the lone surrogate"),
    ({"grammar": 'start: "\ud800"'}, "grammar has the lone surrogate"), ({"schema": {"const": "\ud800"}}, "surrogates"),
    ({"schema": {"properties": {"\udc80": {}}}}, "surrogates"), ({"schema": False}, "no answer fits"),
])
def test_forms(options: Any, named: str, model: edgellm.Model) -> None:
    with pytest.raises(SchemaError, match=named):
        model.generate([1], **options)


def test_the_schema_true_is_any_json(model: edgellm.Model) -> None:
    answers = [model.generate([1], schema=schema, max_tokens=50, seed=1).token_ids for schema in (True, {})]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("path", [None, b"x", "", "\0", pytest.param("a\ud800", marks=NO_WINDOWS), 3, 1.5, [], object(),
                                  np.array([1])])
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
