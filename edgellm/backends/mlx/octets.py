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

Number: TypeAlias = Any  # an array of MLX, or a text of Metal's language, whole or real
OCTETS = 32  # of a block of 256 weights


class Reader(Protocol):
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


Define = Callable[[Reader, Number], Octet]  # of octet o of a block


def _iq2_xxs(b: Reader, o: Number) -> Octet:
    word = b.u32(6 + 8 * (o >> 2))
    step = b.half(b.u16(0)) * (0.5 + b.real(word >> 28)) * 0.25
    return Octet(step, (b.u8(2 + 8 * (o >> 2) + (o & 3)),), b.even(word >> 7 * (o & 3) & 127))


def _iq2_step(b: Reader, o: Number, scales: int) -> Number:
    return b.half(b.u16(0)) * (0.5 + b.real(b.u8(scales + (o >> 2)) >> 4 * (o >> 1 & 1) & 15)) * 0.25


def _iq2_xs(b: Reader, o: Number) -> Octet:
    word = b.u16(2 + 2 * o)
    return Octet(_iq2_step(b, o, 66), (word & 511,), b.even(word >> 9))


def _iq2_s(b: Reader, o: Number) -> Octet:
    point = b.u8(2 + o) | (b.u8(66 + (o >> 2)) >> 2 * (o & 3) & 3) << 8
    return Octet(_iq2_step(b, o, 74), (point,), b.u8(34 + o))


def _iq3_xxs(b: Reader, o: Number) -> Octet:
    word = b.u32(66 + 4 * (o >> 2))
    step = b.half(b.u16(0)) * (0.5 + b.real(word >> 28)) * 0.5
    return Octet(step, (b.u8(2 + 2 * o), b.u8(3 + 2 * o)), b.even(word >> 7 * (o & 3) & 127))


def _iq3_s(b: Reader, o: Number) -> Octet:
    high = b.u8(66 + (o >> 2)) >> 2 * (o & 3)
    points = tuple(b.u8(2 + i + 2 * o) | (high >> i & 1) << 8 for i in range(2))
    step = b.half(b.u16(0)) * (1.0 + 2.0 * b.real(b.u8(106 + (o >> 3)) >> 4 * (o >> 2 & 1) & 15))
    return Octet(step, points, b.u8(74 + o))


def _iq1_s(b: Reader, o: Number) -> Octet:
    high = b.u16(34 + 2 * (o >> 2))
    step = b.half(b.u16(0)) * (1.0 + 2.0 * b.real(high >> 12 & 7))
    return Octet(step, (b.u8(2 + o) | (high >> 3 * (o & 3) & 7) << 8,), shift=0.125 - 0.25 * b.real(high >> 15))


def _iq1_m(b: Reader, o: Number) -> Octet:
    d = b.u16(48) >> 12 | (b.u16(50) >> 12) << 4 | (b.u16(52) >> 12) << 8 | (b.u16(54) >> 12) << 12
    step = b.half(d) * (1.0 + 2.0 * b.real(b.u16(48 + 2 * (o >> 3)) >> 3 * (o >> 1 & 3) & 7))
    high = b.u8(32 + (o >> 1)) >> 4 * (o & 1) & 15
    return Octet(step, (b.u8(o) | (high & 7) << 8,), shift=0.125 - 0.25 * b.real(high >> 3))


def _iq4_xs(b: Reader, o: Number) -> Octet:
    scale = b.u8(4 + (o >> 3)) >> 4 * (o >> 2 & 1) & 15 | (b.u16(2) >> 2 * (o >> 2) & 3) << 4
    first = 8 + 16 * (o >> 2) + 8 * (o & 1)
    points = tuple(b.u8(first + i) >> 4 * (o >> 1 & 1) & 15 for i in range(8))
    return Octet(b.half(b.u16(0)) * (b.real(scale) - 32.0), points)


DEFINITIONS: dict[str, tuple[Define, str]] = {
    "IQ1_S": (_iq1_s, "IQ1_S"),
    "IQ1_M": (_iq1_m, "IQ1_S"),
    "IQ2_XXS": (_iq2_xxs, "IQ2_XXS"),
    "IQ2_XS": (_iq2_xs, "IQ2_XS"),
    "IQ2_S": (_iq2_s, "IQ2_S"),
    "IQ3_XXS": (_iq3_xxs, "IQ3_XXS"),
    "IQ3_S": (_iq3_s, "IQ3_S"),
    "IQ4_XS": (_iq4_xs, ""),
}
"""By type name: the definition, and whose grid it has; "" for IQ4's values, points of one coordinate."""


def points(kind: str) -> npt.NDArray[np.int8]:
    """The grid of a type: (points, coordinates)."""
    name = DEFINITIONS[kind][1]
    return grid(name) if name else iq4_nl.VALUES.astype(np.int8)[:, None]
