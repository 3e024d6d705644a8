"""Filling in the middle as a call of its own: whole, streamed, under asyncio, with other files, and on the command line."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_commands import pipe_in
from tiny_models import tiny_model

import edgellm
from edgellm.cli import app
from edgellm.errors import OptionError

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 6, "ignore_eos": True}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    keys = {f"tokenizer.ggml.fim_{name}_token_id": k for k, name in ((4, "pre"), (5, "suf"), (6, "mid"), (7, "sep"))}
    return tiny_model(tmp_path_factory.mktemp("infill") / "coder.gguf", "llama", "F32", tokenizer="bpe", metadata=keys)


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[edgellm.Model]:
    with edgellm.load(path, context=128) as model:
        yield model


def test_all_ways_give_the_answer_to_the_prompt(model: edgellm.Model) -> None:
    ids = model.fill_in_prompt("ab", "cd", path="x")
    assert ids[0] == 7 and [id for id in ids if id in (4, 5, 6)] == [4, 5, 6]
    wanted = model.generate(ids, **GREEDY)
    assert model.infill("ab", "cd", path="x", **GREEDY).token_ids == wanted.token_ids
    assert "".join(model.infill("ab", "cd", stream=True, path="x", **GREEDY)) == wanted.text
    with model.session() as session:
        assert session.infill("ab", "cd", path="x", **GREEDY).text == wanted.text

    async def both() -> tuple[str, str]:
        whole = await model.ainfill("ab", "cd", path="x", **GREEDY)
        stream = await model.ainfill("ab", "cd", path="x", stream=True, **GREEDY)
        return whole.text, "".join([piece async for piece in stream])

    assert asyncio.run(both()) == (wanted.text, wanted.text)


def test_a_prompt_leaves_room_for_its_answer(model: edgellm.Model) -> None:
    assert len(model.fill_in_prompt("a" * 500, "b" * 500)) == 96
    assert len(model.fill_in_prompt("a" * 500, "b" * 500, max_tokens=10)) == 118
    assert len(model.fill_in_prompt("a", "b", files={"one": "c" * 500, "two": "d"})) < 20
    answer = model.infill("a" * 500, "b" * 500, **GREEDY)
    assert answer.stats.prompt_tokens == 122 and answer.stats.evicted_tokens == 0


@pytest.mark.parametrize(
    ("prefix", "suffix", "options", "said"),
    [
        (None, "b", {}, "prefix=None"),
        ("a", 1, {}, "suffix=1"),
        ("a", "b", {"files": "c"}, "files='c'"),
        ("a", "b", {"files": [("c", 1)]}, "files="),
        ("a", "b", {"path": 3}, "path=3"),
        ("a", "b", {"tok_k": 3}, "tok_k is not an option"),
    ],
)
def test_odd_arguments(model: edgellm.Model, prefix: Any, suffix: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        model.infill(prefix, suffix, **options)


def test_models_without_the_tokens_are_named(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "plain.gguf", "llama", "F32", tokenizer="bpe")
    with edgellm.load(path) as model, pytest.raises(OptionError, match=r"plain.gguf has no tokens for filling in the middle"):
        model.infill("a", "b")


def test_a_space_at_the_beginning_is_kept(tmp_path: Path) -> None:
    keys = {f"tokenizer.ggml.{name}_token_id": k for k, name in ((4, "prefix"), (5, "suffix"), (6, "middle"))}
    with edgellm.load(tiny_model(tmp_path / "m.gguf", "llama", "F32", tokenizer="spm", metadata=keys)) as model:
        space = next(token for token in range(model.n_vocab) if model.tokenizer.piece(token) == b" the")
        answer = model.infill("a", "b", max_tokens=1, logit_bias={space: 1e5})
        assert answer.text == " the"


def test_headers_tell_of_tokens_by_their_names(path: Path, tmp_path: Path) -> None:
    assert edgellm.read_header(path).fill_in
    named = tiny_model(tmp_path / "named.gguf", "llama", "F32", tokenizer="bpe", controls=("<fim_prefix>",))
    assert edgellm.read_header(named).fill_in
    assert not edgellm.read_header(tiny_model(tmp_path / "plain.gguf", "llama", "F32", tokenizer="bpe")).fill_in


def test_run_with_a_suffix(
    path: Path, model: edgellm.Model, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ["-n", "6", "--temp", "0", "--raw"]
    for before in ("ab", ""):
        pipe_in(monkeypatch, b"")
        assert app.run(["run", str(path), before, "--suffix", "cd", *line]) == 0
        wanted = model.infill(before, "cd", max_tokens=6, temperature=0).text
        assert capsys.readouterr().out.rstrip("\n") == wanted.rstrip("\n")
    pipe_in(monkeypatch, b"")
    assert app.run(["run", str(path), "abc " * 200, "--suffix", "cd", *line, "--context", "64"]) == 0
    left_out = re.search(r"([\d,]+) tokens of the text before and after the gap didn't fit", capsys.readouterr().err)
    assert left_out is not None and int(left_out[1].replace(",", "")) > 100
    pipe_in(monkeypatch, b"")
    assert app.run(["run", str(path), "abc " * 200, "--suffix", "cd", *line, "--context", "64", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prompt_tokens_dropped"] == found["stats"]["left_out_tokens"] == int(left_out[1].replace(",", ""))
    assert app.run(["run", str(path), "ab", "--suffix", "cd", "--image", "x.png"]) != 0
    assert "--image and --suffix" in capsys.readouterr().err
