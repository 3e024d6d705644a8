"""NVFP4 and MXFP4 checkpoints (NVIDIA's ModelOpt, compressed-tensors, Quark): 4-bit floats with a scale for 16 or 32 columns.

w = e2m1 * scale, and in NVFP4 * a number for the whole matrix, which GGUF has in a tensor `.scale` beside it.
"""

from __future__ import annotations

import numpy as np

from edgellm.checkpoints.packings.exact import ExactCheckpoint, Floats
from edgellm.checkpoints.packings.scaled import EIGHT_BITS
from edgellm.checkpoints.packings.scaled import VALUES as OF_EIGHT
from edgellm.checkpoints.source import Rows, Source
from edgellm.errors import BadTensorInfo, Unsupported
from edgellm.formats.codecs.mxfp4 import VALUES as TWICE
from edgellm.formats.mapped import Bytes
from edgellm.formats.safetensors import SafeTensorsFile

CODES, SCALE = ("weight_packed", "weight"), "weight_scale"
OF_MATRIX = ("weight_scale_2", "weight_global_scale")  # ModelOpt multiplies by its number, compressed-tensors divides
GROUPS = {EIGHT_BITS: ("NVFP4", 16), "U8": ("MXFP4", 32)}  # by the type of the scales
BLOCK = {"NVFP4": 64, "MXFP4": 32}
LARGEST = 0x7E  # scale of NVFP4 in GGUF: no sign, no NaN


class Float4Checkpoint(ExactCheckpoint):
    """`type_of`: NVFP4 or MXFP4, by the matrix's name without `.weight`."""

    PARTS = (*CODES, SCALE, *OF_MATRIX, "input_scale", "input_global_scale")

    def __init__(self, file: SafeTensorsFile, first: dict[str, str]) -> None:
        self.type_of = {base: GROUPS[file.tensors[f"{base}.{SCALE}"].dtype] for base in first}
        super().__init__(file, first)

    def _shape(self, base: str) -> tuple[int, int]:
        info, scale = self._file.tensors[self._first[base]], self._file.tensors[f"{base}.{SCALE}"]
        fits = len(info.shape) == 2 and scale.shape == (info.shape[0], 2 * info.shape[1] / self.type_of[base][1])
        if not fits:
            raise BadTensorInfo(
                f"the scales of shape {scale.shape} do not fit {info.shape}; download the folder again",
                file=self.paths[info.part],
                field=info.name,
            )
        return info.shape[0], 2 * info.shape[1]

    def _factor(self, base: str) -> float:
        name = next((f"{base}.{part}" for part in OF_MATRIX if f"{base}.{part}" in self._file.tensors), "")
        if not name:
            return 1.0
        values = self._file.array(name).reshape(-1)
        if values.dtype != np.float32 or len(values) != 1 or not np.isfinite(values[0]) or values[0] <= 0:
            raise BadTensorInfo("is not one positive number; download the folder again", file=self.paths[0], field=name)
        return float(values[0] if name.endswith(OF_MATRIX[0]) else 1 / values[0])

    def _parts(self, base: str) -> tuple[Bytes, Bytes]:
        """Codes (rows, groups, columns of a group) and scales (rows, groups), a byte each."""
        (rows, _), (_, group) = self._shape(base), self.type_of[base]
        pairs = self._file.raw(self._first[base])
        codes = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(rows, -1, group)
        return codes, self._file.raw(f"{base}.{SCALE}").reshape(rows, -1)

    def values(self, name: str) -> Floats:
        base = name.removesuffix(".weight")
        codes, scales = self._parts(base)
        sizes = OF_EIGHT[scales] if self.type_of[base][0] == "NVFP4" else np.ldexp(np.float32(1), scales.astype(np.int32) - 127)
        half = np.float32(self._factor(base) / 2)
        return (sizes[..., None] * TWICE[codes] * half).astype(np.float32).reshape(len(codes), -1)

    def exact_type(self, source: Source) -> tuple[str, str]:
        bases = [name.removesuffix(".weight") for name in source.names]
        kinds = {self.type_of[base][0] for base in bases}
        kind = min(kinds)
        if len(kinds) > 1:
            return "BF16", "their experts are of several types"
        if source.whole[-1] % BLOCK[kind]:
            return "BF16", f"their rows are not whole blocks of {BLOCK[kind]} columns"
        largest = LARGEST if kind == "NVFP4" else 0xFE
        if any(self._file.raw(f"{base}.{SCALE}").max(initial=0) > largest for base in bases):
            return "BF16", f"{kind} of GGUF has no place for one of their scales"
        return kind, ""

    def factors(self, source: Source) -> Floats | None:
        found = np.array([self._factor(name.removesuffix(".weight")) for name in source.names], np.float32)
        return None if (found == 1).all() else found

    def encoded(self, name: str, kind: str, rows: Rows | None) -> Bytes:
        codes, scales = (part if rows is None else part[rows] for part in self._parts(name.removesuffix(".weight")))
        group = codes.shape[-1]
        packed = (codes[..., : group // 2] | codes[..., group // 2 :] << 4).reshape(-1, BLOCK[kind] // 2)
        return np.concatenate([scales.reshape(len(packed), -1), packed], axis=1).reshape(-1)


def floats_of_4_bits(file: SafeTensorsFile) -> SafeTensorsFile:
    """The file, or where it has matrices of 4-bit floats, one that gives their values. Raises Unsupported, BadTensorInfo."""
    first: dict[str, str] = {}
    for name, info in file.tensors.items():
        base, _, part = name.rpartition(".")
        scale = file.tensors.get(f"{base}.{SCALE}")
        if part not in CODES or info.dtype != "U8" or scale is None or len(scale.shape) < 2:
            continue
        if scale.dtype not in GROUPS:
            raise Unsupported(
                f"has scales of {scale.dtype}, which edgellm does not convert; convert the checkpoint in BF16",
                file=file.paths[info.part],
                field=name,
            )
        first[base] = name
    return Float4Checkpoint(file, first) if first else file
