"""Beginnings of prompts on the disk: found again after a restart, never used for another model, and bounded."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_model
from waiting import until

import edgellm
from edgellm import Generation, Model, OptionError
from edgellm.engine import saved_pages, state_store
from edgellm.engine.saved_pages import Chunk
from edgellm.engine.saved_session import DIGEST, HEAD

SYSTEM = [1 + k * 7 % 250 for k in range(600)]
ASKED: dict[str, Any] = {"max_tokens": 5, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("store") / "toy.gguf", "llama", "F16", tokenizer="spm", n_layers=1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the states are; kernels stay in the usual place."""
    monkeypatch.setattr(state_store, "user_cache", lambda: tmp_path)
    yield tmp_path / "prefixes"


def opened(path: Path, **options: Any) -> Model:
    return edgellm.load(path, backend="cpu", **{"context": 1024, "prefix_cache": "1G", **options})


def saved(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.state")) if folder.exists() else []


def answer(path: Path, prompt: list[int], **options: Any) -> Generation:
    with opened(path, **options) as model:
        return model.generate(prompt, **ASKED)


def test_a_restart_computes_what_is_new_alone(path: Path, folder: Path) -> None:
    with opened(path) as model:
        first = model.generate([*SYSTEM, 9], **ASKED)
        until(lambda: saved(folder) and model.engine.core.cache.store._writer is None)
        once = model.generate([*SYSTEM, 11, 12], **ASKED)  # shared in memory
    assert first.stats.cached_tokens == 0 and once.stats.cached_tokens == len(SYSTEM)
    with opened(path) as model:
        again = model.generate([*SYSTEM, 11, 12, 13], **ASKED)
        longer = model.generate([*SYSTEM, *SYSTEM[:300], 13], **ASKED)
    assert again.stats.cached_tokens >= len(SYSTEM) and longer.stats.cached_tokens >= len(SYSTEM)
    assert again.token_ids == answer(path, [*SYSTEM, 11, 12, 13], prefix_cache="off").token_ids
    assert len(saved(folder)) == 2  # what grew replaced what it grew from
    assert folder.stat().st_mode & 0o077 == 0
    third = answer(path, [*SYSTEM, *SYSTEM[:300], 14])
    assert third.stats.cached_tokens == len(SYSTEM) + 300
    assert not list(folder.glob("*.part"))


def test_the_last_state_is_read_before_a_request_asks_for_it(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(path, [*SYSTEM, 9])
    answer(path, [*SYSTEM, 9, *range(3, 40)])  # in a file of its own that needs the first
    assert len(saved(folder)) == 2
    with opened(path) as model:
        store = model.engine.core.cache.store
        assert store is not None
        until(lambda: store._ahead is not None)

        def load(*given: Any) -> Any:
            raise AssertionError("it was read again")

        with monkeypatch.context() as patch:
            patch.setattr(saved_pages, "load", load)
            found = model.generate([*SYSTEM, 9, *range(3, 40), 10], **ASKED)
        assert found.stats.cached_tokens >= len(SYSTEM) + 38 and store._ahead is None
    monkeypatch.setattr(state_store, "AHEAD", 1 << 60)  # no memory has so much room
    with opened(path) as model:
        store = model.engine.core.cache.store
        assert store is not None
        until(lambda: not any(thread.name == "edgellm-prefixes" for thread in threading.enumerate()))
        assert store._ahead is None
    assert found.token_ids == answer(path, [*SYSTEM, 9, *range(3, 40), 10], prefix_cache="off").token_ids


def test_closing_saves_the_last_answer(path: Path, folder: Path) -> None:
    """Also one too short to be saved while others are answered."""
    answer(path, [*SYSTEM, 9])
    first = answer(path, [*SYSTEM, 9, *range(3, 40)])
    again = answer(path, [*SYSTEM, 9, *range(3, 40), *first.token_ids, 5])
    assert again.stats.cached_tokens >= len(SYSTEM) + 1 + 37 + len(first.token_ids) - 1
    assert len(saved(folder)) <= 2


@pytest.mark.parametrize(
    "other", [{"kv_type": "q8_0"}, {"context": 512}, {"sinks": 8}, {"prefix_cache": "off"}, {"prefix_cache": None}]
)
def test_other_options_do_not_find_it(path: Path, folder: Path, other: dict[str, Any]) -> None:
    answer(path, [*SYSTEM, 9])
    assert answer(path, [*SYSTEM, 9], **other).stats.cached_tokens == 0
    assert answer(path, [*SYSTEM, 9]).stats.cached_tokens == len(SYSTEM)  # the file is still there


def test_another_context_that_has_room_finds_it(path: Path, folder: Path) -> None:
    answer(path, [*SYSTEM, 9])
    for context in (768, 4096):
        found = answer(path, [*SYSTEM, 9], context=context)
        assert found.stats.cached_tokens == len(SYSTEM)
        assert found.token_ids == answer(path, [*SYSTEM, 9], context=context, prefix_cache="off").token_ids


def test_another_file_does_not_find_it(path: Path, folder: Path, tmp_path: Path) -> None:
    answer(path, [*SYSTEM, 9])
    copy = shutil.copy(path, tmp_path / "copy.gguf")
    os.utime(copy, ns=(1, 1))
    assert answer(copy, [*SYSTEM, 9]).stats.cached_tokens == 0
    assert answer(path, [*SYSTEM, 9]).stats.cached_tokens == len(SYSTEM)


def test_a_damaged_file_is_deleted_and_computed_again(path: Path, folder: Path) -> None:
    wanted = answer(path, [*SYSTEM, 9])
    (file,) = saved(folder)
    whole = file.read_bytes()
    for damaged in (whole[:-40] + b"x" + whole[-39:], whole[:100], b"", whole[:90] + b"\xff" + whole[91:]):
        file.write_bytes(damaged)
        with opened(path) as model:
            found = model.generate([*SYSTEM, 9], **ASKED)
            until(lambda: saved(folder) and saved(folder)[0].stat().st_size == len(whole))  # written again
        assert found.stats.cached_tokens == 0 and found.token_ids == wanted.token_ids


@pytest.mark.parametrize(
    "wrong",
    [{"file": "../x"}, {"file": "/etc/passwd"}, {"file": ".."}, {"file": 3}, {"length": 1 << 59}, {"length": -1}, {"offset": 1.5}],
)
def test_a_file_that_names_bytes_elsewhere_is_deleted(path: Path, folder: Path, wrong: dict[str, Any]) -> None:
    """Its checksums are right; somebody has written it."""
    answer(path, [*SYSTEM, 9])
    (file,) = saved(folder)
    whole = file.read_bytes()
    magic, version, n_header, n_ids, n_table = HEAD.unpack(whole[: HEAD.size])
    begin = HEAD.size + n_header + n_ids
    first, *rest = (Chunk(*each) for each in json.loads(whole[begin : begin + n_table]))
    table = json.dumps([first._replace(**wrong), *rest]).encode()
    head = HEAD.pack(magic, version, n_header, n_ids, len(table)) + whole[HEAD.size : begin] + table
    file.write_bytes(head + hashlib.sha256(head).digest() + whole[begin + n_table + DIGEST :])
    assert answer(path, [*SYSTEM, 9]).stats.cached_tokens == 0
    assert answer(path, [*SYSTEM, 9]).stats.cached_tokens == len(SYSTEM)


def test_what_grows_is_saved_without_what_is_there(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files share pages: each has its own only, and one that would need many has all and replaces them."""

    def answer(prompt: list[int], cache: str = "1G") -> Generation:
        with opened(path, context=2048, prefix_cache=cache) as model:
            return model.generate(prompt, **ASKED)

    said, sizes = [*SYSTEM], list[int]()
    for n in range(3):
        said += answer(said).token_ids
        sizes = [file.stat().st_size for file in saved(folder)]
        assert len(sizes) == n + 1
        said += [3 + k * 11 % 240 for k in range(300)]
    found = answer(said)
    assert found.stats.cached_tokens == len(said) - 301 and found.token_ids == answer(said, "off").token_ids
    monkeypatch.setattr(state_store, "MOST_PARTS", 1)
    said += [*found.token_ids, *SYSTEM[:300]]
    assert answer(said).stats.cached_tokens == len(said) - 301
    (whole,) = saved(folder)
    assert whole.stat().st_size > 0.6 * sum(sizes), "what they shared was there once"
    assert answer(said).stats.cached_tokens == len(said) - 1


def test_a_damaged_file_takes_those_along_that_need_it(path: Path, folder: Path) -> None:
    longer = [*SYSTEM, *SYSTEM[:300], 9]
    answer(path, [*SYSTEM, 9])
    (first,) = saved(folder)
    answer(path, longer)
    assert len(saved(folder)) == 2
    whole = first.read_bytes()
    first.write_bytes(whole[: len(whole) // 2] + b"xyz" + whole[len(whole) // 2 + 3 :])
    with opened(path) as model:
        found = model.generate(longer, **ASKED)
        assert found.stats.cached_tokens == 0 and not (first.exists() and first.read_bytes() != whole)
    assert found.token_ids == answer(path, longer, prefix_cache="off").token_ids


def test_conversations_that_make_room_are_saved(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than are kept in memory: each is found on the disk when it goes on."""
    monkeypatch.setattr(state_store, "UNPROVEN", 0.0)
    beginnings = [[2 + (k + n) * 11 % 240 for k in range(400 + 20 * n)] for n in range(4)]
    with opened(path) as model:
        for k in range(2):
            for prompt in beginnings:
                found = model.generate([*prompt, 7 + k], **ASKED)
                assert found.stats.cached_tokens == (len(prompt) if k else 0)
                until(lambda: model.engine.core.cache.store._writer is None)
    assert len(saved(folder)) == 4


def test_prompts_that_never_come_again_are_not_written(path: Path, folder: Path) -> None:
    """A hundred of them are one file; a common beginning of theirs is in it, and is not written with each."""
    with opened(path, parallel=2) as model:
        for n in range(12):
            model.generate([*SYSTEM, *(3 + (n * 31 + k * 7) % 200 for k in range(300))], **ASKED)
            until(lambda: model.engine.core.cache.store._writer is None)
            assert len(saved(folder)) == 1
    assert len(saved(folder)) <= 3  # those that were in memory at the end


def test_the_budget_is_kept(path: Path, folder: Path) -> None:
    answer(path, [*SYSTEM, 9])
    size = saved(folder)[0].stat().st_size
    budget = f"{size * 2.5 / 1024:.0f}K"
    for n in range(5):
        answer(path, [2 + n, *SYSTEM, 9], prefix_cache=budget)
    assert len(saved(folder)) == 2
    assert answer(path, [2 + 4, *SYSTEM, 9], prefix_cache=budget).stats.cached_tokens == 1 + len(SYSTEM)
    assert answer(path, [2, *SYSTEM, 9], prefix_cache=f"{size / 2 / 1024:.0f}K").stats.cached_tokens == 0  # too little for any


def test_the_switch_for_traces_and_wrong_sizes(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("much", "-4G", 5):
        with pytest.raises(OptionError, match="prefix_cache"):
            opened(path, prefix_cache=wrong)
    monkeypatch.setenv("EDGELLM_SESSIONS", "off")
    answer(path, [*SYSTEM, 9])
    assert not saved(folder)


@pytest.mark.parametrize("architecture", ["lfm2", "gemma3", "mamba"])
def test_states_of_other_kinds(architecture: str, folder: Path, tmp_path: Path) -> None:
    """Recurrent states and windows: a conversation goes on after a restart as it would have without one."""
    path = tiny_model(tmp_path / "tiny.gguf", architecture, "F16", tokenizer="spm")
    with opened(path, prefix_cache="off") as model:
        first = model.generate([*SYSTEM, 9], **ASKED)
        wanted = model.generate([*SYSTEM, 9, *first.token_ids, 5, 6], **ASKED)
    answer(path, [*SYSTEM, 9])
    found = answer(path, [*SYSTEM, 9, *first.token_ids, 5, 6])
    assert found.token_ids == wanted.token_ids and found.stats.cached_tokens == wanted.stats.cached_tokens > len(SYSTEM)
