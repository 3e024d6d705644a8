"""The forms that rows of keys and values have, and how those in floats are read, eight values at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgellm.backends.cpu.simd.base import F32, I16, Value, vector
from edgellm.backends.cpu.simd.generic import Generic

LANES, SCALE_BYTES = 8, 2
INT16 = "i16"  # of a block of keys or values: their quants, row by row, and then for each block of dims their f32 scales


@dataclass(frozen=True, slots=True)
class KVForm:
    """`eights`: how many have a scale, or 1; `bytes_of_eight`: of memory, rounded up, scales included."""

    kv_type: str
    eights: int
    bytes_of_eight: int

    def row_bytes(self, b: Any, dim: Value) -> Value:
        """Of a row, in full blocks where it has scales."""
        if self.eights == 1 or self.kv_type == INT16:
            return b.mul(dim, self.bytes_of_eight // LANES)
        quants = dim if self.kv_type == "q8_0" else b.lshr(dim, 1)
        return b.add(quants, b.mul(b.lshr(dim, 5), SCALE_BYTES))

    def load(self, e: Generic, row: Value, eight: Value, n: int, lanes: int = LANES) -> list[Value]:
        """n vectors from `eight` on of a row of floats, as f32."""
        at, size = e.at(row, eight, self.bytes_of_eight), self.bytes_of_eight * lanes // LANES
        if self.kv_type == "f32":
            return [e.load(vector(F32, lanes), at, size * j) for j in range(n)]
        return [e.from_f16(e.load(vector(I16, lanes), at, size * j)) for j in range(n)]

    def load_two(self, e: Generic, first: Value, second: Value, eight: Value) -> Value:
        """An eight of two rows of floats side by side, as f32."""
        at = e.b.mul(eight, self.bytes_of_eight)
        kind = vector(F32 if self.kv_type == "f32" else I16, LANES)
        both = e.join(*(e.load(kind, e.b.add(row, at)) for row in (first, second)))
        return both if self.kv_type == "f32" else e.from_f16(both)


FORMS = {
    form.kv_type: form
    for form in (KVForm("f32", 1, 32), KVForm("f16", 1, 16), KVForm("q8_0", 4, 9), KVForm("q4_0", 4, 5), KVForm(INT16, 4, 16))
}
