"""Paths that lead to no model file, and models split over several files."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from gguf_cases import I32, KEYS, STRING, TENSORS, U16, U32, Tensor, gguf, key, scalar, string

from edgellm.formats.errors import (
    BadHParam,
    BadMagic,
    Duplicate,
    EdgeError,
    FormatError,
    LimitExceeded,
    Truncated,
    Unreadable,
    Unsupported,
)
from edgellm.formats.gguf import open_gguf


def _fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    return path


def _loop(path: Path) -> Path:
    path.symlink_to(path)
    return path


def _forbidden(path: Path) -> Path:
    path.write_bytes(gguf())
    path.chmod(0)
    return path


def _empty(path: Path) -> Path:
    path.touch()
    return path


PLACES: dict[str, tuple[Any, type[FormatError]]] = {
    "folder": (lambda path: path.parent, Unreadable),
    "missing": (lambda path: path, Unreadable),
    "pipe": (_fifo, Unreadable),
    "socket": (_socket, Unreadable),
    "loop": (_loop, Unreadable),
    "forbidden": (_forbidden, Unreadable),
    "empty": (_empty, Truncated),
    "zero": (lambda _: Path("/dev/zero"), Unreadable),
    "random": (lambda _: Path("/dev/random"), Unreadable),
    "null": (lambda _: Path("/dev/null"), Unreadable),
    "proc": (lambda _: Path("/proc/self/maps"), Truncated),
    "below-a-file": (lambda path: _empty(path) / "x", Unreadable),
    "nul": (lambda path: Path(f"{path}\0x"), Unreadable),
    "long": (lambda path: path / ("x" * 5000), Unreadable),
    "no-path": (lambda _: "", Unreadable),
}


@pytest.mark.skipif(os.name != "posix", reason="pipes, sockets and devices of POSIX")
@pytest.mark.parametrize("place", PLACES)
def test_place_is_refused_at_once(place: str, tmp_path: Path) -> None:
    make, error = PLACES[place]
    path = make(tmp_path / "x.gguf")
    caught: list[BaseException] = []
    target = _open_as_nobody if place == "forbidden" else _open
    thread = threading.Thread(target=target, args=(path, caught), daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive(), "open_gguf hangs"
    assert [type(item) for item in caught] == [error] and isinstance(caught[0], EdgeError)


def _open(path: Any, caught: list[BaseException]) -> None:
    try:
        open_gguf(path)
    except BaseException as error:
        caught.append(error)


def _open_as_nobody(path: Path, caught: list[BaseException]) -> None:
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        _open(path, caught)
    finally:
        os.seteuid(user)


def test_path_as_string_bytes_free_and_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b ü.gguf").write_bytes(gguf())
    monkeypatch.chdir(tmp_path)
    with open_gguf("a b ü.gguf") as file:
        assert file.path == "a b ü.gguf" and len(file.tensors) == len(TENSORS)


def _part(number: int | None, count: int, tensors: list[Tensor], *extra: bytes, total: int | None = None) -> bytes:
    keys = [scalar("split.count", U16, count), *extra]
    if number is not None:
        keys.append(scalar("split.no", U16, number))
    if total is not None:
        keys.append(scalar("split.tensors.count", I32, total))
    return gguf([*KEYS, *keys], tensors)


def _split(folder: Path, *parts: bytes) -> list[Path]:
    paths = [folder / f"model-{i + 1:05d}-of-{len(parts):05d}.gguf" for i in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(part)
    return paths


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_split_model_opens_by_any_part(opened: int, tmp_path: Path) -> None:
    parts: list[list[Tensor]] = [[], TENSORS[:2], TENSORS[2:]]
    paths = _split(tmp_path, *(_part(i, 3, tensors, total=3) for i, tensors in enumerate(parts)))
    with open_gguf(paths[opened]) as file:
        assert file.path == str(paths[0]) and file.paths == tuple(map(str, paths))
        assert {name: info.part for name, info in file.tensors.items()} == {
            "token_embd.weight": 1,
            "blk.0.attn_q.weight": 1,
            "output_norm.weight": 2,
        }
        info = file.tensors["output_norm.weight"]
        assert file.raw("output_norm.weight").tobytes() == paths[2].read_bytes()[info.offset : info.offset + 14]
        assert file.nbytes == sum(path.stat().st_size for path in paths)


def test_split_model_of_the_gguf_package(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    data = {f"t{i}": np.full((2, 32), i, np.float32) for i in range(5)}
    for name, values in data.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_gguf(sorted(tmp_path.glob("*.gguf"))[1]) as file:
        assert len(file.paths) == 3 and file.metadata["general.architecture"] == "llama"
        assert all(file.raw(name).tobytes() == values.tobytes() for name, values in data.items())


def _other(name: str, value: str) -> list[bytes]:
    """The keys of a second part of two, with this one among them."""
    return [scalar("split.count", U16, 2), scalar("split.no", U16, 1), key(name, STRING, string(value))]


GOOD_NAMED = _part(0, 2, TENSORS[:1], key("general.name", STRING, string("one")))
GOOD = (_part(0, 2, TENSORS[:1], total=3), _part(1, 2, TENSORS[1:], total=3))
BROKEN: dict[str, tuple[tuple[bytes, ...], type[FormatError]]] = {
    "duplicate": ((_part(0, 2, TENSORS[:2]), _part(1, 2, TENSORS[1:])), Duplicate),
    "count-differs": ((GOOD[0], _part(1, 3, TENSORS[1:])), BadHParam),
    "number-differs": ((GOOD[0], _part(0, 2, TENSORS[1:])), BadHParam),
    "no-number": ((_part(None, 2, TENSORS[:1]), GOOD[1]), BadHParam),
    "number-too-large": ((_part(2, 2, TENSORS[:1]), GOOD[1]), BadHParam),
    "second-says-nothing": ((GOOD[0], gguf([], TENSORS[1:])), BadHParam),
    "total-differs": ((_part(0, 2, TENSORS[:1], total=4), GOOD[1]), BadHParam),
    "second-of-another-architecture": ((GOOD[0], gguf(_other("general.architecture", "qwen3"), TENSORS[1:])), BadHParam),
    "second-of-another-name": ((GOOD_NAMED, gguf(_other("general.name", "other"), TENSORS[1:])), BadHParam),
    "total-negative": ((_part(0, 2, TENSORS[:1], total=-1), GOOD[1]), BadHParam),
    "count-is-text": ((gguf([key("split.count", STRING, string("2"))], []), GOOD[1]), BadHParam),
    "count-huge": ((gguf([scalar("split.count", U32, 4_000_000_000)], []), GOOD[1]), LimitExceeded),
    "second-cut": ((GOOD[0], GOOD[1][:-60]), Truncated),
    "second-is-no-gguf": ((GOOD[0], b"<html>not found</html>"), BadMagic),
    "second-is-empty": ((GOOD[0], b""), Truncated),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_split(name: str, tmp_path: Path) -> None:
    parts, error = BROKEN[name]
    paths = _split(tmp_path, *parts)
    with pytest.raises(FormatError) as caught:
        open_gguf(paths[0])
    assert type(caught.value) is error, caught.value
    assert not any(str(path) in Path("/proc/self/maps").read_text() for path in paths) or os.name != "posix"


@pytest.mark.parametrize("opened", [0, 1])
def test_missing_part_is_named(opened: int, tmp_path: Path) -> None:
    paths = _split(tmp_path, *GOOD)
    paths[1 - opened].unlink()
    with pytest.raises(Truncated, match=paths[1 - opened].name):
        open_gguf(paths[opened])


def test_renamed_part_says_what_its_name_must_be(tmp_path: Path) -> None:
    paths = _split(tmp_path, *GOOD)
    folder = tmp_path / "other"
    folder.mkdir()
    for name in ("model.gguf", "model-00002-of-00002.gguf", "model-00001-of-00003.gguf"):
        with pytest.raises(Unsupported, match="00001-of-00002"):
            open_gguf(shutil.copy(paths[0], folder / name))


def test_count_of_one_is_no_split(tmp_path: Path) -> None:
    path = tmp_path / "any name.gguf"
    path.write_bytes(_part(0, 1, TENSORS))
    with open_gguf(path) as file:
        assert len(file.tensors) == len(TENSORS)
