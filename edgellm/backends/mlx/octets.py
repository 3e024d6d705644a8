"""How eight weights at a time follow from the bytes of a block, for types whose weights are points of a grid.

A definition is read twice: with MLX's arrays, all octets of a matrix at once, and with texts, as the source of a kernel for Metal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from edgellm.formats.codecs import iq4_nl
from edgellm.formats.codecs._grids import grid
from edgellm.formats.ggml_types import TYPES_BY_NAME

Number: TypeAlias = Any  # an array of MLX, or an expression in Metal's language; integer or float


class BlockReader(Protocol):
    """The bytes of a block; `at`: an offset in bytes."""

    def u8(self, at: Number) -> Number: ...

    def u16(self, at: Number) -> Number: ...

    def u32(self, at: Number) -> Number: ...

    def half(self, bits: Number) -> Number:
        """The real number of 16 bits."""
        ...

    def real(self, number: Number) -> Number: ...

    def even(self, seven: Number) -> Number:
        """Seven signs as eight, of which an even number are negative."""
        ...


@dataclass(frozen=True, slots=True)
class Octet:
    """Weights step * (point + shift), points negative where `signs` has a bit set, the lowest bit being the first one's.

    `points`: their numbers in the grid, one of eight coordinates, two of four, or eight of one.
    """

    step: Number
    points: tuple[Number, ...]
    signs: Number | None = None
    shift: Number | None = None


Define = Callable[[BlockReader, Number], Octet]  # of octet o of a block


def _iq2_xxs(b: BlockReader, o: Number) -> Octet:
    word = b.u32(6 + 8 * (o >> 2))
    step = b.half(b.u16(0)) * (0.5 + b.real(word >> 28)) * 0.25
    return Octet(step, (b.u8(2 + 8 * (o >> 2) + (o & 3)),), b.even(word >> 7 * (o & 3) & 127))


def _iq2_step(b: BlockReader, o: Number, scales: int) -> Number:
    return b.half(b.u16(0)) * (0.5 + b.real(b.u8(scales + (o >> 2)) >> 4 * (o >> 1 & 1) & 15)) * 0.25


def _iq2_xs(b: BlockReader, o: Number) -> Octet:
    word = b.u16(2 + 2 * o)
    return Octet(_iq2_step(b, o, 66), (word & 511,), b.even(word >> 9))


def _iq2_s(b: BlockReader, o: Number) -> Octet:
    point = b.u8(2 + o) | (b.u8(66 + (o >> 2)) >> 2 * (o & 3) & 3) << 8
    return Octet(_iq2_step(b, o, 74), (point,), b.u8(34 + o))


def _iq3_xxs(b: BlockReader, o: Number) -> Octet:
    word = b.u32(66 + 4 * (o >> 2))
    step = b.half(b.u16(0)) * (0.5 + b.real(word >> 28)) * 0.5
    return Octet(step, (b.u8(2 + 2 * o), b.u8(3 + 2 * o)), b.even(word >> 7 * (o & 3) & 127))


def _iq3_s(b: BlockReader, o: Number) -> Octet:
    high = b.u8(66 + (o >> 2)) >> 2 * (o & 3)
    points = tuple(b.u8(2 + i + 2 * o) | (high >> i & 1) << 8 for i in range(2))
    step = b.half(b.u16(0)) * (1.0 + 2.0 * b.real(b.u8(106 + (o >> 3)) >> 4 * (o >> 2 & 1) & 15))
    return Octet(step, points, b.u8(74 + o))


def _iq1_s(b: BlockReader, o: Number) -> Octet:
    high = b.u16(34 + 2 * (o >> 2))
    step = b.half(b.u16(0)) * (1.0 + 2.0 * b.real(high >> 12 & 7))
    return Octet(step, (b.u8(2 + o) | (high >> 3 * (o & 3) & 7) << 8,), shift=0.125 - 0.25 * b.real(high >> 15))


def _iq1_m(b: BlockReader, o: Number) -> Octet:
    d = b.u16(48) >> 12 | (b.u16(50) >> 12) << 4 | (b.u16(52) >> 12) << 8 | (b.u16(54) >> 12) << 12
    step = b.half(d) * (1.0 + 2.0 * b.real(b.u16(48 + 2 * (o >> 3)) >> 3 * (o >> 1 & 3) & 7))
    high = b.u8(32 + (o >> 1)) >> 4 * (o & 1) & 15
    return Octet(step, (b.u8(o) | (high & 7) << 8,), shift=0.125 - 0.25 * b.real(high >> 3))


def _iq4_xs(b: BlockReader, o: Number) -> Octet:
    scale = b.u8(4 + (o >> 3)) >> 4 * (o >> 2 & 1) & 15 | (b.u16(2) >> 2 * (o >> 2) & 3) << 4
    first = 8 + 16 * (o >> 2) + 8 * (o & 1)
    points = tuple(b.u8(first + i) >> 4 * (o >> 1 & 1) & 15 for i in range(8))
    return Octet(b.half(b.u16(0)) * (b.real(scale) - 32.0), points)


def _iq4_nl(b: BlockReader, o: Number) -> Octet:
    return Octet(b.half(b.u16(0)), tuple(b.u8(2 + 8 * (o & 1) + i) >> 4 * (o >> 1) & 15 for i in range(8)))


def _q1_0(b: BlockReader, o: Number) -> Octet:
    """Bits that are set stand for plus."""
    byte = b.u8(2 + o)
    return Octet(b.half(b.u16(0)), (byte & 0,), 255 - byte)


def _tq1_0(b: BlockReader, o: Number) -> Octet:
    """32 bytes with five digits each, then 16 with five, then 4 with four; first the first digits of all of them."""
    middle, last = o + 12 >> 5, o + 2 >> 5  # 1 from octet 20 on, and from octet 30 on
    points = []
    for i in range(8):
        at = (1 - middle) * (8 * (o & 3) + i) + (middle - last) * (32 + i + 8 * (o & 1)) + last * (48 + (i & 3))
        digit = (1 - middle) * (o >> 2) + (middle - last) * ((o >> 1) - 10) + last * (2 * o - 60 + (i >> 2))
        power = (1 + 2 * (digit & 1)) * (1 + 8 * (digit >> 1 & 1)) * (1 + 80 * (digit >> 2))  # of 3
        points.append((b.u8(at) * power & 255) * 3 >> 8)
    return Octet(b.half(b.u16(52)), tuple(points))


DEFINITIONS: dict[str, tuple[Define, str]] = {
    "IQ1_S": (_iq1_s, "IQ1_S"),
    "IQ1_M": (_iq1_m, "IQ1_S"),
    "IQ2_XXS": (_iq2_xxs, "IQ2_XXS"),
    "IQ2_XS": (_iq2_xs, "IQ2_XS"),
    "IQ2_S": (_iq2_s, "IQ2_S"),
    "IQ3_XXS": (_iq3_xxs, "IQ3_XXS"),
    "IQ3_S": (_iq3_s, "IQ3_S"),
    "IQ4_XS": (_iq4_xs, "IQ4"),
    "IQ4_NL": (_iq4_nl, "IQ4"),
    "Q1_0": (_q1_0, "ONE"),
    "TQ1_0": (_tq1_0, "THIRDS"),
}
"""By type name: the definition, and the name of its grid."""

OWN_GRIDS = {
    "IQ4": iq4_nl.VALUES.astype(np.int8)[:, None],
    "ONE": np.ones((1, 8), np.int8),
    "THIRDS": np.array([[-1], [0], [1]], np.int8),
}


def points(kind: str) -> npt.NDArray[np.int8]:
    """The grid of a type: (points, coordinates)."""
    name = DEFINITIONS[kind][1]
    return OWN_GRIDS[name] if name in OWN_GRIDS else grid(name)


def octets_of(kind: str) -> int:
    """Octets of a block."""
    return TYPES_BY_NAME[kind].block // 8
