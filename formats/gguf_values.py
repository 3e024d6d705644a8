"""Metadata of a GGUF file as a mapping whose strings and arrays stay in the memory map until they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from struct import Struct
from struct import error as StructError
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from .mapped import MappedFile

SCALARS: dict[int, Struct] = {
    0: Struct("<B"),
    1: Struct("<b"),
    2: Struct("<H"),
    3: Struct("<h"),
    4: Struct("<I"),
    5: Struct("<i"),
    6: Struct("<f"),
    7: Struct("<?"),
    10: Struct("<Q"),
    11: Struct("<q"),
    12: Struct("<d"),
}
"""Fixed-size GGUF value types by id (`enum gguf_type`)."""
BOOL, STRING, ARRAY = 7, 8, 9
TYPE_NAMES = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64")

_U64 = Struct("<Q")
_COPY_BYTES = 16 << 20  # numeric arrays up to this size are copied: keeping one does not keep the file mapped
_BATCH = 4096  # strings decoded per slice of the map
_BATCH_BYTES = 1 << 20  # of strings that are packed together, unless one alone has more

Value = Any  # bool | int | float | str | StringArray | numeric NDArray: the file's choice


class StringArray(Sequence[str]):
    """The strings of one metadata array, decoded when asked for.

    Bytes that are not UTF-8 become U+FFFD; `raw` keeps them. Iterating is the fast way to all of them (0.2 us each).
    ValueError once the file was closed.
    """

    __slots__ = ("_ends", "_file", "_start")

    def __init__(self, file: MappedFile, start: int, ends: npt.NDArray[Any]) -> None:
        self._file, self._start = file, start
        self._ends = ends  # (n + 1,) bytes from `start`: where each string's length prefix begins, then the end

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.raw(index).decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        buffer = self._file.buffer
        for first in range(0, len(self), _BATCH):
            ends = self._ends[first : first + _BATCH + 1]
            chunk = buffer[self._start + int(ends[0]) : self._start + int(ends[-1])]
            places = ends - ends[0]
            spans = zip((places[:-1] + 8).tolist(), places[1:].tolist(), strict=True)
            try:
                yield from [chunk[begin:end].decode() for begin, end in spans]
            except UnicodeDecodeError:
                yield from [self[i] for i in range(first, min(first + _BATCH, len(self)))]

    def packed(self) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
        """Some thousand at a time: their UTF-8, one right after the other, and the bytes of each."""
        buffer, last = self._file.buffer, 0
        while (first := last) < len(self):
            room = int(self._ends.searchsorted(int(self._ends[first]) + _BATCH_BYTES, side="right")) - 1
            last = min(max(room, first + 1), first + _BATCH, len(self))
            ends = self._ends[first : last + 1].astype(np.int64)
            chunk = np.frombuffer(buffer[self._start + int(ends[0]) : self._start + int(ends[-1])], np.uint8)
            ends -= ends[0]
            inside = np.ones(len(chunk), np.bool_)
            inside[ends[:-1, None] + np.arange(8)] = False
            data, lengths = chunk[inside], np.diff(ends) - 8
            begins = data[(np.cumsum(lengths) - lengths)[lengths > 0]]
            try:
                data.tobytes().decode()
                valid = not (begins & 0xC0 == 0x80).any()  # each string is whole characters
            except UnicodeDecodeError:
                valid = False
            if not valid:
                texts = [self[i].encode() for i in range(first, last)]
                data, lengths = np.frombuffer(b"".join(texts), np.uint8), np.array(list(map(len, texts)), np.int64)
            yield data, lengths

    def raw(self, index: int) -> bytes:
        """The bytes of string `index` as the file has them."""
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"string {index} of {n}")
        begin, end = int(self._ends[index % n]), int(self._ends[index % n + 1])
        return self._file.buffer[self._start + begin + 8 : self._start + end]

    def encoded(self) -> bytes:
        """All strings with their length prefixes, as the file has them."""
        return self._file.buffer[self._start : self._start + int(self._ends[-1])]


@dataclass(frozen=True, slots=True)
class LazyText:
    """A string value to be decoded when it is asked for."""

    start: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class LazyNumbers:
    """A numeric array to be viewed when it is asked for."""

    kind: int
    start: int
    count: int


class Metadata(Mapping[str, Value]):
    """Key to value in file order. Numbers and bools are Python's, strings are str, arrays NumPy arrays or StringArrays.

    Numeric arrays above 16 MiB are views that keep the file mapped while they live, smaller ones are copies.
    """

    def __init__(self, file: MappedFile, items: dict[str, Any]) -> None:
        self._file, self._items = file, items

    def __getitem__(self, key: str) -> Value:
        value = self._items[key]
        if isinstance(value, LazyText):
            return self._file.buffer[value.start : value.start + value.n_bytes].decode("utf-8", "replace")
        if isinstance(value, LazyNumbers):
            return self._numbers(value)
        return value

    def raw(self, key: str) -> Value:
        """The same, but for strings: those are the file's bytes, which need not be UTF-8."""
        value = self._items[key]
        if isinstance(value, LazyText):
            return self._file.buffer[value.start : value.start + value.n_bytes]
        return self[key]

    def text_bytes(self, key: str) -> int:
        """Bytes of a string; 0 for other values."""
        value = self._items[key]
        return value.n_bytes if isinstance(value, LazyText) else 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def _numbers(self, value: LazyNumbers) -> npt.NDArray[Any]:
        dtype = np.dtype(SCALARS[value.kind].format)
        view = self._file.data[value.start : value.start + value.count * dtype.itemsize].view(dtype)
        return view if view.nbytes > _COPY_BYTES else view.copy()


class BadString(Exception):
    """String `index` of an array, at `offset`, runs past the limit; internal to the header reader."""

    def __init__(self, index: int, offset: int) -> None:
        super().__init__(index, offset)
        self.index, self.offset = index, offset


def scan_strings(file: MappedFile, start: int, count: int) -> npt.NDArray[Any]:
    """Where `count` length-prefixed strings begin, then where the last one ends: (count + 1,) bytes from `start`.

    One plain loop, 0.1 us per string. The caller has compared `count` with the bytes left. Raises BadString.
    """
    narrow = file.size - start < 1 << 32
    ends = np.empty(count + 1, np.uint32 if narrow else np.int64)
    ends[0] = 0
    unpack, buffer, limit = _U64.unpack_from, file.buffer, file.size
    position = start
    for first in range(0, count, _BATCH):
        begins = [position]
        add, wanted = begins.append, min(_BATCH, count - first)
        try:
            for _ in repeat(None, wanted):
                position += unpack(buffer, position)[0] + 8
                add(position)
        except (StructError, OverflowError):
            pass  # the string before ran past the end of the file: reported below
        if position > limit or len(begins) <= wanted:
            bad = next((i for i, end in enumerate(begins[1:]) if end > limit), len(begins) - 1)
            raise BadString(first + bad, begins[bad])
        ends[first + 1 : first + 1 + wanted] = np.array(begins[1:]) - start
    return ends
