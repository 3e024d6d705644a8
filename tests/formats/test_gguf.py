"""Sound GGUF files: values, tensors, laziness, closing, and agreement with the `gguf` package."""

from __future__ import annotations

import math
import mmap
import os
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf_cases import KEYS, MAX64, STRING, TENSORS, U8, Tensor, array, gguf, number, string
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgellm.formats import gguf_values
from edgellm.formats.ggml_types import TYPES_BY_NAME, row_bytes
from edgellm.formats.gguf import GGUFFile, open_gguf
from edgellm.formats.gguf_values import StringArray

linux_only = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.gguf"
    path.write_bytes(gguf())
    return path


def test_values(base: Path) -> None:
    with open_gguf(base) as file:
        meta = file.metadata
        assert (file.version, file.alignment, file.path) == (3, 32, str(base))
        assert len(meta) == len(KEYS) and next(iter(meta)) == "general.architecture" and "nothing" not in meta
        assert meta["general.architecture"] == "llama"
        assert (meta["a.u8"], meta["a.i8"], meta["a.u16"], meta["a.i16"]) == (200, -5, 60000, -300)
        assert (meta["a.u32"], meta["a.i32"], meta["a.u64"], meta["a.i64"]) == (4_000_000_000, -70000, MAX64, -1 << 63)
        assert (meta["a.f32"], meta["a.f64"]) == (1.5, 0.1) and meta["a.bool"] is True
        assert meta["b.floats"].tolist() == [0.25, -2.0] and meta["b.floats"].dtype == np.float32
        assert meta["b.bools"].tolist() == [True, False] and meta["b.bools"].dtype == bool
        assert meta["b.i64"].tolist() == [-1] and len(meta["b.empty"]) == 0 and list(meta["b.empty"]) == []


def test_strings_are_a_sequence(base: Path) -> None:
    with open_gguf(base) as file:
        strings = file.metadata["b.strings"]
        expected = ["<s>", "", "wörd", "\ufffd\ufffd", "x" * 300]
        assert isinstance(strings, StringArray)
        assert list(strings) == expected and [strings[i] for i in range(5)] == expected
        assert strings[-1] == "x" * 300 and strings[1:3] == ["", "wörd"] and len(strings) == 5
        assert strings.raw(3) == b"\xff\xfe"
        for index in (5, -6):
            with pytest.raises(IndexError):
                strings[index]


def test_strings_across_batches(tmp_path: Path) -> None:
    words = [f"{'é' * (i % 7)}{i}" for i in range(10_000)]
    path = tmp_path / "words.gguf"
    path.write_bytes(gguf([array("words", STRING, [string(word) for word in words])]))
    with open_gguf(path) as file:
        assert list(file.metadata["words"]) == words
        for i in (0, 4095, 4096, 4097, 9999):
            assert file.metadata["words"][i] == words[i]
        assert _unpacked(file.metadata["words"]) == words


def test_long_strings_are_packed_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_values, "_BATCH_BYTES", 100)
    words = ["x" * n for n in (1, 500, 0, 30, 40, 200, 2, 91, 92, 93, 1)]
    path = tmp_path / "words.gguf"
    path.write_bytes(gguf([array("words", STRING, [string(word) for word in words])]))
    with open_gguf(path) as file:
        sizes = [int(lengths.sum()) for _, lengths in file.metadata["words"].packed()]
        assert _unpacked(file.metadata["words"]) == words and max(sizes) == 500 and len(sizes) > 6


@pytest.mark.parametrize("wrong", [b"\xff\xfe", b"\xc3", b"\xa9", b"a\xed\xa0\x80", b"\xf0\x9f\x98"])
def test_packed_strings_that_are_not_utf8(tmp_path: Path, wrong: bytes) -> None:
    """A character that is cut between two strings is none in either."""
    path = tmp_path / "words.gguf"
    raw = [b"", "é".encode(), wrong, b"\x80", b"", b"a", "\U0001f600".encode()]
    path.write_bytes(gguf([array("words", STRING, [string(word) for word in raw])]))
    with open_gguf(path) as file:
        assert _unpacked(file.metadata["words"]) == list(file.metadata["words"]) == [word.decode(errors="replace") for word in raw]


def test_tensors(base: Path) -> None:
    whole = base.read_bytes()
    with open_gguf(base) as file:
        assert list(file.tensors) == [str(tensor.name) for tensor in TENSORS]
        info = file.tensors["blk.0.attn_q.weight"]
        assert (info.shape, info.type.name, info.part, info.nbytes) == ((3, 32), "Q4_0", 0, 54)
        raw = file.raw("blk.0.attn_q.weight")
        assert raw.tobytes() == whole[info.offset : info.offset + 54] and raw.dtype == np.uint8
        assert not raw.flags.writeable
        with pytest.raises(KeyError):
            file.raw("nothing")


@linux_only
def test_arrays_outlive_the_file_and_do_not_keep_it(base: Path) -> None:
    file = open_gguf(base)
    floats, strings = file.metadata["b.floats"], file.metadata["b.strings"]
    file.close()
    file.close()
    assert floats.tolist() == [0.25, -2.0] and str(base) not in _maps()
    for action in (lambda: strings[0], lambda: file.raw("output_norm.weight"), lambda: file.metadata["b.floats"]):
        with pytest.raises(ValueError, match="closed"):
            action()


@linux_only
def test_close_with_views_alive_unmaps_when_they_die(base: Path) -> None:
    file = open_gguf(base)
    raw = file.raw("token_embd.weight")
    before = raw.tobytes()
    file.close()
    assert raw.tobytes() == before and str(base) in _maps()
    del raw
    assert str(base) not in _maps()


@linux_only
def test_refusal_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "short.gguf"
    path.write_bytes(gguf(cut=100))
    n_open = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(Exception, match="has"):
            open_gguf(path)
    assert str(path) not in _maps() and len(os.listdir("/proc/self/fd")) <= n_open


@linux_only
def test_opening_touches_no_tensor(tmp_path: Path) -> None:
    path = tmp_path / "large.gguf"
    head = gguf(tensors=[Tensor("w", (1024, 16384), 0, 64 << 20)])
    with path.open("wb") as out:
        out.write(head)
        out.truncate(65 << 20)
    with open_gguf(path) as file:
        assert file.raw("w").nbytes == 64 << 20
        assert _resident(str(path)) < 4 << 20  # read-around of the header's pages; the file has 65 MiB


def test_changed(base: Path) -> None:
    with open_gguf(base) as file:
        assert not file.changed()
        with base.open("ab") as out:
            out.write(b"more")
        assert file.changed()


def test_replaced_file_keeps_the_old_bytes(base: Path) -> None:
    with open_gguf(base) as file:
        before = file.raw("token_embd.weight").tobytes()
        other = base.with_suffix(".new")
        other.write_bytes(bytes(10))
        other.replace(base)
        assert file.raw("token_embd.weight").tobytes() == before and not file.changed()


def _maps() -> str:
    return Path("/proc/self/maps").read_text()


def _resident(path: str) -> int:
    lines = Path("/proc/self/smaps").read_text().splitlines()
    starts = [i for i, line in enumerate(lines) if line.endswith(path)]
    return sum(int(next(line for line in lines[i:] if line.startswith("Rss:")).split()[1]) << 10 for i in starts)


_SCALARS: dict[GGUFValueType, st.SearchStrategy[Any]] = {
    GGUFValueType.UINT8: st.integers(0, 2**8 - 1),
    GGUFValueType.INT8: st.integers(-(2**7), 2**7 - 1),
    GGUFValueType.UINT16: st.integers(0, 2**16 - 1),
    GGUFValueType.INT16: st.integers(-(2**15), 2**15 - 1),
    GGUFValueType.UINT32: st.integers(0, 2**32 - 1),
    GGUFValueType.INT32: st.integers(-(2**31), 2**31 - 1),
    GGUFValueType.UINT64: st.integers(0, 2**64 - 1),
    GGUFValueType.INT64: st.integers(-(2**63), 2**63 - 1),
    GGUFValueType.FLOAT32: st.floats(width=32, allow_nan=False),
    GGUFValueType.FLOAT64: st.floats(allow_nan=False),
    GGUFValueType.BOOL: st.booleans(),
    GGUFValueType.STRING: st.text(max_size=40),
}
_TEXT_KEYS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30).map(lambda key: "x." + key)


@st.composite
def _values(draw: st.DrawFn) -> tuple[Any, GGUFValueType, GGUFValueType | None]:
    kind = draw(st.sampled_from(list(_SCALARS)))
    if draw(st.booleans()):
        return draw(_SCALARS[kind]), kind, None
    return draw(st.lists(_SCALARS[kind], min_size=1, max_size=6)), GGUFValueType.ARRAY, kind


@st.composite
def _tensor_specs(draw: st.DrawFn) -> tuple[str, tuple[int, ...]]:
    kind = draw(st.sampled_from(["F32", "F16", "BF16", "F64", "I8", "I32", "Q4_0", "Q8_0", "Q6_K", "IQ2_XXS", "MXFP4"]))
    columns = TYPES_BY_NAME[kind].block * draw(st.integers(1, 3))
    return kind, (*draw(st.lists(st.integers(1, 3), max_size=3)), columns)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(_TEXT_KEYS, _values(), max_size=8),
    st.lists(_tensor_specs(), max_size=4),
    st.sampled_from([8, 16, 32, 64, 4096]),
    st.integers(0, 2**32 - 1),
)
def test_what_the_gguf_package_writes(
    tmp_path: Path, values: dict[str, Any], specs: list[tuple[str, tuple[int, ...]]], alignment: int, seed: int
) -> None:
    path = tmp_path / "written.gguf"
    random = np.random.default_rng(seed)
    data = [random.integers(0, 256, (*shape[:-1], row_bytes(TYPES_BY_NAME[kind], shape[-1])), np.uint8) for kind, shape in specs]
    _write(path, values, specs, data, alignment)
    with open_gguf(path) as file:
        assert file.alignment == alignment
        for name, (value, kind, item) in values.items():
            _assert_value(file.metadata[name], value, item or kind)
        for i, ((kind, shape), raw) in enumerate(zip(specs, data, strict=True)):
            info = file.tensors[f"t{i}"]
            ones = next((n for n, length in enumerate(shape[:-1]) if length != 1), len(shape) - 1) if len(shape) == 4 else 0
            assert (info.type.name, info.shape, info.nbytes) == (kind, shape[ones:], raw.nbytes)
            assert file.raw(f"t{i}").tobytes() == raw.tobytes()
        if all(len(shape) < 4 for _, shape in specs):  # of four dims the last are left out where they are 1
            _agree(file, path)


def _write(path: Path, values: dict[str, Any], specs: list[Any], data: list[Any], alignment: int) -> None:
    writer = GGUFWriter(path, "llama")
    writer.add_custom_alignment(alignment)
    for name, (value, kind, item) in values.items():
        writer.add_key_value(name, value, kind, item)
    for i, ((kind, _), raw) in enumerate(zip(specs, data, strict=True)):
        writer.add_tensor(f"t{i}", raw, raw_dtype=GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _assert_value(found: Any, value: Any, kind: GGUFValueType) -> None:
    if isinstance(value, list):
        found = list(found) if kind == GGUFValueType.STRING else found.tolist()
    assert found == value and type(found) is type(value)


def _agree(file: GGUFFile, path: Path) -> None:
    """The package's reader sees the same tensors at the same places."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = GGUFReader(path)
    assert [tensor.name for tensor in other.tensors] == list(file.tensors)
    for tensor in other.tensors:
        info = file.tensors[tensor.name]
        assert tensor.tensor_type.value == info.type.id
        assert (tensor.data_offset, tensor.n_bytes) == (info.offset, info.nbytes)
        assert tuple(int(n) for n in reversed(tensor.shape)) == info.shape
        assert tensor.n_elements == math.prod(info.shape)
    names = [name for name in other.fields if not name.startswith("GGUF.")]
    assert names == list(file.metadata)


def test_numeric_arrays_above_the_copy_limit_are_views(tmp_path: Path) -> None:
    path = tmp_path / "wide.gguf"
    n = (16 << 20) + 1
    path.write_bytes(gguf([array("wide", U8, [bytes(n - 1), number(U8, 7)], n)], []))
    with open_gguf(path) as file:
        wide = file.metadata["wide"]
        assert len(wide) == n and wide[-1] == 7 and isinstance(_owner(wide), mmap.mmap)


def _owner(value: Any) -> Any:
    while isinstance(value, np.ndarray | memoryview):
        value = value.base if isinstance(value, np.ndarray) else value.obj
    return value


def test_shared_models_agree_with_the_package(shared: Path) -> None:
    paths = sorted(shared.glob("conformance/*/*.gguf"))
    assert paths
    for path in paths:
        with open_gguf(path) as file:
            _agree(file, path)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to count open files")
def test_a_file_that_nobody_closes_is_closed_with_its_last_reference(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        open_gguf(path)
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def _unpacked(strings: StringArray) -> list[str]:
    out = []
    for data, lengths in strings.packed():
        ends = [0, *np.cumsum(lengths).tolist()]
        out += [data[start:end].tobytes().decode() for start, end in pairwise(ends)]
    return out
