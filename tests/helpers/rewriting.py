"""Takes a sound model file apart into keys and tensors, and lays them out again after something in them was changed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any  # values of a header

import numpy as np
from gguf_cases import ARRAY, BOOL, F32, F64, I8, I32, STRING, U8, U32, U64, Tensor, array, gguf, key, number, scalar, string

from edgellm.formats.ggml_types import TYPES
from edgellm.formats.gguf import open_gguf

_KINDS = {"int8": I8, "uint8": U8, "int32": I32, "uint32": U32, "uint64": U64, "float32": F32, "float64": F64, "bool": BOOL}
_BITS = {U8: 8, I8: 8, U32: 32, I32: 32, U64: 64, BOOL: 1}


@dataclass
class Parts:
    """Keys as (name, kind, value) and tensors of a file; `data` has the bytes of each tensor, where they matter."""

    keys: list[tuple[str, int, Any]]
    tensors: list[Tensor]
    data: dict[str, bytes]

    def set(self, name: str, value: Any) -> None:
        """Replace or add a key, with the kind that its Python value has; None drops it."""
        self.keys = [entry for entry in self.keys if entry[0] != name]
        if value is not None:
            self.keys.append((name, kind_of(value), value))

    def change(self, name: str, **fields: Any) -> None:
        """Replace fields of a tensor's entry; its bytes are then as many as the new shape and type have."""
        self.tensors = [replace(tensor, **fields) if tensor.name == name else tensor for tensor in self.tensors]
        self.data.pop(name, None)

    def file(self) -> bytes:
        tensors = [replace(tensor, nbytes=nbytes(tensor), data=self.data.get(str(tensor.name))) for tensor in self.tensors]
        return gguf([encoded(*entry) for entry in self.keys], tensors)


def parts(path: Path, *, with_data: bool = False) -> Parts:
    with open_gguf(path) as model:
        keys = [(name, *_typed(value)) for name, value in model.typed_metadata().items()]
        tensors = [Tensor(info.name, info.shape[::-1], info.type.id) for info in model.tensors.values()]
        return Parts(keys, tensors, {name: bytes(model.raw(name)) for name in model.tensors} if with_data else {})


def _typed(value: Any) -> tuple[int, Any]:
    """The kind of a header's value, and the value by itself."""
    if isinstance(value, bytes):
        return STRING, value.decode()
    if isinstance(value, np.generic):
        return _KINDS[value.dtype.name], value.item()
    return ARRAY, value if isinstance(value, np.ndarray) else list(value)


def kind_of(value: Any) -> int:
    """The kind that a writer gives to a Python value."""
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return I32 if value < 0 else U32
    if isinstance(value, float):
        return F32
    return STRING if isinstance(value, str) else ARRAY


def nbytes(tensor: Tensor) -> int:
    kind = TYPES[tensor.type]
    return math.prod(tensor.dims) // kind.block * kind.block_bytes


def encoded(name: str, kind: int, value: Any) -> bytes:
    """One key of a header."""
    if kind == STRING or isinstance(value, str):
        return key(name, STRING, string(str(value)))
    if isinstance(value, list) and value and not isinstance(value[0], str | bytes):
        value = np.array(value, {bool: np.bool_, int: np.int32, float: np.float32}[type(value[0])])
    if isinstance(value, np.ndarray):
        kind = I32 if value.dtype == np.int64 else _KINDS[value.dtype.name]
        return array(name, kind, [number(kind, item) for item in value.tolist()])
    if not isinstance(value, int | float):
        return array(name, STRING, [string(text) for text in value])
    if kind in (F32, F64):
        return scalar(name, kind, value)
    kind = kind if kind in _BITS else U32
    return scalar(name, kind, bool(value) if kind == BOOL else _wrapped(value, kind))


def _wrapped(value: float, kind: int) -> int:
    """An integer as so many bits hold it."""
    number = (0 if value != value or abs(value) > 1e300 else int(value)) & (1 << _BITS[kind]) - 1
    return number - (1 << _BITS[kind]) if kind in (I8, I32) and number >> (_BITS[kind] - 1) else number
