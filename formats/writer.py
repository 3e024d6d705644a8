"""Writes GGUF v3 files, tensor by tensor: nothing is kept in memory but the header.

tensors = [NewTensor("output.weight", (32000, 2048), TYPES_BY_NAME["Q8_0"]), ...]
with GGUFWriter("model.gguf", {"general.architecture": "llama", ...}, tensors) as writer:
    for tensor in tensors:
        writer.write(tensor.name, rows)          # as often as it takes
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from types import TracebackType
from typing import Any, Self

import numpy as np

from .errors import BadAlignment, BadHParam, BadTensorInfo, Duplicate, LimitExceeded
from .ggml_types import GGMLType, row_bytes
from .gguf_encode import encode_entry, encode_string
from .gguf_header import MAX_KEY_BYTES
from .gguf_split import COUNT, MAX_PARTS, NO, TENSORS
from .gguf_tensors import MAX_DIMS, MAX_NAME_BYTES
from .whole_file import WholeFile

__all__ = ["GGUFWriter", "NewTensor", "part_path"]

ALIGNMENT = "general.alignment"
_START, _U32, _U64 = Struct("<4sIQQ"), Struct("<I"), Struct("<Q")


@dataclass(frozen=True, slots=True)
class NewTensor:
    """A tensor to be written: `shape` in NumPy's order (rows, cols)."""

    name: str
    shape: tuple[int, ...]
    type: GGMLType

    @property
    def nbytes(self) -> int:
        """Bytes of its data. ValueError if a row is not a whole number of blocks."""
        return math.prod(self.shape[:-1]) * row_bytes(self.type, self.shape[-1] if self.shape else 1)


class GGUFWriter:
    """A model file that is being written, or several: `paths` are their final names.

    Tensors are written in the order given here. With `split_bytes` or `split_tensors` the model becomes parts of at most so
    many bytes of tensors (one tensor may be more) or so many tensors each, named and marked as llama.cpp's gguf-split does.
    Leaving the `with` block completes the files: until then nothing stands under the final names, after an error never.
    Raises Unwritable, BadTensorInfo, BadHParam, BadAlignment, Duplicate and LimitExceeded.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        metadata: Mapping[str, Any],
        tensors: Sequence[NewTensor],
        *,
        split_bytes: int | None = None,
        split_tensors: int | None = None,
    ) -> None:
        self._path = os.fspath(path)
        self.alignment = int(metadata.get(ALIGNMENT, 32))
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise BadAlignment(f"{self.alignment} is not a power of two", file=self._path, field=ALIGNMENT)
        self._check(tensors)
        self._parts = self._divide(tensors, split_bytes, split_tensors)
        if len(self._parts) > MAX_PARTS:
            raise LimitExceeded(
                f"the model would have {len(self._parts)} parts, at most {MAX_PARTS} are read; make them larger",
                file=path,
                field=COUNT,
            )
        is_split = split_bytes is not None or split_tensors is not None
        self.paths = (
            tuple(part_path(self._path, k, len(self._parts)) for k in range(len(self._parts))) if is_split else (self._path,)
        )
        keys = {key: value for key, value in metadata.items() if not key.startswith("split.")}
        self._headers = [self._header(keys, k, is_split, len(tensors)) for k in range(len(self._parts))]
        self._queue = [(k, tensor) for k, part in enumerate(self._parts) for tensor in part]
        self._next, self._left = 0, self._queue[0][1].nbytes if self._queue else 0
        self._files: list[WholeFile] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all files when they are complete."""
        return sum(map(len, self._headers)) + sum(_aligned(tensor.nbytes, self.alignment) for _, tensor in self._queue)

    def __enter__(self) -> Self:
        try:
            for path, header in zip(self.paths, self._headers, strict=True):
                self._files.append(WholeFile(path))
                self._files[-1].write(header)
        except BaseException:
            self._discard()
            raise
        return self

    def write(self, name: str, data: Any) -> None:
        """Append contiguous bytes of the tensor `name`, whose turn it must be. ValueError if they are not as declared."""
        n_bytes = memoryview(data).nbytes
        if not n_bytes:
            return
        self._skip_empty()
        if self._next == len(self._queue) or self._queue[self._next][1].name != name:
            expected = "nothing" if self._next == len(self._queue) else self._queue[self._next][1].name
            raise ValueError(f"{name} is written where {expected} comes next")
        if n_bytes > self._left:
            raise ValueError(f"{name} takes {self._left} more bytes and got {n_bytes}")
        file = self._files[self._queue[self._next][0]]
        file.write(data)
        self._left -= n_bytes
        if not self._left:
            file.write(bytes(-file.length % self.alignment))
            self._advance()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                self._skip_empty()
                if self._next < len(self._queue):
                    raise ValueError(f"{self._queue[self._next][1].name} is not complete: {self._left} bytes are missing")
                for file in self._files:
                    file.finish()
                for file in reversed(self._files):  # the first part last: it is the one that is opened
                    file.publish()
        finally:
            self._discard()

    def _advance(self) -> None:
        self._next += 1
        self._left = self._queue[self._next][1].nbytes if self._next < len(self._queue) else 0

    def _skip_empty(self) -> None:
        while self._next < len(self._queue) and not self._queue[self._next][1].nbytes:
            self._advance()

    def _discard(self) -> None:
        for file in self._files:
            file.discard()

    def _check(self, tensors: Sequence[NewTensor]) -> None:
        seen: set[str] = set()
        for tensor in tensors:
            name, columns = tensor.name, tensor.shape[-1] if tensor.shape else 1
            if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
                raise BadTensorInfo(f"the name must have 1 to {MAX_NAME_BYTES} bytes", file=self._path, field=name)
            if name in seen:
                raise Duplicate("the tensor occurs twice", file=self._path, field=name)
            if len(tensor.shape) > MAX_DIMS:
                message = f"the tensor has {len(tensor.shape)} dimensions and may have {MAX_DIMS}"
                raise BadTensorInfo(message, file=self._path, field=name)
            if not tensor.type.has_layout or columns % tensor.type.block:
                message = f"rows of {columns} elements are not a whole number of {tensor.type.name} blocks"
                raise BadTensorInfo(message, file=self._path, field=name)
            seen.add(name)

    def _divide(self, tensors: Sequence[NewTensor], split_bytes: int | None, split_tensors: int | None) -> list[list[NewTensor]]:
        parts: list[list[NewTensor]] = [[]]
        n_bytes = 0
        for tensor in tensors:
            n = _aligned(tensor.nbytes, self.alignment)
            full = split_tensors is not None and len(parts[-1]) >= split_tensors
            if parts[-1] and (full or (split_bytes is not None and n_bytes + n > split_bytes)):
                parts.append([])
                n_bytes = 0
            parts[-1].append(tensor)
            n_bytes += n
        return parts

    def _header(self, metadata: Mapping[str, Any], number: int, is_split: bool, n_tensors: int) -> bytes:
        keys = dict(metadata) if number == 0 else {key: metadata[key] for key in (ALIGNMENT,) if key in metadata}
        if ALIGNMENT in keys:
            keys[ALIGNMENT] = np.uint32(self.alignment)
        if is_split:
            keys |= {NO: np.uint16(number), COUNT: np.uint16(len(self._parts)), TENSORS: np.int32(n_tensors)}
        part = self._parts[number]
        pieces = [_START.pack(b"GGUF", 3, len(part), len(keys)), *(self._entry(key, value) for key, value in keys.items())]
        offset = 0
        for tensor in part:
            dims = tensor.shape[::-1]
            pieces += [
                encode_string(tensor.name),
                _U32.pack(len(dims)),
                *map(_U64.pack, dims),
                _U32.pack(tensor.type.id),
                _U64.pack(offset),
            ]
            offset += _aligned(tensor.nbytes, self.alignment)
        header = b"".join(pieces)
        return header + bytes(-len(header) % self.alignment if part else 0)

    def _entry(self, key: str, value: Any) -> bytes:
        if not 0 < len(key.encode()) <= MAX_KEY_BYTES:
            raise BadHParam(f"a key must have 1 to {MAX_KEY_BYTES} bytes", file=self._path, field=key)
        try:
            return encode_entry(key, value)
        except (TypeError, ValueError) as error:
            raise BadHParam(f"cannot be written: {error}", file=self._path, field=key) from error


def part_path(path: str, number: int, count: int) -> str:
    """llama.cpp's name of part `number` (from 0) of `count`: NAME.gguf becomes NAME-00001-of-00003.gguf."""
    stem = path.removesuffix(".gguf")
    return f"{stem}-{number + 1:05d}-of-{count:05d}.gguf"


def _aligned(n_bytes: int, alignment: int) -> int:
    return n_bytes + -n_bytes % alignment
