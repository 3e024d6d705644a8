"""Weights that are read into memory instead of mapped, and weights that are locked there."""

from __future__ import annotations

import os
import re
import resource
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from tiny_models import tiny_model

import edgellm
from edgellm.backends import HOST
from edgellm.catalogue.machine import Memory
from edgellm.cli import app
from edgellm.formats import mapped
from edgellm.formats.errors import Truncated, Unreadable
from edgellm.formats.gguf import GGUFFile, open_gguf
from edgellm.formats.mapped import MappedFile
from edgellm.loading import estimate, weight_memory

GREEDY = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}
LOCKS = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/smaps")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "m.gguf")


def test_a_copy_has_the_same_bytes_and_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "PIECE", 1000)
    data, told = np.random.default_rng(0).bytes(5003), list[int]()
    (tmp_path / "file").write_bytes(data)
    file = MappedFile(tmp_path / "file")
    view = file.data[10:20]
    file.copy(told.append)
    assert file.data.tobytes() == data and not file.data.flags.writeable and file.copied
    assert told == [1000, 2000, 3000, 4000, 5000, 5003]
    file.drop(0, 5003)  # which would empty memory of its own
    (tmp_path / "file").write_bytes(b"something else")
    assert file.data.tobytes() == data and not file.changed()
    del view
    file.close()


def test_what_goes_wrong_while_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(9000))
    file = MappedFile(path)
    if sys.platform != "win32":  # which refuses to cut a file that is mapped
        os.truncate(path, 4000)
        with pytest.raises(Truncated, match="download it again"):
            file.copy()
    path.write_bytes(bytes(9000))
    with pytest.raises(Unreadable, match="written to while it was read"):
        file.copy(lambda done: os.utime(path, ns=(1, 1)))
    assert file.changed() and not file.copied
    file.close()

    def fails(*arguments: object, **options: object) -> int:
        raise OSError(5, "Input/output error")

    file = MappedFile(path)
    monkeypatch.setattr(mapped.io, "FileIO", type("Broken", (mapped.io.FileIO,), {"readinto": fails}))
    with pytest.raises(Unreadable, match="cannot be read: Input/output error"):
        file.copy()
    file.close()
    monkeypatch.undo()
    monkeypatch.setattr(mapped.mmap, "mmap", fails)
    file = object.__new__(MappedFile)
    file.size = 1 << 30
    with pytest.raises(MemoryError, match=r"1\.07 GB"):
        file.copy()


def test_the_same_answers_whatever_happens_to_the_file(path: Path) -> None:
    told = list[tuple[str, int, int]]()
    with edgellm.load(path) as model:
        tokens = model.generate([1, 2, 3], **GREEDY).token_ids
    size = path.stat().st_size
    with edgellm.load(path, mmap=False, progress=lambda what, done, of: told.append((what, done, of))) as model:
        assert ("reading the model into memory", size, size) in told
        os.truncate(path, 100)
        assert model.generate([1, 2, 3], **GREEDY).token_ids == tokens
        path.unlink()
        assert model.generate([1, 2, 3], **GREEDY).token_ids == tokens


def test_text_does_not_come_from_the_file_either(tmp_path: Path) -> None:
    """The guide's tokenizer and template are read when they are needed."""
    path = tmp_path / "guide.gguf"
    path.write_bytes((Path(edgellm.__file__).parent / "data" / "guide.gguf").read_bytes())
    question = [{"role": "user", "content": "How do I get a model?"}]
    with edgellm.load(path) as model:
        text = model.chat(question, max_tokens=20, temperature=0).text
    with edgellm.load(path, mmap=False) as model:
        os.truncate(path, 100)
        assert model.chat(question, max_tokens=20, temperature=0).text == text
        assert model.tokenizer.decode(model.tokenizer.encode("Rivers, mountains")) == "Rivers, mountains"


def test_progress_counts_bytes_of_files(tmp_path: Path) -> None:
    """Of which a header of each is a part, in a folder whose `nbytes` are those of its tensors."""
    (tmp_path / "file").write_bytes(bytes(300))
    folder, told = SimpleNamespace(files=[MappedFile(tmp_path / "file") for _ in range(2)], nbytes=500), list[tuple[int, int]]()
    weight_memory.hold(cast(GGUFFile, folder), copied=True, locked=False, progress=lambda what, done, of: told.append((done, of)))
    assert told == [(300, 600), (600, 600)]


def test_a_copy_counts_as_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_gguf(path) as gguf:
        enough = int(2 * (gguf.nbytes + estimate.AMPLE_WORK) / 0.9) + 2
        assert estimate.is_ample(gguf, 0, Memory(1 << 40, enough), copied=True)
        assert not estimate.is_ample(gguf, 0, Memory(1 << 40, enough - gguf.nbytes), copied=True)
        assert estimate.is_ample(gguf, 0, Memory(1 << 40, enough - gguf.nbytes))
    asked = list[estimate.Need]()
    monkeypatch.setattr(estimate, "is_ample", lambda gguf, kv, copied: False)
    monkeypatch.setattr(estimate, "check", lambda need, context, path: asked.append(need))
    for use_map in (True, False):
        edgellm.load(path, mmap=use_map).close()
    there, copied = asked
    assert copied.weights == 0 and (copied.kv, copied.work) == (there.kv, there.work + path.stat().st_size)


@LOCKS
@pytest.mark.parametrize("use_map", [True, False])
def test_locked_weights(path: Path, use_map: bool) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != resource.RLIM_INFINITY and soft < path.stat().st_size and os.geteuid():
        pytest.skip(f"ulimit -l allows {soft} bytes")
    with edgellm.load(path, mmap=use_map, mlock=True):
        regions = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    locked = {region: int(found[1]) for region in regions if (found := re.search(r"^Locked: +(\d+)", region, re.MULTILINE))}
    assert sum(locked.values()) >= path.stat().st_size // 1024
    assert any(str(path) in region and kilobytes for region, kilobytes in locked.items()) == use_map


@LOCKS
def test_memory_that_cannot_be_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = MappedFile.lock

    def lock_too_much(file: MappedFile) -> None:
        file.size = 1 << 46
        lock(file)

    monkeypatch.setattr(MappedFile, "lock", lock_too_much)
    with pytest.raises(edgellm.OptionError, match=r"cannot lock .* into memory \(Cannot allocate memory.*raise the limit"):
        edgellm.load(path, mlock=True)
    limits = {resource.RLIMIT_MEMLOCK: 8 * 10**6}
    monkeypatch.setattr(resource, "getrlimit", lambda what: (limits.get(what, resource.RLIM_INFINITY),) * 2)
    with pytest.raises(edgellm.OptionError, match="; ulimit -l allows 8 MB"):
        edgellm.load(path, mlock=True)


def test_options_that_are_not_possible(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(edgellm.OptionError, match="mmap=1 is not possible"):
        edgellm.load(path, mmap=1)  # type: ignore[arg-type]
    monkeypatch.setattr(type(HOST), "copies_weights", True)
    for option in ("--no-mmap", "--mlock"):
        assert app.run(["bench", str(path), "-p", "0", option]) == 2
        said = capsys.readouterr().err
        assert f"{option} is not possible with cpu, which copies weights" in said
        assert "=" not in said and "Traceback" not in said
