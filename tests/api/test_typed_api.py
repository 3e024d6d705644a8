"""The public API as programs with types call it: .ci/run holds this file against mypy --strict as well."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import assert_type

import pytest
from tiny_models import tiny_model

import edgellm

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file: Path = tiny_model(tmp_path_factory.mktemp("typed") / "tiny.gguf", "llama", "F16", tokenizer="spm", n_layers=1)
    return file


def test_calls(path: Path) -> None:
    with edgellm.load(path, context=64) as model:
        assert_type(model, edgellm.Model)
        for caller in (model, model.session(priority="background")):
            assert_type(caller.generate("a", max_tokens=1, temperature=0), edgellm.Generation)
            assert_type(caller.generate([1, 2], max_tokens=1, stop=["x"]).text, str)
            for piece in caller.stream("a", max_tokens=1):
                assert_type(piece, edgellm.Piece)
            assert_type(caller.chat(MESSAGES, max_tokens=1), edgellm.Generation)
            with caller.chat(MESSAGES, stream=True, max_tokens=1) as stream:
                assert_type(stream, edgellm.Stream)
                for event in stream.events():
                    assert_type(event, edgellm.Event)
            assert_type(stream.result.stats, edgellm.Stats)


def test_sessions(path: Path, tmp_path: Path) -> None:
    with edgellm.load(path, context=64, parallel=2) as model, model.session() as session:
        assert_type(session, edgellm.Session)
        session.generate([1, 2, 3], max_tokens=1)
        assert_type(session.fork(), edgellm.Session)
        session.save(tmp_path / "session")
        assert_type(model.resume(tmp_path / "session"), edgellm.Session)


def test_calls_under_asyncio(path: Path) -> None:
    async def main() -> None:
        with edgellm.load(path, context=64) as model:
            for caller in (model, model.session()):
                assert_type(await caller.agenerate("a", max_tokens=1, temperature=0), edgellm.Generation)
                async for piece in caller.astream("a", max_tokens=1):
                    assert_type(piece, edgellm.Piece)
                assert_type(await caller.achat(MESSAGES, max_tokens=1), edgellm.Generation)
                async with await caller.achat(MESSAGES, stream=True, max_tokens=1) as answer:
                    assert_type(answer, edgellm.AsyncStream)
                    async for event in answer.events():
                        assert_type(event, edgellm.Event)
                assert_type(answer.result, edgellm.Generation)

    asyncio.run(main())
