"""Matrices in MLX's groups: their types, their values as floats, and the blocks of GGUF that hold them exactly.

Affine codes of at most 4 bits are Q4_1, those of 5 bits Q5_1, where f16 holds scales and biases; mxfp4 is MXFP4, nvfp4 NVFP4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.checkpoints.packings.exact import ExactCheckpoint, Floats
from edgellm.checkpoints.packings.scaled import VALUES as OF_EIGHT
from edgellm.checkpoints.source import Rows, Source
from edgellm.errors import BadTensorInfo, ShapeMismatch, Unsupported
from edgellm.formats.codecs import CODECS
from edgellm.formats.codecs.mxfp4 import VALUES as TWICE
from edgellm.formats.ggml_types import FLOAT_GROUPS, MLX, TYPES_BY_NAME, GGMLType
from edgellm.formats.mapped import Bytes
from edgellm.formats.safetensors import SafeTensorsFile

MODES = ("affine", *FLOAT_GROUPS)
EXACT = {"mxfp4": "MXFP4", "nvfp4": "NVFP4"}
LARGEST = {"mxfp4": 0xFE, "nvfp4": 0x7E}  # scale that GGUF has as well: neither NaN nor negative
AT_ONCE = 1 << 22  # values that are decoded together
Typed = tuple[GGMLType, tuple[int, ...]]


def settings_of(config: Mapping[str, Any]) -> Any:
    """How the matrices of a folder are quantised: of all, and by name of some."""
    return config.get("quantization") or config.get("quantization_config") or {}


def type_of(file: SafeTensorsFile, name: str, quantisation: Mapping[str, Any], path: str) -> Typed:
    """The type of a matrix and its shape in values. Raises Unsupported, ShapeMismatch and BadTensorInfo, naming the tensor."""
    info, base = file.tensors[name], name.removesuffix(".weight")
    scales, shape = file.tensors.get(f"{base}.scales"), info.shape
    if info.dtype != "U32" or scales is None or len(shape) not in (2, 3):
        raise Unsupported(
            f"is {info.dtype}, which is not a weight that edgellm can read; get the model whose weights are "
            f"floats, or MLX's {', '.join(MODES)}",
            file=path,
            field=name,
        )
    own = quantisation.get(base)
    settings = own if isinstance(own, Mapping) else quantisation  # its own alone, as in mlx_lm: without a mode it is affine
    mode = settings.get("mode", "affine")
    bits = FLOAT_GROUPS[mode][0] if mode in FLOAT_GROUPS else settings.get("bits")
    if mode not in MODES or bits not in (2, 3, 4, 5, 6, 8):
        raise Unsupported(
            f"is quantised as {str(mode)[:40]!r} with {str(bits)[:40]} bits; edgellm reads {', '.join(MODES)}",
            file=path,
            field=name,
        )
    columns = shape[-1] * 32 // bits
    groups = scales.shape[-1] if scales.shape and scales.shape[:-1] == shape[:-1] else 0
    sizes = FLOAT_GROUPS[mode][1:] if mode in FLOAT_GROUPS else (32, 64, 128)
    if not groups or columns % groups or columns // groups not in sizes:
        raise ShapeMismatch(
            f"has scales of shape {scales.shape} for {math.prod(shape[:-1])} rows of {columns}; the folder is damaged",
            file=path,
            field=name,
        )
    if (scales.dtype == "U8") != (mode in FLOAT_GROUPS):
        raise Unsupported(
            f"is {scales.dtype}, which no scale of {mode} is; download the folder again", file=path, field=scales.name
        )
    group = columns // groups
    if mode == "affine" and getattr(file.tensors.get(f"{base}.biases"), "shape", None) != scales.shape:
        raise BadTensorInfo("the tensor lacks its biases; download the folder again", file=path, field=name)
    return GGMLType(-bits, f"MLX {mode} {bits}/{group}", group, group * bits // 8, MLX), (*shape[:-1], columns)


class GroupedCheckpoint(ExactCheckpoint):
    """A folder of MLX whose matrices in groups, or some of them, answer as floats."""

    PARTS = ("weight", "scales", "biases")

    def __init__(self, file: SafeTensorsFile, types: dict[str, Typed]) -> None:
        self._types = types
        super().__init__(file, {base: f"{base}.weight" for base in types})

    def _shape(self, base: str) -> tuple[int, ...]:
        return self._types[base][1]

    def _codes(self, base: str) -> Bytes:
        """The codes of all values (rows, columns), a byte each."""
        kind, shape = self._types[base]
        width, packed = -kind.id, self._file.raw(f"{base}.weight").reshape(math.prod(shape[:-1]), -1)
        bits = np.unpackbits(packed, axis=1, bitorder="little").reshape(len(packed), -1, width)
        return np.packbits(bits, axis=-1, bitorder="little")[..., 0]

    def _ends(self, base: str) -> list[npt.NDArray[Any]]:
        """Scales, and biases of affine groups: (rows, groups), as floats or as the bytes of small floats' scales."""
        found = [f"{base}.{end}" for end in self.PARTS[1:] if f"{base}.{end}" in self._file.tensors]
        return [self._file.array(name).reshape(-1, self._file.tensors[name].shape[-1]) for name in found]

    def values(self, name: str) -> Floats:
        base = name.removesuffix(".weight")
        kind, shape = self._types[base]
        mode, codes = kind.name.split()[1], self._codes(base).reshape(math.prod(shape[:-1]), -1, kind.block)
        ends = [end[..., None] for end in self._ends(base)]
        if mode == "affine":
            values: Any = codes * ends[0].astype(np.float32) + ends[1].astype(np.float32)
        else:
            with np.errstate(invalid="ignore", over="ignore"):
                powers = np.ldexp(np.float32(1), ends[0].astype(np.int32) - 127)
                scale = OF_EIGHT[ends[0]] if mode == "nvfp4" else powers
                values = (OF_EIGHT[codes] if mode == "mxfp8" else TWICE[codes] * np.float32(0.5)) * scale
        exact: Floats = values.astype(np.float32).reshape(shape)
        return exact

    def exact_type(self, source: Source) -> tuple[str, str]:
        bases = [name.removesuffix(".weight") for name in source.names]
        found = {self._exact_type(base) for base in bases}
        return found.pop() if len(found) == 1 else ("F16", "their experts are of several types")

    def _exact_type(self, base: str) -> tuple[str, str]:
        kind, shape = self._types[base]
        mode = kind.name.split()[1]
        wanted = EXACT.get(mode) or ("Q4_1" if -kind.id < 5 else "Q5_1" if kind.id == -5 else "")
        if mode == "mxfp8" or not wanted:
            return "F16", f"GGUF has no type for {kind.name}"
        if shape[-1] % TYPES_BY_NAME[wanted].block:
            return "F16", f"their rows are not whole blocks of {wanted}"
        ends = self._ends(base)
        if mode in EXACT:
            return (wanted, "") if ends[0].max(initial=0) <= LARGEST[mode] else ("BF16", f"{wanted} has no place for their scales")
        with np.errstate(over="ignore"):
            fits = all((end.astype(np.float16).astype(np.float32) == end).all() for end in ends)
        return (wanted, "") if fits else ("F16", "f16 has no place for their scales")

    def encoded(self, name: str, kind: str, rows: Rows | None) -> Bytes:
        base = name.removesuffix(".weight")
        codes, ends = self._codes(base), self._ends(base)
        if rows is not None:
            codes, ends = codes[rows], [end[rows] for end in ends]
        block = TYPES_BY_NAME[kind].block
        blocks = np.zeros(codes.size // block, CODECS[kind].dtype)
        if kind in EXACT.values():
            group = self._types[base][0].block
            parts = codes.reshape(-1, block // group, group)
            blocks["qs"] = (parts[..., : group // 2] | parts[..., group // 2 :] << 4).reshape(len(blocks), -1)
            field = "e" if kind == "MXFP4" else "d"
            blocks[field] = ends[0].reshape(blocks[field].shape)
        else:
            plain, repeated = codes.reshape(-1, block), self._types[base][0].block // block
            blocks["qs"] = plain[:, : block // 2] & 15 | (plain[:, block // 2 :] & 15) << 4
            blocks["d"], blocks["m"] = (np.repeat(end.reshape(-1), repeated).astype(np.float16) for end in ends)
            if kind == "Q5_1":
                high = np.packbits(plain >> 4, axis=-1, bitorder="little")
                blocks["qh"] = high.reshape(len(blocks), -1).view(blocks["qh"].dtype).reshape(blocks["qh"].shape)
        return blocks.view(np.uint8).reshape(-1)


def grouped(file: SafeTensorsFile, config: Mapping[str, Any], wanted: Callable[[str], bool] = lambda name: True) -> SafeTensorsFile:
    """The file, or where it has matrices in MLX's groups, one that gives the values of those `wanted`, by the tensor's name."""
    quantisation = settings_of(config)
    types = {
        name.removesuffix(".weight"): type_of(file, name, quantisation, file.paths[info.part])
        for name, info in file.tensors.items()
        if info.dtype == "U32"
        and name.endswith(".weight")
        and f"{name.removesuffix('weight')}scales" in file.tensors
        and wanted(name)
    }
    return GroupedCheckpoint(file, types) if types else file
