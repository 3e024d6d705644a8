"""The tensor list of a GGUF header: names, dimensions, types, and offsets that leave no gap and no overlap."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .errors import BadAlignment, BadTensorInfo, BadType, Duplicate, Truncated, Unsupported
from .ggml_types import TYPES, GGMLType, row_bytes
from .gguf_cursor import AGAIN, MADE, U32, U64, Cursor

MAX_TENSORS = 1 << 15  # real files have fewer than 5,000
MAX_NAME_BYTES = 63  # GGML_MAX_NAME counts the NUL
MAX_DIMS = 4  # GGML_MAX_DIMS
_INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `shape` in NumPy's order (rows, cols), and where its bytes lie: `offset` in split file `part`."""

    name: str
    shape: tuple[int, ...]
    type: GGMLType
    part: int
    offset: int  # bytes from the start of the part
    nbytes: int


def read_tensors(cursor: Cursor, n_tensors: int, alignment: int, part: int) -> tuple[TensorInfo, ...]:
    """The `n_tensors` entries from here. Each offset must be the running sum: no overlap, gap, reordering or wrap.

    Raises BadTensorInfo, BadType, BadAlignment, Duplicate, Truncated and Unsupported.
    """
    tensors: list[TensorInfo] = []  # with offsets from the start of the data
    places: dict[str, int] = {}
    expected = 0
    for index in range(n_tensors):
        begin = cursor.at
        name = _read_name(cursor, index)
        if name in places:
            cursor.fail(Duplicate, f"the tensor occurs twice{MADE}", name, begin)
        shape = _read_shape(cursor, name)
        kind, n_bytes = _read_type(cursor, name, shape)
        places[name] = at = cursor.at
        offset = int(cursor.number(U64, name, "the tensor's offset"))
        if offset % alignment:
            message = f"the tensor's offset {offset} is not a multiple of the alignment {alignment}"
            cursor.fail(BadAlignment, message + MADE, name, at)
        if offset != expected:
            cursor.fail(BadTensorInfo, f"the tensor's offset is {offset} where {expected} comes next{MADE}", name, at)
        tensors.append(TensorInfo(name, shape, kind, part, offset, n_bytes))
        expected = _padded(offset + n_bytes, alignment)
    return _place(cursor, tensors, places, _padded(cursor.at, alignment))


def _place(cursor: Cursor, tensors: list[TensorInfo], places: dict[str, int], start: int) -> tuple[TensorInfo, ...]:
    placed = []
    for info in tensors:
        begin, end = start + info.offset, start + info.offset + info.nbytes
        if info.nbytes and end > cursor.size:
            message = f"the tensor's data end at byte {end} and the file has {cursor.size}"
            cursor.fail(Truncated, message + AGAIN, info.name, places[info.name])
        placed.append(TensorInfo(info.name, info.shape, info.type, info.part, begin, info.nbytes))
    return tuple(placed)


def _read_name(cursor: Cursor, index: int) -> str:
    field, at = f"tensor {index}", cursor.at
    n = cursor.number(U64, field, "the name's length")
    if not 0 < n <= MAX_NAME_BYTES:
        cursor.fail(BadTensorInfo, f"the name has {n} bytes and must have 1 to {MAX_NAME_BYTES}{MADE}", field, at)
    raw = cursor.take(n, field, "the tensor's name")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        cursor.fail(BadTensorInfo, f"the name {raw!r} is not UTF-8{AGAIN}", field, at)


def _read_shape(cursor: Cursor, name: str) -> tuple[int, ...]:
    at = cursor.at
    n_dims = cursor.number(U32, name, "the number of dimensions")
    if n_dims > MAX_DIMS:
        cursor.fail(BadTensorInfo, f"the tensor has {n_dims} dimensions and may have {MAX_DIMS}{AGAIN}", name, at)
    dims = [int(cursor.number(U64, name, "a dimension")) for _ in range(n_dims)]
    if math.prod(max(dim, 1) for dim in dims) > _INT64_MAX:
        cursor.fail(BadTensorInfo, f"dimensions {dims} hold more than 2^63 elements{AGAIN}", name, at + 4)
    if n_dims == MAX_DIMS:  # some tools always write four: [64, 1, 1, 1] is a norm of 64
        while len(dims) > 1 and dims[-1] == 1:
            dims.pop()
    return tuple(reversed(dims))


def _read_type(cursor: Cursor, name: str, shape: tuple[int, ...]) -> tuple[GGMLType, int]:
    at = cursor.at
    type_id = cursor.number(U32, name, "the tensor's type")
    kind = TYPES.get(type_id)
    if kind is None:
        message = f"uses tensor type {type_id}, which is unknown; update edgellm, or get the model as Q4_K_M or Q8_0"
        cursor.fail(BadType, message, name, at)
    if not kind.has_layout:
        cursor.fail(Unsupported, kind.refusal, name, at)
    columns = shape[-1] if shape else 1
    if columns % kind.block:
        message = f"rows of {columns} elements are not a whole number of {kind.name} blocks of {kind.block}"
        cursor.fail(BadTensorInfo, message + MADE, name, at)
    n_bytes = math.prod(shape[:-1]) * row_bytes(kind, columns)
    if n_bytes > _INT64_MAX:
        cursor.fail(BadTensorInfo, f"the tensor has more than 2^63 bytes{AGAIN}", name, at)
    return kind, n_bytes


def _padded(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment
