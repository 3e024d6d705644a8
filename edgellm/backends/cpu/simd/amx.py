"""The AMX ISA level: AVX-512 VNNI, whose tiles of many columns are multiplied by the tile unit, blocks of 32 quants at a time.

A block's sums are integers and leave the tile before they are weighed, so results are those of the other ISA levels, bit by bit.
Tile registers are named here (0 to 3: sums, 4 and 5: activations, 6 and 7: weights), and LLVM uses none of its own accord.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, ClassVar

from llvmlite import ir
from numba.core import cgutils

from edgellm.backends.cpu.levels import LEVELS, Level
from edgellm.backends.cpu.simd.avx512vnni import Avx512Vnni
from edgellm.backends.cpu.simd.base import I8, I64

ROWS, ROW_BYTES = 16, 64  # of a tile of sums: activation rows by weight rows, four bytes each
ACTIVATIONS, WEIGHTS = 4, 6  # their first registers


def configuration(depth: int) -> bytes:
    """The operand of LDTILECFG for products of `depth` quants: palette 1, then bytes of a row and rows of each register."""
    sums, activations, weights = (ROW_BYTES, ROWS), (depth, ROWS), (ROW_BYTES, depth // 4)
    shapes = [sums] * 4 + [activations] * 2 + [weights] * 2
    widths = struct.pack("<8H", *(width for width, _ in shapes))
    return struct.pack("<B15x", 1) + widths.ljust(32, b"\0") + bytes(rows for _, rows in shapes).ljust(16, b"\0")


class Amx(Avx512Vnni):
    """Needs the kernel's permission, once for a process: `system.amx_permitted`."""

    level: ClassVar[Level] = LEVELS["amx"]

    def begin_tiles(self, depth: int) -> None:
        data = configuration(depth)
        value = ir.Constant(ir.ArrayType(I8, len(data)), bytearray(data))
        constant = cgutils.global_constant(self.b.module, f"tiles_{depth}", value)
        constant.linkage, constant.align = "internal", len(data)
        self.call("llvm.x86.ldtilecfg", ir.VoidType(), self.b.bitcast(constant, I8.as_pointer()))

    def end_tiles(self) -> None:
        self.call("llvm.x86.tilerelease", ir.VoidType())

    def tile_products(
        self, xs: Sequence[Any], x_stride: int, ws: Sequence[Any], depth: int, signed: bool, outs: Sequence[Sequence[Any]]
    ) -> None:
        none, multiply = ir.VoidType(), "llvm.x86.tdpbssd" if signed else "llvm.x86.tdpbsud"
        for i, x in enumerate(xs):
            self.call("llvm.x86.tileloadd64", none, I8(ACTIVATIONS + i), self._pointer(I8, x, 0), I64(x_stride))
        for i, w in enumerate(ws):
            self.call("llvm.x86.tileloadd64", none, I8(WEIGHTS + i), self._pointer(I8, w, 0), I64(ROW_BYTES))
        pairs = [(i, j) for i in range(len(ws)) for j in range(len(xs))]
        for sums, (i, j) in enumerate(pairs):
            self.call("llvm.x86.tilezero", none, I8(sums))
            self.call(multiply, none, I8(sums), I8(ACTIVATIONS + j), I8(WEIGHTS + i))
        for sums, (i, j) in enumerate(pairs):
            self.call("llvm.x86.tilestored64", none, I8(sums), self._pointer(I8, outs[i][j], 0), I64(ROW_BYTES))
