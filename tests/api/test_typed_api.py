"""The public API as programs with types call it: .ci/run holds this file against mypy --strict as well."""

from __future__ import annotations

import asyncio
import datetime
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired, TypedDict, assert_type

import pydantic
import pytest
from tiny_models import tiny_model

import edgellm
from edgellm.api.forms.schema import reader_of

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
            assert_type(caller.generate("a", n=1, max_tokens=1), list[edgellm.Generation])
            assert_type(caller.chat(MESSAGES, n=1, max_tokens=1), list[edgellm.Generation])
            with caller.chat(MESSAGES, stream=True, max_tokens=1) as stream:
                assert_type(stream, edgellm.Stream)
                for event in stream.events():
                    assert_type(event, edgellm.Event)
            assert_type(stream.result.stats, edgellm.Stats)


@dataclass
class Pet:
    name: str
    born: datetime.date
    tags: list[str] = field(default_factory=list)
    legs: int = field(default=4, init=False)


class Place(TypedDict):
    near: NotRequired[Pet]
    lat: float


def test_values_have_the_type_of_the_schema(path: Path) -> None:
    with edgellm.load(path, context=512) as model:
        answer = model.generate("a", schema=Pet, max_tokens=1)
        assert_type(answer, edgellm.ParsedGeneration[Pet])
        assert_type(answer.parsed, Pet | None)
        assert_type(model.session().chat(MESSAGES, schema=Place, max_tokens=1).parsed, Place | None)
        assert_type(model.generate("a", schema=list[int], max_tokens=1).parsed, list[int] | None)
        assert_type(model.generate("a", schema=pydantic.TypeAdapter(list[int]), max_tokens=1).parsed, list[int] | None)
        assert_type(model.generate("a", schema={"type": "null"}, max_tokens=9), edgellm.Generation)
        assert_type(model.generate("a", n=2, schema=Pet, max_tokens=1), list[edgellm.ParsedGeneration[Pet]])
        assert_type(asyncio.run(model.achat(MESSAGES, n=2, schema=Pet, max_tokens=1)), list[edgellm.ParsedGeneration[Pet]])
        assert isinstance(answer, edgellm.ParsedGeneration) and isinstance(answer, edgellm.Generation)
        for seed in range(20):
            found = model.generate("a", schema=Pet, max_tokens=150, seed=seed, temperature=2).parsed
            if found is not None:
                assert isinstance(found, Pet) and isinstance(found.born, datetime.date) and found.legs == 4
                break
        else:
            raise AssertionError("no answer ended")
    assert reader_of(Place)('{"lat":1,"near":{"name":"x","born":"2020-02-29"}}') == {
        "lat": 1.0,
        "near": Pet("x", datetime.date(2020, 2, 29)),
    }


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
                assert_type((await caller.agenerate("a", schema=Place, max_tokens=1)).parsed, Place | None)
                assert_type((await caller.achat(MESSAGES, schema=Pet, max_tokens=1)).parsed, Pet | None)
                async with await caller.achat(MESSAGES, stream=True, max_tokens=1) as answer:
                    assert_type(answer, edgellm.AsyncStream)
                    async for event in answer.events():
                        assert_type(event, edgellm.Event)
                assert_type(answer.result, edgellm.Generation)

    asyncio.run(main())
