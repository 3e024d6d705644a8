"""Importance matrices: mean squares of what each column of a matrix is multiplied with, as llama-imatrix writes them to GGUF."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgellm.errors import BadType, ShapeMismatch, Unsupported
from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.gguf import GGUFFile, open_gguf
from edgellm.formats.gguf_tensors import TensorInfo
from edgellm.formats.writer import GGUFWriter, NewTensor

SUMS, COUNTS = ".in_sum2", ".counts"
_F32 = TYPES_BY_NAME["F32"]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Importance:
    """By tensor name (experts, columns); where it comes from, for the metadata of what is made with it."""

    file: str
    datasets: tuple[str, ...]
    chunks: int
    entries: Mapping[str, Floats]

    def of(self, info: TensorInfo) -> Floats | None:
        """That of one tensor: (experts, columns), or None where it has none. Raises ShapeMismatch."""
        found = self.entries.get(info.name)
        if found is None:
            return None
        experts = info.shape[-3] if len(info.shape) >= 3 else 1
        if found.shape == (experts, info.shape[-1]):
            return found
        if info.name == "token_embd.weight":  # tied to an output that was multiplied with other rows
            return None
        message = f"has {found.shape[0]} x {found.shape[1]} columns where the tensor has {experts} x {info.shape[-1]}"
        raise ShapeMismatch(message + "; it was made for another model", file=self.file, field=info.name)


def read_importance(path: str | os.PathLike[str]) -> Importance:
    """An importance matrix in llama.cpp's GGUF form. Raises the FormatErrors."""
    with open_gguf(path) as gguf:
        kind = gguf.metadata.get("general.type")
        if kind != "imatrix":
            message = f"is {kind!r} and should be 'imatrix'; make one with edgellm imatrix, or with llama-imatrix as .gguf"
            raise Unsupported(message, file=gguf.path, field="general.type")
        entries = {name.removesuffix(SUMS): _entry(gguf, name) for name in gguf.tensors if name.endswith(SUMS)}
        datasets, chunks = gguf.metadata.get("imatrix.datasets", ()), gguf.metadata.get("imatrix.chunk_count", 0)
        names = tuple(datasets) if isinstance(datasets, Iterable) and not isinstance(datasets, str) else None
        if names is None or not all(isinstance(name, str) for name in names):
            raise BadType("is not a list of texts; make the importance matrix again", file=gguf.path, field="imatrix.datasets")
        if not isinstance(chunks, int):
            raise BadType("is not a whole number; make the importance matrix again", file=gguf.path, field="imatrix.chunk_count")
        return Importance(gguf.path, names, chunks, entries)


def _entry(gguf: GGUFFile, name: str) -> Floats:
    counts_name = name.removesuffix(SUMS) + COUNTS
    if counts_name not in gguf.tensors:
        raise Unsupported("has no counts; make the importance matrix again", file=gguf.path, field=counts_name)
    arrays = []
    for each in (name, counts_name):
        info = gguf.tensors[each]
        if info.type is not _F32 or len(info.shape) != 2:
            raise Unsupported("is not a matrix of F32; make the importance matrix again", file=gguf.path, field=each)
        arrays.append(gguf.raw(each).view("<f4").reshape(info.shape))
    sums, counts = arrays
    if counts.shape != (len(sums), 1):
        raise ShapeMismatch(f"has {counts.shape} counts for {len(sums)} experts; make it again", file=gguf.path, field=counts_name)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Floats = np.where(counts > 0, sums / counts, np.float32(1))  # an expert that was never asked: all columns alike
    if not np.isfinite(mean).all():
        raise Unsupported("has NaN or Inf; make the importance matrix again", file=gguf.path, field=name)
    return mean


def write_importance(
    path: str | os.PathLike[str],
    sums: Mapping[str, tuple[Floats, Floats]],
    *,
    datasets: Iterable[str],
    chunks: int,
    chunk_size: int,
) -> None:
    """Write sums of squares (experts, columns) and counts (experts, 1) by tensor name, as llama-imatrix does."""
    metadata = {
        "general.type": "imatrix",
        "imatrix.datasets": list(datasets),
        "imatrix.chunk_count": np.uint32(chunks),
        "imatrix.chunk_size": np.uint32(chunk_size),
    }
    arrays = [(name + suffix, array) for name in sorted(sums) for suffix, array in zip((SUMS, COUNTS), sums[name], strict=True)]
    with GGUFWriter(path, metadata, [NewTensor(name, array.shape, _F32) for name, array in arrays]) as writer:
        for name, array in arrays:
            writer.write(name, np.ascontiguousarray(array, np.float32))
