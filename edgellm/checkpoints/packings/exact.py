"""Base of the readers of packed matrices: they return floats, and name the GGUF type that holds a matrix exactly."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from edgellm.checkpoints.source import Rows, Source
from edgellm.formats.mapped import Bytes
from edgellm.formats.safetensors import SafeTensorInfo, SafeTensorsFile

Floats = npt.NDArray[np.float32]


class ExactCheckpoint(SafeTensorsFile, ABC):
    """A checkpoint whose packed matrices answer as float32 tensors `NAME.weight`."""

    PARTS: ClassVar[tuple[str, ...]]  # that tensors of a packed matrix are named by, behind `NAME.`

    def __init__(self, file: SafeTensorsFile, first: dict[str, str]) -> None:
        """`first`: the tensor with the codes by NAME, in the order of the file."""
        self._file, self._first = file, first
        kept = {
            name: info
            for name, info in file.tensors.items()
            if name.rpartition(".")[0] not in first or name.rpartition(".")[2] not in self.PARTS
        }
        super().__init__(file.files, kept, file.metadata)
        for base, name in first.items():
            shape, info = self._shape(base), file.tensors[name]
            nbytes = 4 * math.prod(shape)
            self.tensors[f"{base}.weight"] = SafeTensorInfo(f"{base}.weight", "F32", shape, info.part, info.offset, nbytes)

    @abstractmethod
    def _shape(self, base: str) -> tuple[int, ...]:
        """Rows and columns of the matrix: outputs and inputs; experts come before. Raises BadTensorInfo."""

    @abstractmethod
    def values(self, name: str) -> Floats:
        """(rows, columns) f32. Raises BadTensorInfo where the parts contradict each other."""

    @abstractmethod
    def exact_type(self, source: Source) -> tuple[str, str]:
        """The smallest GGUF type that holds all matrices of a tensor exactly, and why it is no smaller one."""

    @abstractmethod
    def encoded(self, name: str, kind: str, rows: Rows | None) -> Bytes:
        """A matrix as blocks of its exact type `kind`, in the order `rows`."""

    def factors(self, source: Source) -> Floats | None:
        """Factors of products with the matrices of the exact type, a number each; None where that is 1."""
        return None

    def is_packed(self, name: str) -> bool:
        return name.removesuffix(".weight") in self._first

    def raw(self, name: str) -> Bytes:
        return self.values(name).reshape(-1).view(np.uint8) if self.is_packed(name) else self._file.raw(name)

    def array(self, name: str) -> npt.NDArray[Any]:
        return self.values(name) if self.is_packed(name) else self._file.array(name)

    def drop(self, name: str) -> None:
        base = name.removesuffix(".weight")
        for part in [f"{base}.{part}" for part in self.PARTS] if self.is_packed(name) else [name]:
            if part in self._file.tensors:
                self._file.drop(part)
