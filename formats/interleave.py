"""Rows of weights interleaved in memory: a vector then has four bytes of each row of a group, and products need no shuffles and no
sums across lanes.

A group has as many rows as vectors have lanes of 32 bits. Its bytes are those of its rows: of every block in turn, and within it of
every unit (four bytes of quants or scales, two of an f16, one of an exponent) that of each row. Units come in the order in which
kernels read them, because a stream that only goes forwards is what processors prefetch best.

Of quants of 3 bits, which have two in one part of the file's block and one in another, the bits change places within a block before
that: most quants then lie in one byte, so that a mask is enough to read them; of the others parts fill up the bytes of several.
(For quants of 5 and 6 bits it would save hardly any time.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from .ggml_types import TYPES_BY_NAME
from .mapped import Bytes

# Of a block, in their order in memory: where units begin in it, how many bytes each of them has, and how many follow
# each other.
UNITS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "Q4_0": ((0, 2, 1), (2, 4, 4)),
    "Q4_1": ((0, 4, 5),),
    "Q5_0": ((0, 2, 1), (2, 4, 5)),
    "Q5_1": ((0, 4, 6),),
    "Q8_0": ((0, 2, 1), (2, 4, 8)),
    "IQ4_NL": ((0, 2, 1), (2, 4, 4)),
    "MXFP4": ((0, 1, 1), (1, 4, 4)),
    "Q2_K": ((80, 4, 1), (0, 4, 20)),
    "Q3_K": ((108, 2, 1), (96, 4, 3), (0, 4, 24)),
    "Q4_K": ((0, 4, 36),),
    "Q5_K": ((0, 4, 44),),
    "Q6_K": ((208, 2, 1), (192, 4, 4), (128, 4, 8), (0, 4, 16), (160, 4, 8), (64, 4, 16)),
    "IQ4_XS": ((0, 4, 34),),
}
PIECE = 1 << 19  # bytes that are moved at a time
assert all(sum(size * n for _, size, n in units) == TYPES_BY_NAME[name].block_bytes for name, units in UNITS.items())


@dataclass(frozen=True, slots=True)
class Field:
    """Bits of a quant: `n` from its bit `bit` on are those from bit `shift` on of a byte. The 32 quants of a block of 32 are in as
    many bytes, the first at offset `at`.
    """

    at: int
    shift: int
    bit: int
    n: int


Fields = Sequence[Sequence[Field]]  # of each block of 32 in a block of 256

FILE: dict[str, Fields] = {  # where bits are in the file
    "Q3_K": [[Field(32 + j // 4 * 32, j % 4 * 2, 0, 2), Field(0, j, 2, 1)] for j in range(8)]
}
PACKED: dict[str, Fields] = {  # where they are in memory
    "Q3_K": [
        *([Field(j // 2 * 32, j % 2 * 3, 0, 3)] for j in range(6)),
        [Field(0, 6, 1, 2), Field(64, 6, 0, 1)],
        [Field(32, 6, 1, 2), Field(64, 7, 0, 1)],
    ]
}


def repacked(blocks: Bytes, there: Fields, here: Fields) -> Bytes:
    """Blocks (n, bytes) whose quants' bits are where `there` says, with them where `here` says."""
    result = blocks.copy()
    for field in (field for fields in here for field in fields):
        result[:, field.at : field.at + 32] = 0
    for source, target in zip(there, here, strict=True):
        quants = np.zeros((len(blocks), 32), np.uint8)
        for field in source:
            quants |= (blocks[:, field.at : field.at + 32] >> field.shift & (1 << field.n) - 1) << field.bit
        for field in target:
            result[:, field.at : field.at + 32] |= (quants >> field.bit & (1 << field.n) - 1) << field.shift
    return result


@cache
def places(name: str) -> dict[int, tuple[int, int]]:
    """By the offset of every unit in a block: its bytes, and its offset in a row's share of an interleaved block."""
    found, at = {}, 0
    for first, size, n in UNITS[name]:
        for offset in range(first, first + size * n, size):
            found[offset], at = (size, at), at + size
    return found


def pieces(rows: Bytes, group: int) -> Iterator[Bytes]:
    """Some groups of rows at a time, which a cache holds: eight times as fast as all at once."""
    at_once = max(1, PIECE // (group * rows.shape[1])) * group
    for first in range(0, len(rows), at_once):
        yield rows[first : first + at_once]


Move = Callable[[str, Bytes, int], None]  # like `interleave`


def interleave(name: str, rows: Bytes, group: int) -> None:
    """The rows of a tensor of this type, (n, row bytes), in place; n is a multiple of `group`, and `rows` can be written to."""
    for some in pieces(rows, group):
        blocks = some
        if name in PACKED:
            blocks = repacked(some.reshape(-1, TYPES_BY_NAME[name].block_bytes), FILE[name], PACKED[name])
        some[...] = _moved(name, blocks.reshape(-1, group, rows.shape[1]), group, back=False).reshape(some.shape)


def deinterleaved(name: str, rows: Bytes, group: int) -> Bytes:
    """The rows as the file has them, of whole groups of interleaved ones, (n, row bytes)."""
    found = _moved(name, rows.reshape(-1, group * rows.shape[1]), group, back=True)
    if name in PACKED:
        found = repacked(found.reshape(-1, TYPES_BY_NAME[name].block_bytes), PACKED[name], FILE[name])
    return found.reshape(rows.shape)


def _moved(name: str, groups: Bytes, group: int, *, back: bool) -> Bytes:
    block_bytes = TYPES_BY_NAME[name].block_bytes
    blocks = groups.size // len(groups) // group // block_bytes if len(groups) else 0
    lanes, units = (len(groups), group, blocks, block_bytes), (len(groups), blocks, group * block_bytes)
    source = groups.reshape(units if back else lanes)
    result = np.empty(lanes if back else units, np.uint8)
    by_rows, by_units = (result, source) if back else (source, result)
    at = 0
    for first, size, n in UNITS[name]:
        kind = f"u{size}"
        words = by_rows[..., first : first + size * n].view(kind).transpose(0, 2, 3, 1)  # groups, blocks, units, rows
        lie = by_units[..., at * group : (at + size * n) * group].view(kind).reshape(*words.shape)
        if back:
            words[...] = lie
        else:
            lie[...] = words
        at += size * n
    return result.reshape(len(groups), -1)
