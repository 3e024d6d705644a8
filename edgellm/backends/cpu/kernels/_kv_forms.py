"""How the values of a key's or value's row are read as f32, eight by eight, from each form that rows have."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgellm.backends.cpu.kernels import kv_quants
from edgellm.backends.cpu.simd.base import I16, I64, vector
from edgellm.backends.cpu.simd.generic import V8F, Generic

Value = Any                                      # ir.Value: llvmlite has no static types
LANES, EIGHTS_OF_BLOCK, SCALE_BYTES = 8, 4, 2


@dataclass(frozen=True, slots=True)
class Form:
    """`eights`: how many a piece has; `bytes_of_eight`: of memory, rounded up, scales included."""

    kv_type: str
    eights: int
    bytes_of_eight: int

    def row_bytes(self, b: Any, dim: Value) -> Value:
        """Of a row of whole pieces."""
        if self.eights == 1:
            return b.mul(dim, I64(self.bytes_of_eight // LANES))
        return b.add(self._quant_bytes(b, dim), b.mul(b.lshr(dim, I64(5)), I64(SCALE_BYTES)))

    def load(self, e: Generic, row: Value, dim: Value, eight: Value, n: int) -> list[Value]:
        """n eights from `eight` on of a row of `dim` values. They begin with a piece, or are within one."""
        b = e.b
        if self.eights == 1:
            at = b.add(row, b.mul(eight, I64(self.bytes_of_eight)))
            return [self._float(e, b.add(at, I64(self.bytes_of_eight * j))) for j in range(n)]
        block, within = b.lshr(eight, I64(2)), b.and_(eight, I64(EIGHTS_OF_BLOCK - 1))
        scales = b.add(b.add(row, self._quant_bytes(b, dim)), b.mul(block, I64(SCALE_BYTES)))
        quants = b.add(row, self._quant_bytes(b, b.shl(block, I64(5))))
        found = []
        for j in range(n):
            if j % EIGHTS_OF_BLOCK == 0:
                scale = e.from_f16(e.splat(e.load(I16, scales, j // EIGHTS_OF_BLOCK * SCALE_BYTES)))
            place: Value | int = j if n >= EIGHTS_OF_BLOCK else b.add(within, I64(j))
            found.append(b.fmul(kv_quants.eight(e, self.kv_type, quants, place), scale))
        return found

    def _float(self, e: Generic, address: Value) -> Value:
        return e.load(V8F, address) if self.kv_type == "f32" else e.from_f16(e.load(vector(I16, LANES), address))

    def _quant_bytes(self, b: Any, dim: Value) -> Value:
        return dim if self.kv_type == "q8_0" else b.lshr(dim, I64(1))


FORMS = {form.kv_type: form for form in (Form("f32", 1, 32), Form("f16", 1, 16), Form("q8_0", 4, 9), Form("q4_0", 4, 5))}
