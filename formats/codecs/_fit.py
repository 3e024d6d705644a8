"""Scales for groups of values: the searches that quantisers of the K and IQ4 types share, candidate for candidate llama.cpp's.

Each minimises a weighted squared error over a list of scales, then takes the least-squares scale of the quants found there. Sums
run from first to last in float32, as in `make_qx_quants`, `make_qkx2_quants`, `make_qp_quants` and `make_q3_quants` of
ggml-quants.c, so that files come out as llama-quantize makes them. x and weights: (..., n); scales: (..., 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ._codec import Floats, Ints

TINY = np.float32(1e-15)  # GROUP_MAX_EPS: groups below are zeros
_ROUNDS = 5  # passes over the quants, one code at a time


@dataclass(frozen=True, slots=True)
class Steps:
    """Candidates of an affine search: width / (first + by * i + top) for i in 0..count; the error's measure."""

    first: float
    by: float
    count: int
    absolute: bool = False


WITH_IMPORTANCE = Steps(-0.9, 0.05, 36)


def total(x: Floats) -> Floats:
    """Sums over the last axis from first to last, one rounding per element: (..., n) -> (..., 1)."""
    sums: Floats = np.add.accumulate(x, axis=-1)[..., -1:]
    return sums


def symmetric(x: Floats, weights: Floats, top: int) -> tuple[Floats, Ints]:
    """Scale of either sign and quants in -top..top-1 with x ~ scale * code."""
    extreme = np.take_along_axis(x, np.abs(x).argmax(axis=-1)[..., None], axis=-1)
    quants = _quants(x * (np.float32(-top) / extreme), -top, top - 1)
    xl, ll = _products(x, weights, quants)
    scale = np.where(ll == 0, np.float32(0), xl / ll)
    best = scale * xl
    for step in range(-9, 10):
        if step:
            candidate = _quants(x * (-(np.float32(top) + np.float32(0.1) * np.float32(step)) / extreme), -top, top - 1)
            xl, ll = _products(x, weights, candidate)
            better = (ll > 0) & (xl * xl > best * ll)
            quants = np.where(better, candidate, quants)
            scale = np.where(better, xl / ll, scale)
            best = np.where(better, scale * xl, best)
    zeros = np.abs(extreme) < TINY
    return np.where(zeros, np.float32(0), scale), np.where(zeros, -top, quants)


def affine(x: Floats, weights: Floats, top: int, steps: Steps) -> tuple[Floats, Floats, Ints]:
    """Scale and minimum >= 0 and quants in 0..top with x ~ scale * code - minimum. Candidates begin at the best minimum so far."""
    low, high = np.minimum(x.min(axis=-1, keepdims=True), np.float32(0)), x.max(axis=-1, keepdims=True)
    sum_w, sum_x = total(weights), total(weights * x)
    inverse: Floats = np.divide(np.float32(top), high - low)
    quants, minimum = _quants(inverse * (x - low), 0, top), low
    scale: Floats = np.reciprocal(inverse)
    best = _error(x, weights, scale, minimum, quants, steps.absolute)
    for step in range(steps.count + 1):
        stretched: np.float32 = np.float32(steps.first) + np.float32(steps.by) * np.float32(step) + np.float32(top)
        candidate = _quants(stretched / (high - minimum) * (x - minimum), 0, top)
        wl = weights * candidate
        sum_l, sum_ll, sum_xl = total(wl), total(wl * candidate), total(wl * x)
        determinant = sum_w * sum_ll - sum_l * sum_l
        new_scale: Floats = np.divide(sum_w * sum_xl - sum_x * sum_l, determinant)
        new_minimum: Floats = np.divide(sum_ll * sum_x - sum_l * sum_xl, determinant)
        above = new_minimum > 0
        new_scale = np.where(above, sum_xl / sum_ll, new_scale)
        new_minimum = np.where(above, np.float32(0), new_minimum)
        error = _error(x, weights, new_scale, new_minimum, candidate, steps.absolute)
        better = (determinant > 0) & (error < best)
        quants, best = np.where(better, candidate, quants), np.where(better, error, best)
        scale, minimum = np.where(better, new_scale, scale), np.where(better, new_minimum, minimum)
    flat = high <= low
    return np.where(flat, np.float32(0), scale), np.float32(0) - np.where(flat, low, minimum), np.where(flat, np.float32(0), quants)


def positive(x: Floats, weights: Floats, top: int) -> tuple[Floats, Ints]:
    """For x >= 0: scale and quants in 0..top, the quants then improved one by one."""
    high = x.max(axis=-1, keepdims=True)
    inverse = np.float32(top) / high
    quants = np.rint(inverse * x)
    best = total(_squares(x - (np.float32(1) / inverse) * quants, weights))
    for step in range(-4, 5):
        if step:
            candidate = (np.float32(0.1) * np.float32(step) + np.float32(top)) / high
            quants = np.minimum(np.rint(candidate * x), np.float32(top))
            error = total(_squares(x - (np.float32(1) / candidate) * quants, weights))
            inverse, best = np.where(error < best, candidate, inverse), np.minimum(error, best)
    quants = np.minimum(np.rint(inverse * x), np.float32(top))
    xl, ll, quants = _improve(x, weights, quants, 0, top)
    zeros = high < TINY
    return np.where(zeros | (ll <= 0), np.float32(0), xl / ll), np.where(zeros, np.float32(0), quants)


def one_by_one(x: Floats, top: int) -> Floats:
    """Scale of either sign with x ~ scale * code, quants in -top..top-1, improved one by one; weights are x squared."""
    extreme = np.take_along_axis(x, np.abs(x).argmax(axis=-1)[..., None], axis=-1)
    quants = _quants(np.float32(-top) / extreme * x, -top, top - 1)
    xl, ll, _ = _improve(x, x * x, quants, -top, top - 1)
    return np.where((np.abs(extreme) < TINY) | (ll <= 0), np.float32(0), xl / ll)


def codebook(x: Floats, weights: Floats, values: npt.NDArray[np.float32]) -> Floats:
    """Scale of either sign with x ~ scale * values[i]; values ascend, the first is the widest."""
    extreme = np.take_along_axis(x, np.abs(x).argmax(axis=-1)[..., None], axis=-1)
    quants = values[nearest(np.float32(1) / (-extreme / values[0]) * x, values)]
    xl, ll = total(weights * quants * x), total(weights * quants * quants)
    scale = np.where(ll > 0, xl / ll, np.float32(0))
    best = scale * xl
    for step in range(-7, 8):
        quants = values[nearest((np.float32(step) + values[0]) / extreme * x, values)]
        xl, ll = total(weights * quants * x), total(weights * quants * quants)
        better = (ll > 0) & (xl * xl > best * ll)
        scale = np.where(better, xl / ll, scale)
        best = np.where(better, scale * xl, best)
    return np.where(np.abs(extreme) < TINY, np.float32(0), scale)


def importance_weights(x: Floats, importance: Floats, mean_square: Floats) -> Floats:
    """The cost of an error of x: its column's importance, more for large values. mean_square: of the block or row."""
    weights: Floats = importance * np.sqrt(mean_square + x * x)
    return weights


def quantise(x: Floats, scale: Floats, bottom: int, top: int) -> Ints:
    """Nearest integers to x / scale in bottom..top; 0 where the scale is 0."""
    return np.where(scale == 0, 0, _quants(x / scale, bottom, top)).astype(np.int32)


def by_widest(x: Floats, widest: Floats, top: int) -> Ints:
    """Quants in 0..top of x >= 0, such that the widest has the last one."""
    factor: Floats = np.divide(np.float32(top), widest)
    return np.where(widest > 0, _quants(factor * x, 0, top), 0).astype(np.int32)


def nearest(x: Floats, values: npt.NDArray[np.float32]) -> Ints:
    """Index of the codebook value nearest to x, the upper one in the middle."""
    return np.searchsorted((values[1:] + values[:-1]) / 2, x, side="right")


def _quants(x: Floats, bottom: int, top: int) -> Floats:
    quants: Floats = np.clip(np.rint(x), np.float32(bottom), np.float32(top))
    return quants


def _products(x: Floats, weights: Floats, quants: Floats) -> tuple[Floats, Floats]:
    return total(weights * x * quants), total(weights * quants * quants)


def _squares(difference: Floats, weights: Floats) -> Floats:
    return weights * difference * difference


def _error(x: Floats, weights: Floats, scale: Floats, minimum: Floats, quants: Floats, absolute: bool) -> Floats:
    difference = scale * quants + minimum - x
    return total(weights * (np.abs(difference) if absolute else difference * difference))


def _improve(x: Floats, weights: Floats, quants: Floats, bottom: int, top: int) -> tuple[Floats, Floats, Floats]:
    """Change one code after the other where that makes the least-squares fit better; sums of w x l, w l l, and the quants."""
    quants = quants.copy()
    xl, ll = (sums[..., 0] for sums in _products(x, weights, quants))
    moving = np.ones(xl.shape, np.bool_)
    for _ in range(_ROUNDS):
        changed = np.zeros(xl.shape, np.bool_)
        for i in range(x.shape[-1]):
            value, w, code = x[..., i], weights[..., i], quants[..., i]
            rest_xl, rest_ll = xl - w * value * code, ll - w * code * code
            new = _quants(np.divide(value * rest_ll, rest_xl), bottom, top)
            new_xl, new_ll = rest_xl + w * value * new, rest_ll + w * new * new
            better = moving & (rest_xl > 0) & (new != code) & (new_ll > 0) & (new_xl * new_xl * ll > xl * xl * new_ll)
            if bottom == 0:
                better &= rest_ll > 0
            quants[..., i] = np.where(better, new, code)
            xl, ll, changed = np.where(better, new_xl, xl), np.where(better, new_ll, ll), changed | better
        moving = changed
    return xl[..., None], ll[..., None], quants
