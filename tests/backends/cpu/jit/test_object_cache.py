"""Faults of the kernel cache: whatever lies there, it reads as right or as missing, and never as something else."""

from __future__ import annotations

import ast
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from edgellm.backends.cpu.jit import build, sources
from edgellm.backends.cpu.jit.cache import KEPT_FOLDERS, KEPT_OBJECTS, KernelObject, ObjectCache
from edgellm.backends.cpu.jit.linker import Linker
from edgellm.backends.cpu.jit.sources import sources_digest
from edgellm.errors import BackendError

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


def forget_sources() -> None:
    for function in vars(sources).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def test_the_key_follows_every_source_that_kernels_take_constants_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel compiled for another layout of records, rings or activations would read and write anywhere."""
    read: set[str] = set()

    def spy(path: str, mode: str) -> BinaryIO:
        read.add(os.path.realpath(path))
        return open(path, "rb")

    monkeypatch.setattr(sources, "open", spy, raising=False)
    package = Path(sources.__file__).resolve().parents[3]
    for kernel in (package / "backends/cpu").glob("kernels/*/[a-z]*.py"):
        read.clear()
        forget_sources()
        sources_digest(kernel.stem)
        assert str(kernel) in read
        for node in ast.walk(ast.parse(kernel.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("edgellm"):
                home = package.parent / Path(*node.module.split("."))
                modules = [home / f"{alias.name}.py" for alias in node.names] if home.is_dir() else [home.with_suffix(".py")]
                assert all(str(path.resolve()) in read for path in modules if path.is_file()), (kernel.name, node.module)
    forget_sources()


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the back end whose sources can be edited, and whose digests are asked for."""
    cpu = tmp_path / "edgellm/backends/cpu"
    shutil.copytree(sources.CPU, cpu)
    monkeypatch.setattr(sources, "CPU", cpu)
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    yield cpu
    forget_sources()


def digests(cpu: Path) -> dict[str, str]:
    forget_sources()
    kernels = [source.stem for source in cpu.glob("kernels/*/*.py") if "def build(" in source.read_text()]
    assert len(kernels) == len(set(kernels)), "a kernel is found by the name of its module"
    return {kernel: sources_digest(kernel) for kernel in kernels}


def concerned(cpu: Path, source: str, old: str = "", new: str = "\nMORE = 1\n") -> set[str]:
    """The kernels whose digests an edit changes: `old` becomes `new`, or `new` is appended."""
    before, text = digests(cpu), (cpu / source).read_text()
    assert old in text
    (cpu / source).write_text(text.replace(old, new) if old else text + new)
    return {kernel for kernel, digest in digests(cpu).items() if digest != before[kernel]}


def test_an_edit_compiles_again_what_it_concerns(copied: Path) -> None:
    kernels = digests(copied)
    assert len(set(kernels.values())) == len(kernels)
    assert concerned(copied, "plan.py") == set()
    assert "norm" in concerned(copied, "kernels/rowwise/norm.py") and "embed" not in concerned(copied, "kernels/rowwise/norm.py")
    assert {"attention", "kv_store"} <= concerned(copied, "kernels/attention/kv_rows.py") < kernels.keys()
    assert concerned(copied, "simd/avx2.py") == kernels.keys()
    assert concerned(copied, "abi.py") == set()
    assert concerned(copied, "abi.py", "FIRST_ARGUMENT: Final = 2", "FIRST_ARGUMENT: Final = 3") >= {"norm", "attention"}
    assert concerned(copied, "jit/compiler.py") == kernels.keys()


def test_an_edit_of_a_signature_compiles_the_kernels_again_that_read_it(copied: Path) -> None:
    assert concerned(copied, "ops/rwkv.py", '"r r_stride w w_stride k', '"w w_stride r r_stride k') == {"wkv6", "wkv7"}
    assert concerned(copied, "kernels/rowwise/altup.py", '"parts", "offset"', '"offset", "parts"') == {"altup"}
    assert concerned(copied, "ops/recurrent.py", "CONV = Signature(", "CONV = Signature('' ") == {"conv"}
    biases = concerned(copied, "ops/attention.py", "RELATIVE_FIRST: Final = 144", "RELATIVE_FIRST: Final = 160")
    assert biases == {"attention", "attention_block"}
    products = concerned(copied, "ops/dense.py", '"weights row_bytes n k', '"weights k row_bytes n')
    assert {"matmul", "matmul_float", "experts", "heads"} <= products and not products & {"norm", "attention", "wkv7", "conv"}
    for family in ("dense", "attention", "moe", "recurrent", "heads"):
        assert concerned(copied, f"ops/{family}.py", "plan.add(", "print() or plan.add(") == set(), "an emitter is no kernel's"
        assert concerned(copied, f"ops/{family}.py", "\n@emitter", "# about it\n\n@emitter") == set()
    assert concerned(copied, "record.py", "class Signature:", "class Signature:\n    kind = 1\n") >= {"norm", "wkv7", "lap"}


def test_sources_are_cut_into_statements_as_python_cuts_them() -> None:
    """A definition that ended too soon would leave out what a kernel is made of."""
    forget_sources()
    for kernel in sources.CPU.glob("kernels/*/[a-z]*.py"):
        sources_digest(kernel.stem)
    todo, seen = [(str(kernel), "") for kernel in sources.CPU.glob("kernels/*/[a-z]*.py")], set[tuple[str, str]]()
    while todo:
        definition = todo.pop()
        if definition not in seen:
            seen.add(definition)
            todo += sources._read(*definition)[1]
    cut = {path for path, name in seen if name}
    assert len(cut) > 10 and (str(sources.CPU / "ops/dense.py"), "MATMUL") in seen
    for path in cut:
        found, wanted = sources._definitions(path), dict[str, set[str]]()
        for statement in ast.parse(Path(path).read_text()).body:
            names = set[str]()
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                names = {statement.name}
            elif isinstance(statement, ast.Assign | ast.AnnAssign):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                names = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
            for name in names:
                wanted.setdefault(name, set()).add(ast.dump(statement))
        for name, statements in wanted.items():
            assert {ast.dump(each) for each in ast.parse(found[name]).body} == statements, (path, name)


def test_a_program_without_sources_is_named_by_its_version_and_executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "CPU", tmp_path / "nowhere")
    program = tmp_path / "app"
    program.write_bytes(b"one")
    monkeypatch.setattr("sys.executable", str(program))

    def digest() -> str:
        forget_sources()
        return sources_digest("norm")

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
    forget_sources()


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


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for Python")
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("read kernel; printf 'symbol 00ff'", "ended without an answer"),
        ("exit 1", "compiler process"),
        ("read kernel; echo symbol no hexadecimal digits", "failed"),
        ("read kernel; echo '! TypeError: cannot'", "TypeError: cannot"),
        (None, "failed"),
        ("read kernel; exec sleep 3", "no kernel was compiled"),
    ],
)
def test_a_compiler_that_fails_is_an_error(script: str | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(build, "LONGEST", 0.5 if "sleep" in (script or "") else 30)
    with pytest.raises(BackendError, match=says):
        list(build._compile(["norm:a", "norm:b", "norm:c"], "generic"))


def test_a_cache_that_cannot_be_used_is_said_before_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compiling takes a minute or more at each start then: what a user sees first says so, and what to set."""
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("EDGELLM_CACHE", str(tmp_path / "file"))
    reached = list[str]()

    def compiled(kernels: list[str], isa: str) -> Iterator[tuple[str, KernelObject]]:
        reached.extend(kernels)
        raise BackendError("no compiler here")
        yield

    monkeypatch.setattr(build, "_compile", compiled)
    with (
        pytest.warns(RuntimeWarning, match=r"compiled at each start; set EDGELLM_CACHE to a folder that can be written"),
        pytest.raises(BackendError),
    ):
        build.kernel_addresses(["norm:rms_norm"], "generic", Linker())
    assert reached == ["norm:rms_norm"]
