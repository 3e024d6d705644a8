"""Probabilities of the values of a row: of a classifier's few labels, so that a thread does a row by itself."""

from __future__ import annotations

from edgellm.backends.cpu.kernels.moe.topk import softmax_of
from edgellm.backends.cpu.ops.elementwise import ELEMENTWISE
from edgellm.backends.cpu.simd import Isa, KernelFunction


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, probabilities = isa.load_i64, softmax_of(isa)
    arguments = ELEMENTWISE.reader(isa, "step a a_stride out out_stride n count")

    def softmax(op, ith, nth):
        step, a, a_stride, out, out_stride, n, count = arguments(op)
        for row in range(ith, load_i64(step, count * 8), nth):
            probabilities(a + row * a_stride, out + row * out_stride, n)

    return {"rows": softmax}[variant]
