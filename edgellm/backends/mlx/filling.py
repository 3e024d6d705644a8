"""Fills the matrices of MLX from a file piece by piece, so that there is no second copy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from edgellm.backends.mlx.grid_matrix import Grid
from edgellm.backends.mlx.groups import GROUP, SUPERBLOCKS, TRAITS, Bytes, GroupTraits, check_type, halves, packed
from edgellm.backends.mlx.matrices import PIECE, AffineHalves, Array, Dense, Groups, Matrix, Superblocks
from edgellm.backends.mlx.octets import DEFINITIONS
from edgellm.errors import Unsupported
from edgellm.formats.codecs import CODECS, mxfp4, nvfp4
from edgellm.formats.codecs._blocks import nibbles
from edgellm.formats.ggml_types import FLOAT_GROUPS, MLX
from edgellm.weights import Weight

LARGEST_STEP = 500.0  # 128 times as much is the end of f16
DENSE = {"F32": (np.float32, mx.float32), "F16": (np.float16, mx.float16), "BF16": (np.uint16, mx.bfloat16)}
TYPES = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16, "U8": mx.uint8}


def load_matrix(weight: Weight, half: bool) -> Matrix:
    """A matrix of the file, or those of all experts one after the other. `half`: products in 16 bits, as GPUs like them.

    Raises Unsupported for a type without a mapping.
    """
    if len(weight.shape) == 4:  # of a convolution: a row for each channel that it gives
        weight = replace(weight, data=weight.data.reshape(weight.shape[0], -1))
        weight = replace(weight, shape=(weight.shape[0], math.prod(weight.shape[1:])))
    weight = replace(weight, shape=(len(weight.data), weight.shape[-1]))
    rows, columns = weight.shape
    kind = weight.type.name
    check_type(weight.type, weight.file, weight.name)
    if kind in DENSE:
        stored, target = DENSE[kind]
        whole = mx.zeros((rows, columns), target)
        for at, raw in _pieces(weight):
            _put(whole, at, mx.array(raw.view(stored)).view(target))
        return Dense(whole, half)
    if weight.type.origin == MLX:
        return _load_own(weight, half)
    if kind == "MXFP4":
        return _load_mxfp4(weight, half)
    if kind == "NVFP4":
        return _load_nvfp4(weight, half)
    if kind in DEFINITIONS:
        raw = mx.zeros(weight.data.shape, mx.uint8)
        for at, rows_of_bytes in _pieces(weight):
            _put(raw, at, mx.array(rows_of_bytes))
        return Grid(raw, kind, half)
    return _load_superblocks(weight, half) if kind in SUPERBLOCKS else _load_groups(weight, TRAITS[kind], half)


def _load_groups(weight: Weight, traits: GroupTraits, half: bool) -> Matrix:
    rows, columns = weight.shape
    step_type = _step_type(weight)
    n, paired = columns // traits.mlx_group, traits.group < GROUP
    stores = [mx.zeros((rows, columns * traits.bits // 32), mx.uint32)]
    stores += [mx.zeros((rows, n), step_type) for _ in range(4 if paired else 2)]
    for at, raw in _pieces(weight):
        unpacked, *values = _unpack(raw, weight.type.name, traits)
        values = [value.reshape(len(raw), -1) for value in values]
        if paired:
            (mean_step, step), (mean_low, low) = (halves(value) for value in values)
            values = [mean_step, mean_low, step, low]
        _put(stores[0], at, mx.array(packed(unpacked.reshape(len(raw), -1), traits.bits).view(np.uint32)))
        for store, value in zip(stores[1:], values, strict=True):
            _put(store, at, mx.array(value).astype(store.dtype))
    quants, *ends = stores
    found = [Groups([quants, *ends[at : at + 2]], half, "affine", traits.bits, traits.mlx_group) for at in range(0, len(ends), 2)]
    return AffineHalves(found[0], found[1], half) if paired else found[0]


def _load_superblocks(weight: Weight, half: bool) -> Matrix:
    traits = SUPERBLOCKS[weight.type.name]
    stores: list[Any] = []
    for at, raw in _pieces(weight):
        quants, *parts = traits.unpack(np.ascontiguousarray(raw).reshape(-1).view(CODECS[weight.type.name].dtype))
        values = [part.reshape(len(raw), -1) for part in (quants, *parts)]
        values[0] = packed(values[0], traits.bits).view(np.uint32)
        arrays = [mx.array(value) for value in values]
        stores = stores or [mx.zeros((weight.shape[0], array.shape[1]), array.dtype) for array in arrays]
        for store, array in zip(stores, arrays, strict=True):
            _put(store, at, array)
    return Superblocks(stores[0], stores[1:], traits.zero, traits.bits, half, _step_type(weight))


def _unpack(raw: Bytes, kind: str, traits: GroupTraits) -> tuple[Any, Any, Any]:
    with np.errstate(all="ignore"):  # damaged scales end as NaN or Inf logits
        return traits.unpack(np.ascontiguousarray(raw).reshape(-1).view(CODECS[kind].dtype))


def _step_type(weight: Weight) -> Any:
    """f16, or f32 where a step that large could not be multiplied by 128 in f16: no file of a real model has one."""
    largest = 0.0
    for _, raw in _pieces(weight):
        d = np.ascontiguousarray(raw).reshape(-1).view(CODECS[weight.type.name].dtype)["d"]
        largest = max(largest, float(np.nan_to_num(np.abs(d)).max(initial=0.0)))
    return mx.float16 if largest < LARGEST_STEP else mx.float32


def _load_mxfp4(weight: Weight, half: bool) -> Matrix:
    rows, columns = weight.shape
    quants, scales = mx.zeros((rows, columns // 8), mx.uint32), mx.zeros((rows, columns // GROUP), mx.uint8)
    for at, raw in _pieces(weight):
        blocks = np.ascontiguousarray(raw).reshape(-1).view(mxfp4.DTYPE)
        _put(quants, at, mx.array(packed(nibbles(blocks["qs"]).reshape(len(raw), -1), 4).view(np.uint32)))
        _put(scales, at, mx.array(np.ascontiguousarray(blocks["e"]).reshape(len(raw), -1)))
    return Groups([quants, scales], half, "mxfp4", *FLOAT_GROUPS["mxfp4"])


def _load_nvfp4(weight: Weight, half: bool) -> Matrix:
    rows, columns = weight.shape
    quants, scales = mx.zeros((rows, columns // 8), mx.uint32), mx.zeros((rows, columns // FLOAT_GROUPS["nvfp4"][1]), mx.uint8)
    for at, raw in _pieces(weight):
        blocks = np.ascontiguousarray(raw).reshape(-1).view(nvfp4.DTYPE)
        _put(quants, at, mx.array(packed(nibbles(blocks["qs"], 8).reshape(len(raw), -1), 4).view(np.uint32)))
        # ggml takes 0x7F for 0 and no notice of a sign, which no writer sets; MLX has no 480, which is its 0xFF.
        number = np.where(blocks["d"] == 0x7F, 0, np.minimum(blocks["d"] & 0x7F, 0x7E)).astype(np.uint8)
        _put(scales, at, mx.array(number.reshape(len(raw), -1)))
    matrix = Groups([quants, scales], half, "nvfp4", *FLOAT_GROUPS["nvfp4"])
    try:
        mx.eval(matrix(mx.zeros((1, columns))))
    except ValueError as error:
        raise Unsupported(
            "uses NVFP4, which this version of MLX lacks; pip install -U mlx, or use the back end cpu",
            file=weight.file,
            field=weight.name,
        ) from error
    return matrix


def _load_own(weight: Weight, half: bool) -> Matrix:
    """A matrix that MLX quantised itself: copied as it is."""
    bits = width_of(weight)
    quants = mx.zeros((weight.shape[0], weight.shape[1] * bits // 32), mx.uint32)
    for at, raw in _pieces(weight):
        _put(quants, at, mx.array(raw.view(np.uint32)))
    ends = [mx.array(part.data).view(TYPES[part.dtype]) for part in weight.companions]
    return Groups([quants, *ends], half, mode_of(weight), bits, weight.type.block)


def mode_of(weight: Weight) -> str:
    """MLX's name for how a matrix of its own is quantised."""
    return weight.type.name.split()[1]


def width_of(weight: Weight) -> int:
    """Bits of a code of MLX's own groups."""
    return weight.type.block_bytes * 8 // weight.type.block


def table_rows(weight: Weight, ids: npt.NDArray[np.integer[Any]]) -> Array:
    """Rows (T, columns) f32 of a table in MLX's own groups; nothing is computed yet."""
    quants = mx.array(np.ascontiguousarray(weight.data[ids]).view(np.uint32))
    ends = [mx.array(part.data[ids]).view(TYPES[part.dtype]) for part in weight.companions]
    if len(ends) == 1:
        floats = mx.dequantize(quants, ends[0], group_size=weight.type.block, bits=width_of(weight), mode=mode_of(weight))
        return floats.astype(mx.float32)
    ends = [end.astype(mx.float32) for end in ends]
    return mx.dequantize(quants, *ends, group_size=weight.type.block, bits=width_of(weight))


def _pieces(weight: Weight) -> Iterator[tuple[int, Bytes]]:
    step = max(1, PIECE // weight.shape[-1])
    for at in range(0, len(weight.data), step):
        yield at, weight.data[at : at + step]


def _put(store: Array, at: int, rows: Array) -> None:
    """Rows written in place: nothing else holds the old value, so that MLX reuses its memory."""
    store[at : at + len(rows)] = rows
    mx.eval(store)
