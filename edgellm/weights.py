"""The weights of an open model by their GGUF names: views on the memory map, decoded only when asked for."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.errors import ModelClosed, Unsupported
from edgellm.formats.ggml_types import GGMLType, row_bytes
from edgellm.formats.gguf import GGUFFile
from edgellm.formats.interleave import Move, deinterleaved, interleave
from edgellm.formats.mapped import Bytes

ENDS = 256  # bytes at the ends of a weight that distinguish it from another one


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor; `data` is a read-only view on the file, its rows the product of all dimensions but the last.

    `interleaved`: how many rows of `data` share their bytes: see formats/interleave.py. 0: they are as the file has them.
    """

    name: str
    type: GGMLType
    shape: tuple[int, ...]  # NumPy's order: (rows, cols), (cols,), (experts, rows, cols)
    data: Bytes  # (rows, row bytes) uint8
    file: str  # path, for messages
    companions: tuple[Any, ...] = ()  # of MLX's groups: checkpoints.folder.Companion of scales and biases
    interleaved: int = 0

    @property
    def address(self) -> int:
        """Where `data` lies in memory; valid until the store is closed and no view is left."""
        return int(self.data.__array_interface__["data"][0])

    def array(self) -> npt.NDArray[np.float32]:
        """The values as float32 of `shape`, newly allocated. Unsupported if there is no codec for the type."""
        from edgellm.formats.codecs import CODECS  # 16 small modules: only for those who decode in NumPy

        codec = CODECS.get(self.type.name)
        if codec is None:
            raise Unsupported(self.type.refusal, file=self.file, field=self.name)
        return codec.dequantize(self.rows()).reshape(self.shape)

    def rows(self, first: int = 0, end: int | None = None) -> Bytes:
        """Rows of `data` as the file has them, (n, row bytes)."""
        if not self.interleaved:
            return self.data[first:end]
        end = len(self.data) if end is None else end
        group = self.interleaved
        around = self.data[first // group * group : -(-end // group) * group]
        return deinterleaved(self.type.name, around, group)[first % group :][: end - first]


class WeightStore:
    """The tensors of `gguf`, which it owns from now on. No copy is made and no page touched before a value is read."""

    def __init__(self, gguf: GGUFFile) -> None:
        self._gguf: GGUFFile | None = gguf
        self._interleaved: dict[str, int] = {}
        self.path, self.files = gguf.path, gguf.files  # `files` to be looked at for changes

    def names(self) -> list[str]:
        """All tensor names in file order."""
        return list(self._open().tensors)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor's shape in NumPy's order, by name."""
        return {name: info.shape for name, info in self._open().tensors.items()}

    def __contains__(self, name: object) -> bool:
        return name in self._open().tensors

    def __len__(self) -> int:
        return len(self._open().tensors)

    def __getitem__(self, name: str) -> Weight:
        """The weight of that name. KeyError if there is none, ModelClosed after `close()`."""
        gguf = self._open()
        info = gguf.tensors[name]
        columns = info.shape[-1] if info.shape else 1
        data = gguf.raw(name).reshape(math.prod(info.shape[:-1]), row_bytes(info.type, columns))
        return Weight(
            name, info.type, info.shape, data, gguf.paths[info.part], gguf.companions(name), self._interleaved.get(name, 0)
        )

    @property
    def copied(self) -> bool:
        """True if weights are in memory of the process's own."""
        return all(file.copied for file in self._open().files)

    def interleave(self, name: str, group: int, move: Move = interleave) -> bool:
        """Interleave the rows of a weight by groups of so many, in place, where the file was copied into memory; whether it was.
        Weights that were taken before must not be used any more. `move`: what does it.
        """
        data = self._open().own(name)
        if data is None or name in self._interleaved:
            return data is not None
        weight = self[name]
        move(weight.type.name, data.reshape(weight.data.shape), group)
        self._interleaved[name] = group
        return True

    def drop(self, name: str) -> None:
        """Give the memory of a weight back: its values have been copied elsewhere. It can still be read."""
        self._open().drop(name)

    def fingerprint(self) -> str:
        """SHA-256 of the names, types, shapes and ends of all weights."""
        sha = hashlib.sha256()
        for name in sorted(self.names()):
            weight = self[name]
            sha.update(repr((name, weight.type.name, weight.shape)).encode())
            if weight.data.size:
                sha.update(weight.rows(0, 1).tobytes()[:ENDS])
                sha.update(weight.rows(len(weight.data) - 1).tobytes()[-ENDS:])
        return sha.hexdigest()

    def close(self) -> None:
        """Unmap; weights that somebody still holds stay readable and keep the map. Closing twice does nothing."""
        if self._gguf is not None:
            self._gguf.close()
            self._gguf = None

    def _open(self) -> GGUFFile:
        if self._gguf is None:
            raise self._closed()
        return self._gguf

    def _closed(self) -> ModelClosed:
        return ModelClosed(f"{self.path}: the model was closed; load it again")
