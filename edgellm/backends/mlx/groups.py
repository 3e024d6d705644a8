"""How each block type becomes quants, steps and offsets of MLX's affine groups: w = step * code + low, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.backends.mlx.device import MULTIPLIED
from edgellm.backends.mlx.octets import DEFINITIONS
from edgellm.errors import Unsupported
from edgellm.formats.codecs._blocks import bits, fifth_bits, nibbles, scales_and_mins
from edgellm.formats.ggml_types import MLX, GGMLType
from edgellm.formats.gguf import TensorInfo
from edgellm.graph import Graph
from edgellm.ops import weight_uses
from edgellm.weights import WeightStore

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Blocks = npt.NDArray[np.void]  # structured: one element is one block
Groups = tuple[Bytes, Floats, Floats]  # quants (blocks, n), step and low (blocks, n / group)

SuperblockParts = tuple[npt.NDArray[Any], ...]  # quants (blocks, 256), d (blocks,), scales (blocks, 16); dmin, mins

GROUP = 32  # elements: the smallest group that mx.quantized_matmul takes
SMALL_TABLE = 8  # times its size are the matrices, at least


@dataclass(frozen=True, slots=True)
class GroupTraits:
    """One block type: bits of its quants, elements per step, and the unpacker. Quants are exact; steps are rounded to f16."""

    bits: int
    group: int
    unpack: Callable[[Blocks], Groups]

    def nbytes(self, elements: int) -> int:
        """Bytes that MLX holds for so many weights: quants, and per group of them f16 step and low, twice where halves differ."""
        return elements * self.bits // 8 + elements // self.mlx_group * 4 * (self.mlx_group // self.group)

    @property
    def mlx_group(self) -> int:
        """Elements of a group in MLX."""
        return max(self.group, GROUP)


@dataclass(frozen=True, slots=True)
class SuperblockTraits:
    """A type of 16 groups of 16, kept as quants, f16 d (and dmin) per 256, and a whole number (and another) of 8 bits per 16.

    `zero`: the quant that stands for 0, where groups have no offset of their own.
    """

    bits: int
    zero: int
    unpack: Callable[[Blocks], SuperblockParts]

    def nbytes(self, elements: int) -> int:
        """Bytes that MLX holds for so many weights."""
        return elements * self.bits // 8 + (elements // 128 + elements // 16) * (1 if self.zero else 2)


def _f32(field: npt.NDArray[Any]) -> Floats:  # Any: f16, i8 or u8
    return field.astype(np.float32)


def _symmetric(step: Floats, quants: Bytes, zero: int) -> Groups:
    return quants, step, step * np.float32(-zero)


def _q4_0(blocks: Blocks) -> Groups:
    return _symmetric(_f32(blocks["d"])[:, None], nibbles(blocks["qs"]), 8)


def _q4_1(blocks: Blocks) -> Groups:
    return nibbles(blocks["qs"]), _f32(blocks["d"])[:, None], _f32(blocks["m"])[:, None]


def _fifth(blocks: Blocks) -> Bytes:
    quants: Bytes = nibbles(blocks["qs"]) | fifth_bits(blocks["qh"]) << np.uint8(4)
    return quants


def _q5_0(blocks: Blocks) -> Groups:
    return _symmetric(_f32(blocks["d"])[:, None], _fifth(blocks), 16)


def _q5_1(blocks: Blocks) -> Groups:
    return _fifth(blocks), _f32(blocks["d"])[:, None], _f32(blocks["m"])[:, None]


def _q8_0(blocks: Blocks) -> Groups:
    return _symmetric(_f32(blocks["d"])[:, None], blocks["qs"].view(np.uint8) ^ np.uint8(128), 128)


def _k_steps(blocks: Blocks) -> tuple[Floats, Floats]:
    steps, lows = scales_and_mins(blocks["scales"])
    return _f32(blocks["d"])[:, None] * _f32(steps), -_f32(blocks["dmin"])[:, None] * _f32(lows)


def _q4_k(blocks: Blocks) -> Groups:
    return nibbles(blocks["qs"], 32), *_k_steps(blocks)


def _q5_k(blocks: Blocks) -> Groups:
    return nibbles(blocks["qs"], 32) | bits(blocks["qh"], 1) << np.uint8(4), *_k_steps(blocks)


def _q6_k(blocks: Blocks) -> Groups:
    quants = nibbles(blocks["ql"], 64) | bits(blocks["qh"], 2) << np.uint8(4)
    return _symmetric(_f32(blocks["d"])[:, None] * _f32(blocks["scales"]), quants, 32)


def _q2_k(blocks: Blocks) -> SuperblockParts:
    scales = blocks["scales"]
    return bits(blocks["qs"], 2), blocks["d"], scales & np.uint8(15), blocks["dmin"], scales >> np.uint8(4)


def _q3_k(blocks: Blocks) -> SuperblockParts:
    packed = blocks["scales"]
    scales = (nibbles(packed[:, :8], 8) | bits(packed[:, 8:], 2, 4) << np.uint8(4)).astype(np.int8) - np.int8(32)
    return bits(blocks["qs"], 2) | bits(blocks["hmask"], 1) << np.uint8(2), blocks["d"], scales


def _repeated(blocks: Blocks, times: int) -> Floats:
    """d of each block, for so many groups."""
    return np.repeat(_f32(blocks["d"])[:, None], times, axis=1)


def _tq2_0(blocks: Blocks) -> Groups:
    return _symmetric(_repeated(blocks, 2), bits(blocks["qs"], 2), 1)


def _q2_0(blocks: Blocks) -> Groups:
    return _symmetric(_repeated(blocks, 1), bits(blocks["qs"], 2, 1), 1)


TRAITS = {
    "Q4_0": GroupTraits(4, 32, _q4_0),
    "Q4_1": GroupTraits(4, 32, _q4_1),
    "Q5_0": GroupTraits(5, 32, _q5_0),
    "Q5_1": GroupTraits(5, 32, _q5_1),
    "Q8_0": GroupTraits(8, 32, _q8_0),
    "Q4_K": GroupTraits(4, 32, _q4_k),
    "Q5_K": GroupTraits(5, 32, _q5_k),
    "Q6_K": GroupTraits(6, 16, _q6_k),
    "TQ2_0": GroupTraits(2, 128, _tq2_0),
    "Q2_0": GroupTraits(2, 64, _q2_0),
}
"""By type name."""

SUPERBLOCKS = {"Q2_K": SuperblockTraits(2, 0, _q2_k), "Q3_K": SuperblockTraits(3, 4, _q3_k)}

PLAIN = ("F32", "F16", "BF16", "MXFP4", "NVFP4")  # of which MLX has the bits themselves


def check_type(kind: GGMLType, file: str, tensor: str) -> None:
    """Raises Unsupported for a type that matrices cannot have."""
    if kind.origin == MLX or any(kind.name in table for table in (TRAITS, SUPERBLOCKS, DEFINITIONS, PLAIN)):
        return
    raise Unsupported(f"uses {kind.name}, which the MLX back end cannot read yet; use the back end cpu", file=file, field=tensor)


def mlx_bytes(kind: GGMLType, elements: int) -> int:
    """Bytes that MLX holds for so many weights of a type of GGUF; other types than those in tables keep their size."""
    if kind.origin == MLX:
        return elements // kind.block * (kind.block_bytes + (4 if "affine" in kind.name else 1))
    traits = TRAITS.get(kind.name) or SUPERBLOCKS.get(kind.name)
    return traits.nbytes(elements) if traits else elements // kind.block * kind.block_bytes


def held(graph: Graph, tensors: Mapping[str, TensorInfo] | WeightStore) -> dict[str, int]:
    """The bytes of each matrix that MLX holds: those that are multiplied, and the table of tokens where answers are written and it
    is small beside them, so that a step can begin before its token is known here.
    """
    sizes, tables = dict[str, int](), dict[str, int]()
    for index, node in enumerate(graph.nodes):
        for use in weight_uses(graph, index):
            into = sizes if use.role in MULTIPLIED else tables if node.attrs.get("source") == "tokens" else None
            if into is not None:
                into[use.name] = mlx_bytes(tensors[use.name].type, math.prod(tensors[use.name].shape))
    small = not graph.embeds and sum(tables.values()) * SMALL_TABLE <= sum(sizes.values())
    return sizes | tables if small else sizes


def packed(quants: Bytes, width: int) -> Bytes:
    """Quants (rows, n) of `width` bits as MLX packs them, one after the other from the lowest bit: (rows, n * width / 8)."""
    words = np.ascontiguousarray(quants).view("<u8")  # 8 quants in 8 bytes, pushed together in three rounds
    for lanes in (8, 16, 32):
        low = np.uint64(sum(((1 << lanes) - 1) << at for at in range(0, 64, 2 * lanes)))
        gap = np.uint64(lanes - lanes // 8 * width)
        words = words & low | (words & ~low) >> gap
    return words.view(np.uint8).reshape(*words.shape, 8)[..., :width].reshape(len(quants), -1)


def halves(step: Floats) -> tuple[Floats, Floats]:
    """Steps of 16 elements as mean and half difference of neighbours: s0 = mean + difference, s1 = mean - difference."""
    pair = step.reshape(len(step), -1, 2) * np.float32(0.5)
    return pair[..., 0] + pair[..., 1], pair[..., 0] - pair[..., 1]
