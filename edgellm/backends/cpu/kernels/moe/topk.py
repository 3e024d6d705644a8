"""Routing of a mixture of experts: the weights of the experts that each token takes, and the list of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.ops.moe import TOPK
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.ops.moe import NEAR

ZERO, ONE, TINY = np.float32(0.0), np.float32(1.0), np.float32(1e-20)
LEAST = np.float32(-np.inf)


def build(variant: str, isa: Isa) -> KernelFunction:
    load_i64, load_i32, load_f32, store_f32 = isa("load_i64 load_i32 load_f32 store_f32")
    probabilities = {"softmax": softmax_of, "sigmoid": _sigmoid, "sparsemixer": _copied}[variant](isa)
    mix = _sparsemixer(isa) if variant == "sparsemixer" else _unchanged
    arguments = TOPK.reader(isa, "step x x_stride out out_stride chosen chosen_stride n k normalise count")
    scale_at = TOPK.at("scale")
    choose = _choose(isa, by_largest=variant == "softmax")

    def topk(op, ith, nth):
        step, x, x_stride, out, out_stride, chosen, chosen_stride, n, k, normalise, count = arguments(op)
        rows, scale = load_i64(step, count * 8), load_f32(op, scale_at)
        for row in range(rows * ith // nth, rows * (ith + 1) // nth):
            p, mine = out + row * out_stride, chosen + row * chosen_stride
            probabilities(x + row * x_stride, p, n)
            choose(op, p, mine)
            mix(x + row * x_stride, p, mine, n)
            total = ZERO
            for slot in range(k):
                total += load_f32(p, load_i32(mine, slot * 4) * 4)
            divisor = total + TINY if normalise else ONE
            slot = 0
            for expert in range(n):
                weight = ZERO
                if slot < k and load_i32(mine, slot * 4) == expert:
                    weight = load_f32(p, expert * 4) / divisor * scale
                    slot += 1
                store_f32(p, expert * 4, weight)

    return topk


def softmax_of(isa: Isa) -> Any:
    """softmax(x, p, n): probabilities p of the n values of a row."""
    load_f32, store_f32, splat, exp, first = isa("load_f32 store_f32 splat_f32x8 exp_f32x8 first_f32x8")

    @inline
    def softmax(x, p, n):
        largest = load_f32(x, 0)
        for i in range(n):
            largest = max(largest, load_f32(x, i * 4))
        total = ZERO
        for i in range(n):
            value = first(exp(splat(load_f32(x, i * 4) - largest)))
            store_f32(p, i * 4, value)
            total += value
        for i in range(n):
            store_f32(p, i * 4, load_f32(p, i * 4) / total)

    return softmax


def _sigmoid(isa: Isa) -> Any:
    load_f32, store_f32, splat, exp, first = isa("load_f32 store_f32 splat_f32x8 exp_f32x8 first_f32x8")

    @inline
    def sigmoid(x, p, n):
        for i in range(n):
            store_f32(p, i * 4, ONE / (ONE + first(exp(splat(-load_f32(x, i * 4))))))

    return sigmoid


def _copied(isa: Isa) -> Any:
    load_f32, store_f32 = isa("load_f32 store_f32")

    @inline
    def copied(x, p, n):
        for i in range(n):
            store_f32(p, i * 4, load_f32(x, i * 4))

    return copied


@inline
def _unchanged(x, p, chosen, n):
    pass


def _sparsemixer(isa: Isa) -> Any:
    """The weights of two experts in the place of their logits."""
    load_i32, load_f32, store_f32 = isa("load_i32 load_f32 store_f32")
    splat, exp, first_of = isa("splat_f32x8 exp_f32x8 first_f32x8")

    @inline
    def share(x, n, top, other):
        total = ZERO
        for i in range(n):
            value = load_f32(x, i * 4)
            if i != other and not (top - value) / max(abs(value), top) > NEAR:
                total += first_of(exp(splat(value - top)))
        return ONE / total

    @inline
    def sparsemixer(x, p, chosen, n):
        first, second = load_i32(chosen, 0), load_i32(chosen, 4)
        if load_f32(x, second * 4) > load_f32(x, first * 4):
            first, second = second, first
        store_f32(p, first * 4, share(x, n, load_f32(x, first * 4), -1))
        store_f32(p, second * 4, share(x, n, load_f32(x, second * 4), first))

    return sparsemixer


def _choose(isa: Isa, *, by_largest: bool) -> Any:
    """The k experts with the largest scores of the best groups, of equal ones the first, ascending; NaN is the smallest score."""
    load_i32, store_i32, load_f32 = isa("load_i32 store_i32 load_f32")
    arguments = TOPK.reader(isa, "bias n k groups groups_used")

    @inline
    def score(p, bias, expert):
        value = load_f32(p, expert * 4)
        if bias != 0:
            value += load_f32(bias, expert * 4)
        return value if value == value else LEAST

    @inline
    def group_score(p, bias, begin, end):
        best, second = LEAST, LEAST
        for expert in range(begin, end):
            value = score(p, bias, expert)
            if value > best:
                best, second = value, best
            elif value > second:
                second = value
        return best if by_largest or end - begin == 1 else best + second

    @inline
    def best_groups(p, bias, size, groups, used):
        """A bit for each group that is left."""
        kept = 0
        for _ in range(used):
            best, best_score = -1, LEAST
            for group in range(groups):
                if kept >> group & 1 == 0:
                    value = group_score(p, bias, group * size, (group + 1) * size)
                    if best < 0 or value > best_score:
                        best, best_score = group, value
            kept |= 1 << best
        return kept

    @inline
    def choose(op, p, chosen):
        bias, n, k, groups, used = arguments(op)
        size = n // groups
        kept = best_groups(p, bias, size, groups, used) if used < groups else -1
        last, last_score = -1, -LEAST  # experts are found in the order of their scores: each comes after the last one
        for slot in range(k):
            best, best_score = -1, LEAST
            for expert in range(n):
                if kept >> expert // size & 1:
                    value = score(p, bias, expert)
                    after = value < last_score or (value == last_score and expert > last)
                    if after and (best < 0 or value > best_score):
                        best, best_score = expert, value
            last, last_score = best, best_score
            place = slot
            while place > 0 and load_i32(chosen, place * 4 - 4) > best:
                store_i32(chosen, place * 4, load_i32(chosen, place * 4 - 4))
                place -= 1
            store_i32(chosen, place * 4, best)

    return choose
