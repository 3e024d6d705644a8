"""Memory bandwidth: reads a range of bytes as a stream and does next to nothing with them."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils

from edgellm.backends.cpu import system
from edgellm.backends.cpu.bandwidth import READ
from edgellm.backends.cpu.kernels.prefetch import LINE, prefetch
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import I64
from edgellm.backends.cpu.simd.generic import V8I, Generic

LINES = 4  # read per turn


def build(variant: str, isa: Isa) -> KernelFunction:
    store_i64, i64, seen = isa.store_i64, types.int64, READ.at("seen")
    arguments = READ.reader(isa, "data nbytes")
    turn = isa.make("turns", i64, (i64, i64), _turns)

    def read(op, ith, nth):
        data, nbytes = arguments(op)
        turns = nbytes // (LINES * LINE)
        first, end = turns * ith // nth, turns * (ith + 1) // nth
        value = turn(data + first * LINES * LINE, end - first)
        if value == 1:  # nearly never, but the compiler cannot know
            store_i64(op, seen, value)

    return {"read": read}[variant]


def _turns(e: Generic, address: Any, n: Any) -> Any:
    b, half = e.b, LINE // 2
    sums = [cgutils.alloca_once_value(b, e.constant(V8I, 0)) for _ in range(LINES * 2)]
    with e.loop(n) as i:
        at = e.at(address, i, LINES * LINE)
        if not system.zen():  # which reads a plain stream better by itself, by a tenth or more
            prefetch(e, at, LINES * LINE)
        for index, each in enumerate(sums):
            b.store(b.add(b.load(each), e.load(V8I, at, half * index)), each)
    total = b.load(sums[0])
    for each in sums[1:]:
        total = b.add(total, b.load(each))
    return b.zext(e.fold(total, b.add), I64)
