"""Quantises rows of f32 to blocks, bit for bit as the type's codec in formats/codecs does; variants "TYPE" and "TYPE+importance".

Record: 1 x (f32), 2 blocks, 3 out, 4 scratch of SCRATCH_BYTES, 5 importance of a row (f32), 6 blocks of a row.
"""

from __future__ import annotations

from numba import types

from edgellm.backends.cpu.kernels.encode import encode_groups, encode_simple
from edgellm.backends.cpu.kernels.encode.lanes import LANES, from_half
from edgellm.backends.cpu.simd import Isa, KernelFunction

IMPORTANCE = "+importance"
SIMPLE = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4")
GROUPED = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS")
WIDENED = ("F16", "BF16")
VARIANTS = (*SIMPLE, *GROUPED, *(name + IMPORTANCE for name in (*SIMPLE[:4], *GROUPED)))


def build(variant: str, isa: Isa) -> KernelFunction:
    if variant in WIDENED:
        return _widen(variant, isa)
    name, _, weighted = variant.partition("+")
    simple = name in SIMPLE and not weighted
    return encode_simple.build(name, isa) if simple else encode_groups.build(name, isa, weighted=bool(weighted))


def _widen(variant: str, isa: Isa) -> KernelFunction:
    """Record: 1 source, 2 how many sixteens, 3 out: f16 or bf16 to f32."""
    i64, brain = types.int64, variant == "BF16"
    native = isa.level.name not in ("generic",)
    load_i64 = isa.load_i64
    convert = isa.make("widen", types.void, (i64, i64), lambda e, a, o: from_half(e, a, o, native, brain))

    def widen(op, ith, nth):
        source, n, out = load_i64(op, 8), load_i64(op, 16), load_i64(op, 24)
        for k in range(n):
            convert(source + k * 2 * LANES, out + k * 4 * LANES)

    return widen
