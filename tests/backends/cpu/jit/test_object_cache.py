"""Faults of the kernel cache: whatever lies there, it reads as right or as missing, and never as something else."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import BinaryIO

import pytest

from edgellm.backends.cpu.jit import cache as object_cache
from edgellm.backends.cpu.jit.cache import KEPT_FOLDERS, KEPT_OBJECTS, KernelObject, ObjectCache, sources_digest

ITEM = KernelObject("a_symbol", bytes(range(256)) * 8)


def test_round_trip_and_second_process_key(tmp_path: Path) -> None:
    ObjectCache("generic", tmp_path).write("norm:rms_norm", ITEM)
    assert ObjectCache("generic", tmp_path).read("norm:rms_norm") == ITEM
    assert ObjectCache("generic", tmp_path).read("norm:layer_norm") is None


def test_every_damage_reads_as_missing(tmp_path: Path) -> None:
    cache = ObjectCache("generic", tmp_path)
    cache.write("k:v", ITEM)
    path = cache._path("k:v")
    good, rng = path.read_bytes(), random.Random(7)
    for cut in (0, 1, 10, 20, 48, 60, len(good) - 1):
        path.write_bytes(good[:cut])
        assert cache.read("k:v") is None
    for _ in range(300):
        damaged = bytearray(good)
        damaged[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        assert cache.read("k:v") is None
    path.write_bytes(good)
    assert cache.read("k:v") == ITEM


def test_a_kernel_under_another_name_is_refused(tmp_path: Path) -> None:
    cache = ObjectCache("generic", tmp_path)
    cache.write("k:v", ITEM)
    os.rename(cache._path("k:v"), cache._path("k:w"))
    assert cache.read("k:w") is None


def test_object_of_another_user_key_is_refused(tmp_path: Path) -> None:
    foreign = ObjectCache("generic", tmp_path / "theirs")
    foreign.write("k:v", ITEM)
    mine = ObjectCache("generic", tmp_path / "mine")
    mine._path("k:v").write_bytes(foreign._path("k:v").read_bytes())
    assert mine.read("k:v") is None


@pytest.mark.parametrize("spoil", ["group-writable", "symlink", "file in the way"])
def test_folder_that_cannot_be_trusted_is_not_used(tmp_path: Path, spoil: str) -> None:
    base = tmp_path / "kernels"
    if spoil == "group-writable":
        base.mkdir()
        base.chmod(0o777)
    elif spoil == "symlink":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        base.symlink_to(tmp_path / "elsewhere")
    else:
        base.write_text("a file")
    cache = ObjectCache("generic", base)
    assert cache.note and base not in cache.folder.parents
    cache.write("k:v", ITEM)  # still works, for this process
    assert cache.read("k:v") == ITEM
    folder = cache.folder
    cache.close()
    assert not folder.exists()


def test_wrong_key_file_is_replaced(tmp_path: Path) -> None:
    ObjectCache("generic", tmp_path).write("k:v", ITEM)
    (tmp_path / "key").write_bytes(b"short")
    cache = ObjectCache("generic", tmp_path)
    assert cache.read("k:v") is None
    cache.write("k:v", ITEM)
    assert ObjectCache("generic", tmp_path).read("k:v") == ITEM


def test_files_are_the_users_own(tmp_path: Path) -> None:
    cache = ObjectCache("generic", tmp_path / "kernels")
    assert (tmp_path / "kernels").stat().st_mode & 0o777 == 0o700
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "kernels" / "key").stat().st_mode & 0o777 == 0o600


def test_old_folders_are_forgotten(tmp_path: Path) -> None:
    base = tmp_path / "kernels"
    for i in range(12):
        (base / f"old-{i}").mkdir(parents=True)
        os.utime(base / f"old-{i}", (i, i))
    base.chmod(0o700)
    ObjectCache("generic", base)
    kept = {path.name for path in base.iterdir() if path.name.startswith("old")}
    assert len(kept) == KEPT_FOLDERS - 1 and "old-11" in kept and "old-0" not in kept


def test_the_key_follows_every_source_that_kernels_take_constants_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel compiled for another layout of records, rings or activations would read and write anywhere."""
    import ast

    read: set[str] = set()

    def spy(path: str, mode: str) -> BinaryIO:
        read.add(os.path.realpath(path))
        return open(path, "rb")

    monkeypatch.setattr(object_cache, "open", spy, raising=False)
    package = Path(object_cache.__file__).resolve().parents[2]
    for kernel in (package / "backends/cpu").glob("kernels/*.py"):
        read.clear()
        object_cache._source.cache_clear()
        sources_digest.__wrapped__(kernel.stem)
        assert str(kernel) in read
        for node in ast.walk(ast.parse(kernel.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("edgellm"):
                home = package.parent / Path(*node.module.split("."))
                modules = [home / f"{alias.name}.py" for alias in node.names] if home.is_dir() else [home.with_suffix(".py")]
                assert all(str(path.resolve()) in read for path in modules if path.is_file()), (kernel.name, node.module)


def test_an_edit_compiles_again_what_it_concerns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = tmp_path / "edgellm/backends/cpu"
    shutil.copytree(object_cache.CPU, cpu)
    monkeypatch.setattr(object_cache, "CPU", cpu)
    monkeypatch.setattr(object_cache, "ROOT", tmp_path)

    def digests() -> dict[str, str]:
        object_cache._source.cache_clear()
        return {kernel.stem: sources_digest.__wrapped__(kernel.stem) for kernel in cpu.glob("kernels/[a-z]*.py")}

    def concerned(source: str) -> set[str]:
        before = digests()
        (cpu / source).write_text((cpu / source).read_text() + "\n")
        return {kernel for kernel, digest in digests().items() if digest != before[kernel]}

    assert len(set(digests().values())) == len(digests())
    assert concerned("plan.py") == set()
    assert "norm" in concerned("kernels/norm.py") and "embed" not in concerned("kernels/norm.py")
    assert {"attention", "kv_store"} <= concerned("kernels/kv_rows.py") < digests().keys()
    assert concerned("simd/avx2.py") == concerned("abi.py") | concerned("simd/avx2.py")


def test_a_program_without_sources_is_named_by_its_version_and_executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "CPU", tmp_path / "nowhere")
    program = tmp_path / "app"
    program.write_bytes(b"one")
    monkeypatch.setattr("sys.executable", str(program))

    def digest() -> str:
        object_cache._source.cache_clear()
        return sources_digest.__wrapped__("norm")

    first = digest()
    assert digest() == first
    seen = {first}
    monkeypatch.setattr("edgellm.__version__", "99.0")
    seen.add(digest())
    os.utime(program, (1, 1))
    seen.add(digest())
    program.write_bytes(b"other")
    os.utime(program, (1, 1))
    seen.add(digest())
    monkeypatch.setattr("sys.executable", "")
    seen.add(digest())
    assert len(seen) == 5


def test_old_objects_of_a_kernel_are_forgotten(tmp_path: Path) -> None:
    cache = ObjectCache("generic", tmp_path)
    for i in range(9):
        old = cache.folder / f"k.v.{i:016}.o"
        old.write_bytes(b"")
        os.utime(old, (i, i))
    (cache.folder / "k.vv.0.o").write_bytes(b"")
    cache.write("k:v", ITEM)
    left = sorted(path.name for path in cache.folder.glob("k.v.*"))
    assert len(left) == KEPT_OBJECTS and cache.read("k:v") == ITEM and (cache.folder / "k.vv.0.o").exists()
