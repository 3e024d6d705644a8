"""safetensors models: one file, or a folder with `model.safetensors` or an index of shards; tensors stay in the map.

Format: https://github.com/huggingface/safetensors: a u64 length, a JSON header, then the data without gap or overlap.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import (
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
from .mapped import MappedFile, TensorFiles

DTYPE_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E5M2": 1,
    "F8_E4M3": 1,
    "F8_E8M0": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
    "C64": 8,
}
"""Bytes per element of every dtype that can be read."""

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
MAX_HEADER_BYTES = 16 << 20  # indexes of the largest models have about 9 MiB
MAX_TENSORS = 1 << 17  # and about 90,000 tensors
MAX_DIMS = 8
MAX_VALUES = 1 << 21  # numbers and entries, counted by their commas before the JSON is parsed
MAX_JSON_BYTES = 128 << 20  # of files beside the tensors: the tokenizers of Gemma and gpt-oss have 30 MiB
MAX_JSON_VALUES = 1 << 23  # and 500,000 merges of two texts each
_NUMPY = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "I16": "<i2",
    "U16": "<u2",
    "F16": "<f2",
    "I32": "<i4",
    "U32": "<u4",
    "F32": "<f4",
    "I64": "<i8",
    "U64": "<u8",
    "F64": "<f8",
    "C64": "<c8",
}
_SHARD = re.compile(r"[^/\\:\0]+\.safetensors")  # no path: a shard lies in the model's own folder
_AGAIN = "; the file is damaged or incomplete, download it again"


@dataclass(frozen=True, slots=True)
class SafeTensorInfo:
    """One tensor: dtype ("BF16"), shape in NumPy's order, and its bytes' place in file number `part`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    part: int
    offset: int  # bytes from the start of the part
    nbytes: int


class SafeTensorsFile(TensorFiles[SafeTensorInfo]):
    """An open model: `tensors` by name, `metadata` of the first file; bytes by `raw`, values by `array`."""

    def __init__(self, files: Sequence[MappedFile], tensors: dict[str, SafeTensorInfo], metadata: Mapping[str, str]) -> None:
        super().__init__(files, tensors)
        self.metadata = metadata

    def array(self, name: str) -> npt.NDArray[Any]:
        """The values of `shape`: a read-only view, or for BF16 a new float32 array. Unsupported for 8-bit floats."""
        info, raw = self.tensors[name], self.raw(name)
        if info.dtype == "BF16":
            return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(info.shape)
        if info.dtype not in _NUMPY:
            raise Unsupported(
                f"is {info.dtype}, which NumPy cannot hold; convert the model to BF16", file=self.paths[info.part], field=name
            )
        return raw.view(_NUMPY[info.dtype]).reshape(info.shape)


def open_safetensors(path: str | os.PathLike[str]) -> SafeTensorsFile:
    """Open a `.safetensors` file, or a folder of them. Raises the FormatErrors; no tensor byte is touched."""
    path = os.fspath(path)
    names: list[str] | None = None
    placed: dict[str, str] = {}
    if os.path.isdir(path):
        index = os.path.join(path, INDEX)
        if os.path.exists(index):
            placed = _read_index(index)
            names = sorted(set(placed.values()))
        if names is None or (SINGLE not in names and os.path.exists(os.path.join(path, SINGLE))):  # an index left from before
            names, placed = [SINGLE], {}
        _check_all_there(path, names, indexed=bool(placed))
    paths = [os.path.join(path, name) for name in names] if names is not None else [path]
    files: list[MappedFile] = []
    try:
        tensors: dict[str, SafeTensorInfo] = {}
        metadata: Mapping[str, str] = {}
        for part, one in enumerate(paths):
            files.append(MappedFile(one))
            found, notes = _read_header(files[part], part)
            metadata = metadata or notes
            _add(tensors, found, files[part].path, placed)
        for name in placed.keys() - tensors.keys():
            message = f"the index promises the tensor in {placed[name]}, which lacks it; download the folder again"
            raise BadTensorInfo(message, file=path, field=name)
        return SafeTensorsFile(files, tensors, metadata)
    except BaseException:
        for file in files:
            file.close()
        raise


def _check_all_there(folder: str, names: list[str], *, indexed: bool) -> None:
    """Raises Unreadable for a folder that lacks files."""
    missing = [name for name in names if not os.path.lexists(os.path.join(folder, name))]
    if missing and indexed:
        raise Unreadable(
            f"{missing[0]} is not there ({len(missing)} of {len(names)} files are missing); download the folder again", file=folder
        )
    if missing:
        pickled = any(name.endswith((".bin", ".pt", ".pth")) for name in os.listdir(folder))
        raise Unreadable(
            "has PyTorch's pickled weights alone, which may run code as they are read; save them as .safetensors first"
            if pickled
            else f"has no {SINGLE} and no {INDEX}; download the folder again",
            file=folder,
        )


def read_json(file: MappedFile) -> dict[str, Any]:
    """The object in a JSON file beside the tensors, which is closed. Raises LimitExceeded, BadHParam, Duplicate."""
    try:
        if file.size > MAX_JSON_BYTES:
            raise LimitExceeded(f"a JSON file of {file.size} bytes is larger than {MAX_JSON_BYTES}", file=file.path)
        return _parse_json(file, file.buffer[:], 0, MAX_JSON_VALUES, MAX_JSON_VALUES, _constant)
    finally:
        file.close()


def _add(tensors: dict[str, SafeTensorInfo], found: list[SafeTensorInfo], path: str, placed: Mapping[str, str]) -> None:
    for info in found:
        if info.name in tensors:
            message = "the tensor is also in another shard; download the folder again"
            raise Duplicate(message, file=path, field=info.name)
        if placed and placed.get(info.name) != os.path.basename(path):
            message = "the index does not name this shard for the tensor; download the folder again"
            raise BadTensorInfo(message, file=path, field=info.name)
        tensors[info.name] = info


def _read_index(path: str) -> dict[str, str]:
    file = MappedFile(path)
    try:
        if file.size > MAX_HEADER_BYTES:
            raise LimitExceeded(f"an index of {file.size} bytes is larger than {MAX_HEADER_BYTES}", file=path)
        index = _parse_json(file, file.buffer[:], 0)
    finally:
        file.close()
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise BadHParam("is missing or empty; download the folder again", file=path, field="weight_map")
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or not _SHARD.fullmatch(shard):
            message = f"the shard {str(shard)[:80]!r} is not a plain file name that ends in .safetensors"
            raise BadHParam(message, file=path, field=name)
    return weight_map


def _read_header(file: MappedFile, part: int) -> tuple[list[SafeTensorInfo], dict[str, str]]:
    if file.size < 8:
        raise Truncated(f"has {file.size} bytes, too few for a header's length{_AGAIN}", file=file.path, offset=0)
    length = int.from_bytes(file.buffer[:8], "little")
    start = 8 + length
    if file.size > 8 and file.buffer[8] != ord("{"):
        raise BadMagic("is not a safetensors file: its header does not begin with '{'", file=file.path, offset=8)
    if length > MAX_HEADER_BYTES:
        message = f"a header of {length} bytes is larger than {MAX_HEADER_BYTES}{_AGAIN}"
        raise LimitExceeded(message, file=file.path, offset=0)
    if start > file.size:
        message = f"the header needs {length} bytes and {file.size - 8} follow{_AGAIN}"
        raise Truncated(message, file=file.path, offset=0)
    header = _parse_json(file, file.buffer[8:start], 8)
    notes = header.pop("__metadata__", None)
    notes = {} if notes is None else notes  # mx.save_safetensors writes null for none
    if not isinstance(notes, dict) or not all(isinstance(value, str) for value in notes.values()):
        raise BadHParam("must map strings to strings", file=file.path, field="__metadata__", offset=8)
    if len(header) > MAX_TENSORS:
        raise LimitExceeded(f"{len(header)} tensors are more than any real file has", file=file.path, offset=8)
    tensors = [_tensor(file, name, entry, part, start) for name, entry in header.items()]
    _check_places(file, tensors, start)
    return tensors, notes


def _tensor(file: MappedFile, name: str, entry: Any, part: int, start: int) -> SafeTensorInfo:
    def fail(kind: type[FormatError], message: str) -> FormatError:
        return kind(message, file=file.path, field=name, offset=8)

    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise fail(BadTensorInfo, f"the tensor must have exactly dtype, shape and data_offsets{_AGAIN}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise fail(BadType, f"dtype {str(dtype)[:40]!r} is none that edgellm can read; convert the model to BF16")
    if not _are_sizes(shape) or len(shape) > MAX_DIMS:
        raise fail(BadTensorInfo, f"the shape {str(shape)[:80]} is not a list of up to {MAX_DIMS} sizes{_AGAIN}")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise fail(BadTensorInfo, f"data_offsets {str(offsets)[:80]} are not begin and end{_AGAIN}")
    n_bytes = math.prod(shape) * DTYPE_BYTES[dtype]
    if n_bytes != offsets[1] - offsets[0]:
        raise fail(BadTensorInfo, f"{dtype} {shape} needs {n_bytes} bytes and has {offsets[1] - offsets[0]}{_AGAIN}")
    return SafeTensorInfo(name, dtype, tuple(shape), part, start + offsets[0], n_bytes)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _check_places(file: MappedFile, tensors: list[SafeTensorInfo], start: int) -> None:
    expected = start
    for info in sorted(tensors, key=lambda info: (info.offset, info.nbytes)):
        if info.offset != expected:
            what = "overlaps the one before" if info.offset < expected else "leaves a gap before it"
            raise BadTensorInfo(f"the tensor {what}{_AGAIN}", file=file.path, field=info.name, offset=info.offset)
        expected += info.nbytes
        if expected > file.size:
            raise Truncated(
                f"the tensor ends at byte {expected} and the file has {file.size}{_AGAIN}",
                file=file.path,
                field=info.name,
                offset=info.offset,
            )
    if expected != file.size:
        message = f"{file.size - expected} bytes follow the last tensor{_AGAIN}"
        raise BadTensorInfo(message, file=file.path, offset=expected)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _constant(name: str) -> float:
    """Infinity and NaN, which Python writes into configurations (`time_step_limit`)."""
    return float(name)


def _parse_json(
    file: MappedFile,
    text: bytes,
    offset: int,
    values: int = MAX_VALUES,
    groups: int = 3 * MAX_TENSORS + 8,
    constant: Callable[[str], Any] = _no_constant,
) -> dict[str, Any]:
    if text.count(b",") > values or text.count(b"[") + text.count(b"{") > groups:
        raise LimitExceeded("the JSON has more values than any real file", file=file.path, offset=offset)
    try:
        parsed = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=constant)
    except _Repeated as error:
        raise Duplicate("the JSON key occurs twice", file=file.path, field=str(error), offset=offset) from error
    except RecursionError as error:
        raise LimitExceeded("the JSON is nested too deeply", file=file.path, offset=offset) from error
    except ValueError as error:  # broken JSON, no UTF-8, or an integer of thousands of digits
        raise BadHParam(f"the JSON is broken: {error}{_AGAIN}", file=file.path, offset=offset) from error
    if not isinstance(parsed, dict):
        raise BadHParam("the JSON must be an object", file=file.path, offset=offset)
    return parsed


class _Repeated(Exception):
    """A JSON object with one key twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _Repeated(key[:80])
        key.encode()  # refuses a lone surrogate here, not where the key is printed
        result[key] = value
    return result
