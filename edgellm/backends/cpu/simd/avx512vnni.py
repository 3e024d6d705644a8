"""The AVX-512 VNNI rung in 256-bit form: four u8 x i8 products straight into an i32 lane, with no saturation between."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from edgellm.backends.cpu.simd.avx2 import Avx2
from edgellm.backends.cpu.simd.generic import V8I


class Avx512Vnni(Avx2):
    """Codes use all of u8, so that signed ones are better offset by 128 (`wide_codes`) than taken apart by sign."""

    name: ClassVar[str] = "avx512vnni"
    wide_codes: ClassVar[bool] = True

    def dot(self, pairs: Sequence[tuple[Any, Any]], signed: bool, most: int) -> Any:
        total = self.constant(V8I, 0)
        for w, x in pairs:
            if signed:
                w, x = self.magnitude(w), self.signed_by(x, w)
            # Arguments as LLVM knew them before 22; later ones take bytes, and translate this form.
            total = self.call("llvm.x86.avx512.vpdpbusd.256", V8I, total, self.cast(w, V8I), self.cast(x, V8I))
        return total
