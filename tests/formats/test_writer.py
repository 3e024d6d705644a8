"""GGUF files that we write: the `gguf` package, llama.cpp's rules and our own reader find in them what was put in."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType
from gguf_cases import gguf as gguf_bytes
from hf_checkpoints import write_checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import tiny_model

from edgellm.cli.app import run
from edgellm.formats.errors import BadAlignment, BadHParam, BadTensorInfo, Duplicate, FormatError, LimitExceeded, Unwritable
from edgellm.formats.ggml_types import TYPES, TYPES_BY_NAME
from edgellm.formats.gguf import open_gguf
from edgellm.formats.gguf_values import SCALARS
from edgellm.formats.writer import GGUFWriter, NewTensor, part_path

F32, F16, Q8_0, Q4_K = (TYPES_BY_NAME[name] for name in ("F32", "F16", "Q8_0", "Q4_K"))
METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "a.u8": np.uint8(200),
    "a.i8": np.int8(-5),
    "a.u16": np.uint16(60000),
    "a.i16": np.int16(-300),
    "a.u32": np.uint32(4_000_000_000),
    "a.i32": np.int32(-70000),
    "a.f32": np.float32(1.5),
    "a.bool": True,
    "a.u64": np.uint64(2**64 - 1),
    "a.i64": np.int64(-(2**63)),
    "a.f64": np.float64(0.1),
    "python.int": 7,
    "python.negative": -7,
    "python.large": 2**40,
    "python.float": 0.25,
    "python.bytes": b"\xff\xfe",
    "b.strings": ["<s>", "", "wörd", b"\xff", "x" * 300],
    "b.ints": [1, -2],
    "b.long": [2**40],
    "b.floats": [0.5, -2.0],
    "b.bools": [True, False],
    "b.array": np.array([1, 2, 3], np.uint16),
    "b.empty": np.array([], np.int32),
    "b.none": [],
}
TENSORS = [
    NewTensor("token_embd.weight", (3, 64), F32),
    NewTensor("odd", (7,), F16),
    NewTensor("none", (0, 32), Q8_0),
    NewTensor("blk.0.w", (2, 5, 256), Q4_K),
    NewTensor("blk.1.w", (9, 32), Q8_0),
    NewTensor("scalar", (), F32),
]


def data_of(tensor: NewTensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(len(tensor.name)).integers(0, 256, tensor.nbytes, np.uint8)


def write(path: Path, metadata: dict[str, Any] = METADATA, tensors: list[NewTensor] = TENSORS, **split: int) -> GGUFWriter:
    with GGUFWriter(path, metadata, tensors, **split) as writer:
        for tensor in tensors:
            writer.write(tensor.name, data_of(tensor)[:4].copy())
            writer.write(tensor.name, data_of(tensor)[4:])
    return writer


def check_tensors(path: str | Path) -> None:
    with open_gguf(path) as file:
        assert [(t.name, t.shape, t.type) for t in file.tensors.values()] == [(t.name, t.shape, t.type) for t in TENSORS]
        for tensor in TENSORS:
            assert np.array_equal(file.raw(tensor.name), data_of(tensor))


def test_our_reader_finds_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "new.gguf"
    assert write(path).paths == (str(path),)
    assert os.listdir(tmp_path) == ["new.gguf"]
    check_tensors(path)
    with open_gguf(path) as file:
        assert list(file.metadata) == list(METADATA)
        for key, value in METADATA.items():
            read = file.metadata[key]
            if key == "b.strings":
                assert [read.raw(i) for i in range(5)] == [s.encode() if isinstance(s, str) else s for s in value]
            elif key == "python.bytes":
                assert read == "\ufffd\ufffd"
            elif key.startswith("b."):
                assert list(read) == list(value)
            else:
                assert read == value


def test_the_gguf_package_finds_what_was_written(tmp_path: Path) -> None:
    metadata = {key: value for key, value in METADATA.items() if key not in ("python.bytes", "b.strings", "b.empty", "b.none")}
    tensors = [t for t in TENSORS if t.shape and t.nbytes]
    write(tmp_path / "new.gguf", metadata, tensors)
    reader = GGUFReader(tmp_path / "new.gguf")
    for key, value in metadata.items():
        read = reader.fields[key].contents()
        assert read == (value.tolist() if isinstance(value, np.ndarray) else value)
    types = {key: reader.fields[key].types[-1].name for key in metadata}
    expected = {
        "a.u8": "UINT8",
        "a.i8": "INT8",
        "a.u16": "UINT16",
        "a.i16": "INT16",
        "a.u32": "UINT32",
        "a.i32": "INT32",
        "a.f32": "FLOAT32",
        "a.bool": "BOOL",
        "a.u64": "UINT64",
        "a.i64": "INT64",
        "a.f64": "FLOAT64",
        "python.int": "UINT32",
        "python.negative": "INT32",
        "python.large": "UINT64",
        "python.float": "FLOAT32",
        "b.ints": "INT32",
        "b.long": "INT64",
        "b.floats": "FLOAT32",
        "b.bools": "BOOL",
        "b.array": "UINT16",
    }
    assert {key: types[key] for key in expected} == expected and GGUFValueType.UINT8.name == "UINT8"
    for read, tensor in zip(reader.tensors, tensors, strict=True):
        assert (read.name, read.shape.tolist(), int(read.tensor_type)) == (tensor.name, list(tensor.shape[::-1]), tensor.type.id)
        assert np.array_equal(read.data.reshape(-1).view(np.uint8), data_of(tensor))


def test_a_copy_is_the_same_file_byte_for_byte(tmp_path: Path) -> None:
    source, copy = tmp_path / "source.gguf", tmp_path / "copy.gguf"
    source.write_bytes(gguf_bytes())
    with open_gguf(source) as file:
        tensors = [NewTensor(t.name, t.shape, t.type) for t in file.tensors.values()]
        with GGUFWriter(copy, file.typed_metadata(), tensors) as writer:
            for tensor in tensors:
                writer.write(tensor.name, file.raw(tensor.name))
    assert copy.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_alignment(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "new.gguf"
    write(path, METADATA | {"general.alignment": alignment})
    check_tensors(path)
    with open_gguf(path) as file:
        assert file.alignment == alignment and all(t.offset % alignment == 0 for t in file.tensors.values())


@pytest.mark.parametrize(
    ("split", "counts"),
    [
        ({"split_tensors": 2}, [2, 2, 2]),
        ({"split_tensors": 4}, [4, 2]),
        ({"split_bytes": 800}, [3, 1, 2]),
        ({"split_bytes": 1}, [1] * 6),
        ({"split_bytes": 1 << 30}, [6]),
    ],
)
def test_split_files(tmp_path: Path, split: dict[str, int], counts: list[int]) -> None:
    paths = write(tmp_path / "new.gguf", **split).paths
    assert [Path(p).name for p in paths] == [f"new-{k + 1:05d}-of-{len(counts):05d}.gguf" for k in range(len(counts))]
    assert sorted(os.listdir(tmp_path)) == [Path(p).name for p in paths]
    for k, path in enumerate(paths):
        check_tensors(path)
        reader = GGUFReader(path)
        assert len(reader.tensors) == counts[k]
        assert [reader.fields[key].contents() for key in ("split.no", "split.count", "split.tensors.count")] == [
            k,
            len(counts),
            len(TENSORS),
        ]
        assert [reader.fields[key].types[0].name for key in ("split.no", "split.count", "split.tensors.count")] == [
            "UINT16",
            "UINT16",
            "INT32",
        ]
        assert ("general.architecture" in reader.fields) == (k == 0)


_BOUNDS = {np.dtype(layout.format): np.iinfo(layout.format) for layout in SCALARS.values() if layout.format[1] in "bBhHiIqQ"}
_SCALARS = st.one_of(
    *(st.integers(int(info.min), int(info.max)).map(dtype.type) for dtype, info in _BOUNDS.items()),
    st.booleans(),
    st.floats(allow_nan=False).map(np.float64),
    st.floats(width=32, allow_nan=False).map(np.float32),
    st.binary(max_size=40),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
_ARRAYS = st.one_of(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=9),
    *(
        st.lists(st.integers(int(info.min), int(info.max)), max_size=9).map(lambda items, dtype=dtype: np.array(items, dtype))
        for dtype, info in _BOUNDS.items()
    ),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    metadata=st.dictionaries(
        st.text("abc.é", min_size=1, max_size=30).map(lambda key: "k" + key), st.one_of(_SCALARS, _ARRAYS), max_size=8
    )
)
def test_any_metadata_comes_back(tmp_path: Path, metadata: dict[str, Any]) -> None:
    path = tmp_path / "new.gguf"
    write(path, metadata, [])
    with open_gguf(path) as file:
        again = file.typed_metadata()
        assert list(again) == list(metadata)
        for key, value in metadata.items():
            if isinstance(value, list):
                assert list(again[key]) == value
            elif isinstance(value, np.ndarray):
                assert again[key].dtype == value.dtype and np.array_equal(again[key], value)
            else:
                raw = value.encode() if isinstance(value, str) else np.bool_(value) if isinstance(value, bool) else value
                assert again[key] == raw and type(again[key]) is type(raw)


@pytest.mark.parametrize(
    ("error", "metadata", "tensors"),
    [
        (Duplicate, {}, [TENSORS[0], TENSORS[0]]),
        (BadTensorInfo, {}, [NewTensor("x" * 64, (1,), F32)]),
        (BadTensorInfo, {}, [NewTensor("", (1,), F32)]),
        (BadTensorInfo, {}, [NewTensor("x", (1, 1, 1, 1, 1), F32)]),
        (BadTensorInfo, {}, [NewTensor("x", (2, 33), Q8_0)]),
        (BadTensorInfo, {}, [NewTensor("x", (2, 32), TYPES[36])]),
        (BadAlignment, {"general.alignment": 24}, []),
        (BadHParam, {"k": object()}, []),
        (BadHParam, {"k": [1, "a"]}, []),
        (BadHParam, {"k": np.zeros((2, 2))}, []),
        (BadHParam, {"k": np.complex64(1)}, []),
        (BadHParam, {"": 1}, []),
        (BadHParam, {"k" * 65536: 1}, []),
        (BadHParam, {"k": "\ud800"}, []),
        (LimitExceeded, {}, [NewTensor(f"t{i}", (1,), F32) for i in range(1025)]),
    ],
)
def test_what_gguf_cannot_hold_is_refused(
    tmp_path: Path, error: type[FormatError], metadata: dict[str, Any], tensors: list[NewTensor]
) -> None:
    with pytest.raises(error):
        write(tmp_path / "new.gguf", metadata, tensors, split_tensors=1)
    assert not os.listdir(tmp_path)


def test_wrong_bytes_leave_no_file(tmp_path: Path) -> None:
    path = tmp_path / "new.gguf"
    path.write_bytes(b"what was there")
    first, second = NewTensor("a", (4,), F32), NewTensor("b", (4,), F32)
    for calls in (
        [("b", 16)],
        [("a", 17)],
        [("a", 16), ("a", 1)],
        [("a", 16)],
        [],
        [("a", 16), ("b", 15)],
        [("a", 16), ("b", 16), ("c", 1)],
    ):
        with (
            pytest.raises(ValueError, match=r"comes next|more bytes|not complete"),
            GGUFWriter(path, {}, [first, second]) as writer,
        ):
            for name, n in calls:
                writer.write(name, bytes(n))
        assert os.listdir(tmp_path) == ["new.gguf"] and path.read_bytes() == b"what was there"


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "no" / "new.gguf", "/dev/null"):
        with pytest.raises(Unwritable, match=r"regular file|cannot be written"):
            write(Path(place))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unwritable):
        write(tmp_path / "file" / "new.gguf")


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """And leaves nothing of it."""
    (tmp_path / "text.txt").write_text("a b c " * 200)
    source, out = tiny_model(tmp_path / "m.gguf", tokenizer="spm"), tmp_path / "new.gguf"
    monkeypatch.setattr(os, "write", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    assert run(["quantize", str(source), str(out), "Q8_0"]) == 3
    assert f"error: {out} cannot be written: {os.strerror(errno.ENOSPC)}; make room" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["m.gguf", "text.txt"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of files' sizes")
@pytest.mark.parametrize(
    ("arguments", "room"),
    [
        (["quantize", "m.gguf", "new.gguf", "Q8_0"], 4096),
        (["convert", "hf", "new.gguf"], 4096),
        (["convert", "hf", "new.gguf"], 40_000),
        (["import", "m.gguf", "travel", "--copy"], 4096),
        (["imatrix", "m.gguf", "text.txt", "new.gguf"], 256),
        (["embed", "m.gguf", "text.txt", "--pooling", "mean", "--output", "new.npy"], 64),
    ],
)
def test_a_disk_that_fills_up_leaves_no_half_file(
    arguments: list[str], room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The system's own limit, which stops a write where a full disk would: behind its first bytes."""
    import resource

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "text.txt").write_text("a b c\n" * 200)
    tiny_model(tmp_path / "m.gguf", tokenizer="spm")
    write_checkpoint(tmp_path / "hf", "llama")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        code = run(arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    said = capsys.readouterr().err
    assert code == 3 and os.strerror(errno.EFBIG) in said and said.count("error:") == 1, said
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert run(arguments) == 0, "with room it goes well"


def test_places_are_looked_at_before_long_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, source, out = tmp_path / "text.txt", tiny_model(tmp_path / "m.gguf", tokenizer="spm"), tmp_path / "no" / "new.gguf"
    text.write_text("a b c " * 200)
    for work in ("imatrix.measure", "target.choose_for_size"):
        monkeypatch.setattr(f"edgellm.tools.{work}", Mock(side_effect=AssertionError))
    for command in (
        ["imatrix", str(source), str(text), str(out)],
        ["quantize", str(source), str(out), "--target", "6", "--calibrate", str(text)],
    ):
        assert run(command) == 3 and f"error: {out}: cannot be written" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="locks are flock's")
def test_two_runs_do_not_write_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "new.gguf"
    with GGUFWriter(path, {}, []), pytest.raises(Unwritable, match="another program"):
        write(path)
    write(path)  # the first is done: its lock is gone
    check_tensors(path)


def test_a_link_is_followed(tmp_path: Path) -> None:
    real, link = tmp_path / "real.gguf", tmp_path / "link.gguf"
    real.write_bytes(b"old")
    link.symlink_to(real)
    write(link)
    assert link.is_symlink()
    check_tensors(real)


KILLED = """
import sys
from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.writer import GGUFWriter, NewTensor
tensors = [NewTensor(f"t{i}", (4, 64), TYPES_BY_NAME["F32"]) for i in range(5)]
print("ready", flush=True)
while True:
    with GGUFWriter(sys.argv[1], {"general.name": "x" * 1000}, tensors) as writer:
        for tensor in tensors:
            for _ in range(4):
                writer.write(tensor.name, b"7" * 256)
    print("done", flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_sigkill_never_leaves_half_a_file_under_the_name(tmp_path: Path) -> None:
    path, source, whole = tmp_path / "new.gguf", np.random.default_rng(3), 0
    for k in range(25):
        path.unlink(missing_ok=True)
        child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        if k % 5 == 4:  # also where none is written within the time that follows
            assert child.stdout.readline() == b"done\n"
        time.sleep(source.uniform(0, 0.02))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert set(os.listdir(tmp_path)) <= {"new.gguf", "new.gguf.part"}
        if path.exists():
            whole += 1
            with open_gguf(path) as file:
                assert [bytes(file.raw(f"t{i}")) for i in range(5)] == [b"7" * 1024] * 5
    assert whole >= 5


def test_part_names() -> None:
    assert part_path("a/m.gguf", 0, 3) == "a/m-00001-of-00003.gguf" and part_path("m", 2, 3) == "m-00003-of-00003.gguf"
