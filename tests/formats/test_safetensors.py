"""safetensors files and sharded folders: values, strictness, and typed errors for malformed ones."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_cases import mutate
from seeds import seed

from edgellm.formats.errors import (
    BadHParam,
    BadMagic,
    BadTensorInfo,
    BadType,
    Duplicate,
    FormatError,
    LimitExceeded,
    Truncated,
    Unreadable,
    Unsupported,
)
from edgellm.formats.safetensors import DTYPE_BYTES, INDEX, SINGLE, open_safetensors

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.array([1, -2, 300], np.int16)
BITS = np.array([0x3F80, 0xC040], np.uint16)  # 1.0 and -3.0 in BF16


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HEADER = {
    "__metadata__": {"format": "pt"},
    "b": entry("I16", [3], 24, 30),
    "a": entry("F32", [2, 3], 0, 24),
    "c": entry("BF16", [2], 30, 34),
    "none": entry("F16", [0, 4], 34, 34),
    "one": entry("U8", [], 34, 35),
}
DATA = A.tobytes() + B.tobytes() + BITS.tobytes() + b"\x07"


def safetensors(header: Any = HEADER, data: bytes = DATA, length: int | None = None, pad: int = 0) -> bytes:
    text = (header if isinstance(header, bytes) else json.dumps(header).encode()) + b" " * pad
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def _changed(name: str, **changes: Any) -> bytes:
    return safetensors({**HEADER, name: {**HEADER[name], **changes}})


def test_values(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(safetensors(pad=5))
    with open_safetensors(path) as file:
        assert list(file.tensors) == ["b", "a", "c", "none", "one"] and file.metadata == {"format": "pt"}
        assert np.array_equal(file.array("a"), A) and np.array_equal(file.array("b"), B)
        assert file.array("c").tolist() == [1.0, -3.0] and file.array("c").dtype == np.float32
        assert file.array("none").shape == (0, 4) and file.array("one").shape == () and file.array("one") == 7
        assert file.raw("c").tobytes() == BITS.tobytes() and not file.array("a").flags.writeable
        assert (file.tensors["b"].dtype, file.tensors["b"].shape, file.tensors["b"].nbytes) == ("I16", (3,), 6)
        with pytest.raises(KeyError):
            file.raw("nothing")


@pytest.mark.parametrize("dtype", DTYPE_BYTES)
def test_every_dtype(dtype: str, tmp_path: Path) -> None:
    size, path = DTYPE_BYTES[dtype], tmp_path / "m.safetensors"
    path.write_bytes(safetensors({"x": entry(dtype, [4], 0, 4 * size)}, bytes(4 * size)))
    with open_safetensors(path) as file:
        assert file.raw("x").nbytes == 4 * size
        if dtype.startswith("F8"):
            with pytest.raises(Unsupported, match=dtype):
                file.array("x")
        else:
            assert file.array("x").shape == (4,) and not file.array("x").any()


CASES: dict[str, tuple[bytes, type[FormatError]]] = {
    "empty": (b"", Truncated),
    "seven-bytes": (bytes(7), Truncated),
    "length-only": (bytes(8), BadHParam),
    "no-brace": (safetensors(b"[1]"), BadMagic),
    "gguf": (b"GGUF" + bytes(60), BadMagic),
    "length-max": (safetensors(length=(1 << 64) - 1), LimitExceeded),
    "length-too-long": (safetensors(length=9999), Truncated),
    "length-too-short": (safetensors(length=20), BadHParam),
    "no-json": (safetensors(b"{a:1}"), BadHParam),
    "no-utf8": (safetensors(b'{"\xff":1}'), BadHParam),
    "nan": (safetensors(b'{"a":NaN}'), BadHParam),
    "surrogate": (safetensors(b'{"\\ud800":1}'), BadHParam),
    "many-digits": (safetensors(b'{"a":' + b"9" * 5000 + b"}"), BadHParam),
    "deep": (safetensors(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), LimitExceeded),
    "deep-objects": (safetensors(b'{"a":' * 50_000 + b"1" + b"}" * 50_000), LimitExceeded),
    "many-values": (safetensors(b'{"a":[' + b"1," * (1 << 22) + b"1]}"), LimitExceeded),
    "many-lists": (safetensors(b'{"a":[' + b"[]," * (1 << 19) + b"1]}"), LimitExceeded),
    "duplicate": (safetensors(b'{"a":1,"a":1}'), Duplicate),
    "metadata-number": (safetensors({"__metadata__": {"a": 1}}, b""), BadHParam),
    "metadata-list": (safetensors({"__metadata__": []}, b""), BadHParam),
    "entry-number": (safetensors({"a": 1}, b""), BadTensorInfo),
    "entry-lacks": (safetensors({"a": {"dtype": "F32"}}), BadTensorInfo),
    "entry-extra": (_changed("a", more=1), BadTensorInfo),
    "dtype-unknown": (_changed("a", dtype="F7"), BadType),
    "dtype-number": (_changed("a", dtype=3), BadType),
    "shape-negative": (_changed("a", shape=[-2, -3]), BadTensorInfo),
    "shape-float": (_changed("a", shape=[2.0, 3]), BadTensorInfo),
    "shape-bool": (_changed("one", shape=[True]), BadTensorInfo),
    "shape-huge": (_changed("a", shape=[1 << 62, 1 << 62]), BadTensorInfo),
    "shape-2^63": (_changed("a", shape=[1 << 63]), BadTensorInfo),
    "shape-dims": (_changed("one", shape=[1] * 9), BadTensorInfo),
    "shape-differs": (_changed("a", shape=[2, 4]), BadTensorInfo),
    "offsets-one": (_changed("a", data_offsets=[0]), BadTensorInfo),
    "offsets-back": (_changed("a", data_offsets=[24, 0]), BadTensorInfo),
    "gap": (safetensors({"a": entry("F32", [2, 3], 4, 28)}, bytes(28)), BadTensorInfo),
    "overlap": (_changed("b", data_offsets=[20, 26]), BadTensorInfo),
    "tail": (safetensors(data=DATA + b"x"), BadTensorInfo),
    "data-short": (safetensors(data=DATA[:-1]), Truncated),
    "data-missing": (safetensors(data=b""), Truncated),
}


@pytest.mark.parametrize("name", CASES)
def test_malformed(name: str, tmp_path: Path) -> None:
    data, error = CASES[name]
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(FormatError) as caught:
        open_safetensors(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert type(caught.value) is error, caught.value
    assert str(path) in str(caught.value) and peak < 64 << 20


def test_every_cut_is_refused(tmp_path: Path) -> None:
    whole, path = safetensors(), tmp_path / "m.safetensors"
    for n in range(len(whole)):
        path.write_bytes(whole[:n])
        with pytest.raises(FormatError):
            open_safetensors(path)


def test_random_mutations(tmp_path: Path) -> None:
    chosen = seed(1072)
    source, path, refused = random.Random(chosen), tmp_path / "m.safetensors", 0
    for i in range(1000):
        path.write_bytes(mutate(safetensors(), source))
        try:
            with open_safetensors(path) as file:
                assert sum(file.raw(name).nbytes for name in file.tensors) < 1000
        except FormatError:
            refused += 1
        except BaseException as error:
            raise AssertionError(f"seed {chosen}, mutation {i}: {error!r}") from error
    assert 500 < refused < 1000, f"seed {chosen}: the mutations or the reader do nothing"


def _folder(folder: Path, index: Any, shards: dict[str, bytes]) -> Path:
    for name, data in shards.items():
        (folder / name).write_bytes(data)
    (folder / INDEX).write_text(index if isinstance(index, str) else json.dumps(index))
    return folder


ONE = {
    "1.safetensors": safetensors({"a": entry("F32", [2, 3], 0, 24)}, A.tobytes()),
    "2.safetensors": safetensors({"b": entry("I16", [3], 0, 6)}, B.tobytes()),
}
MAP = {"a": "1.safetensors", "b": "2.safetensors"}


def test_single_file_folder(tmp_path: Path) -> None:
    (tmp_path / SINGLE).write_bytes(safetensors())
    with open_safetensors(tmp_path) as file:
        assert np.array_equal(file.array("a"), A)


def test_sharded_folder(tmp_path: Path) -> None:
    with open_safetensors(_folder(tmp_path, {"metadata": {"total_size": 30}, "weight_map": MAP}, ONE)) as file:
        assert np.array_equal(file.array("a"), A) and np.array_equal(file.array("b"), B)
        assert (file.tensors["a"].part, file.tensors["b"].part) == (0, 1)
        assert [Path(path).name for path in file.paths] == ["1.safetensors", "2.safetensors"]


def test_a_single_file_counts_more_than_an_index_without_it(tmp_path: Path) -> None:
    folder = _folder(tmp_path, {"weight_map": {"x": "model-00001-of-00002.safetensors"}}, {SINGLE: safetensors()})
    with open_safetensors(folder) as file:
        assert [Path(path).name for path in file.paths] == [SINGLE] and np.array_equal(file.array("a"), A)


FOLDERS: dict[str, tuple[Any, dict[str, bytes], type[FormatError]]] = {
    "shard-missing": ({"weight_map": MAP}, {"1.safetensors": ONE["1.safetensors"]}, Unreadable),
    "tensor-missing": ({"weight_map": {**MAP, "c": "1.safetensors"}}, ONE, BadTensorInfo),
    "tensor-not-in-the-index": ({"weight_map": {"a": "1.safetensors"}}, {"1.safetensors": safetensors()}, BadTensorInfo),
    "tensor-twice": ({"weight_map": {**MAP, "c": "3.safetensors"}}, {**ONE, "3.safetensors": ONE["1.safetensors"]}, Duplicate),
    "no-map": ({}, ONE, BadHParam),
    "map-empty": ({"weight_map": {}}, ONE, BadHParam),
    "map-list": ({"weight_map": []}, ONE, BadHParam),
    "index-broken": ("{", ONE, BadHParam),
    "index-list": ("[]", ONE, BadHParam),
    "shard-number": ({"weight_map": {"a": 1}}, ONE, BadHParam),
    "shard-above": ({"weight_map": {"a": "../1.safetensors"}}, ONE, BadHParam),
    "shard-absolute": ({"weight_map": {"a": "/etc/1.safetensors"}}, ONE, BadHParam),
    "shard-windows": ({"weight_map": {"a": "..\\1.safetensors"}}, ONE, BadHParam),
    "shard-nul": ({"weight_map": {"a": "1\0.safetensors"}}, ONE, BadHParam),
    "shard-other-file": ({"weight_map": {"a": "model.pt"}}, ONE, BadHParam),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_malformed_folder(name: str, tmp_path: Path) -> None:
    index, shards, error = FOLDERS[name]
    with pytest.raises(FormatError) as caught:
        open_safetensors(_folder(tmp_path, index, shards))
    assert type(caught.value) is error, caught.value


def test_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=SINGLE):
        open_safetensors(tmp_path)
