"""Metadata values as the bytes of a GGUF header: Python and NumPy values in, type id and payload out.

Types: a NumPy scalar or array keeps its own; of Python's, bool is bool, int is u32 (i32 below 0, 64 bits where 32 are too
few), float is f32, str and bytes are strings, and a list has the type of its items (int: i32 or i64, float: f32; empty: strings).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

import numpy as np

from .gguf_values import ARRAY, BOOL, SCALARS, STRING, StringArray

_U32, _U64 = Struct("<I"), Struct("<Q")
_KINDS = {np.dtype(layout.format): kind for kind, layout in SCALARS.items()}  # "<?" is NumPy's bool too


def encode_string(text: str | bytes) -> bytes:
    """A length prefix and the bytes."""
    raw = text.encode() if isinstance(text, str) else text
    return _U64.pack(len(raw)) + raw


def encode_entry(key: str, value: Any) -> bytes:
    """A complete metadata entry: key, type id, payload. TypeError or ValueError if GGUF cannot hold the value."""
    kind, payload = encode_value(value)
    return encode_string(key) + _U32.pack(kind) + payload


def encode_value(value: Any) -> tuple[int, bytes]:
    """Type id and payload of a value."""
    if isinstance(value, (str, bytes)):
        return STRING, encode_string(value)
    if isinstance(value, StringArray):
        return ARRAY, _U32.pack(STRING) + _U64.pack(len(value)) + value.encoded()
    if isinstance(value, (np.ndarray, np.generic)):
        return _encode_numpy(value)
    if isinstance(value, (bool, int, float)):
        return _encode_numpy(_scalar(value))
    if isinstance(value, Sequence):
        return _encode_sequence(value)
    raise TypeError(f"GGUF has no type for {type(value).__name__}")


def _scalar(value: bool | int | float) -> np.generic:
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, float):
        return np.float32(value)
    if value >= 0:
        return np.uint32(value) if value < 1 << 32 else np.uint64(value)
    return np.int32(value) if value >= -(1 << 31) else np.int64(value)


def _encode_numpy(value: np.ndarray[Any, Any] | np.generic) -> tuple[int, bytes]:
    dtype = value.dtype.newbyteorder("<")
    kind = _KINDS.get(dtype)
    if kind is None:
        raise TypeError(f"GGUF has no type for NumPy's {value.dtype}")
    if isinstance(value, np.generic):
        return kind, value.astype(dtype).tobytes()
    if value.ndim != 1:
        raise ValueError(f"arrays of {value.ndim} dimensions are not GGUF metadata")
    return ARRAY, _U32.pack(kind) + _U64.pack(len(value)) + value.astype(dtype, copy=False).tobytes()


def _encode_sequence(items: Sequence[Any]) -> tuple[int, bytes]:
    kinds = {type(item) for item in items}
    if kinds <= {str, bytes}:
        return ARRAY, _U32.pack(STRING) + _U64.pack(len(items)) + b"".join(map(encode_string, items))
    if len(kinds) > 1 or not kinds <= {bool, int, float}:
        raise TypeError(f"GGUF has no array of {', '.join(sorted(kind.__name__ for kind in kinds))}")
    array = np.array(items)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    elif array.dtype == np.int64 and (array == array.astype(np.int32)).all():
        array = array.astype(np.int32)
    return _encode_numpy(array)


assert _KINDS[np.dtype(np.bool_)] == BOOL
