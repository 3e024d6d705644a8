"""The searches of formats/codecs/_fit.py, operation for operation, on sixteen groups at a time: x, weights at addresses, a vector
of sixteen lanes per element. All is inlined: helpers left apart would have names that kernels compiled elsewhere have too."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from edgellm.backends.cpu.kernels.encode import lanes
from edgellm.backends.cpu.kernels.encode.lanes import LANE_BYTES
from edgellm.backends.cpu.kernels.inline import inline
from edgellm.formats.codecs import _fit

load, store, splat, first, largest = lanes.load, lanes.store, lanes.splat, lanes.first, lanes.largest
larger, smaller, magnitude, nearest = lanes.larger, lanes.smaller, lanes.magnitude, lanes.nearest
where_greater, where_equal = lanes.where_greater, lanes.where_equal

F = np.float32
ZERO, ONE, INFINITE = F(0), F(1), F(np.inf)
TINY = _fit.TINY


def rounder(bottom: int, top: int) -> Any:
    """Nearest integers in bottom..top; bottom for NaN."""
    low, high = F(bottom), F(top)

    @inline
    def quants(x):
        return nearest(smaller(larger(x, splat(low)), splat(high)))

    return quants


def widest_of(n: int) -> Any:
    """x -> the value of the largest magnitude, and that magnitude."""

    @inline
    def widest(x):
        extreme, most = splat(ZERO), splat(ZERO)
        for i in range(n):
            value = load(x, i * LANE_BYTES)
            size = magnitude(value)
            extreme, most = where_greater(size, most, value, extreme), larger(size, most)
        return extreme, most

    return widest


def symmetric(n: int, top: int) -> Any:
    """-> scale, and the factor and magnitude that `symmetric_quants` takes."""
    factors = tuple(-(F(top) + F(0.1) * F(step)) for step in range(-9, 10) if step)
    quants, start, last, widest = rounder(-top, top - 1), F(-top), len(factors), widest_of(n)

    @inline
    def sums(x, weights, factor):
        xl, ll = splat(ZERO), splat(ZERO)
        for i in range(n):
            value, w = load(x, i * LANE_BYTES), load(weights, i * LANE_BYTES)
            quant = quants(factor * value)
            xl, ll = xl + w * value * quant, ll + w * quant * quant
        return xl, ll

    @inline
    def search(x, weights):
        extreme, most = widest(x)
        factor = splat(start) / extreme
        xl, ll = sums(x, weights, factor)
        scale = where_greater(ll, splat(ZERO), xl / ll, splat(ZERO))
        best = scale * xl
        for step in range(last):
            candidate = splat(factors[step]) / extreme
            xl, ll = sums(x, weights, candidate)
            gain, bar = where_greater(ll, splat(ZERO), xl * xl, splat(-INFINITE)), best * ll
            scale = where_greater(gain, bar, xl / ll, scale)
            factor = where_greater(gain, bar, candidate, factor)
            best = where_greater(gain, bar, scale * xl, best)
        return where_greater(splat(TINY), most, splat(ZERO), scale), factor, most

    return search


def symmetric_quants(top: int) -> Any:
    """-> the quant of x by the factor and magnitude that `symmetric` found."""
    quants, none = rounder(-top, top - 1), F(-top)

    @inline
    def quant(x, factor, most):
        return where_greater(splat(TINY), most, splat(none), quants(factor * x))

    return quant


def affine(n: int, top: int, steps: _fit.Steps) -> Any:
    """(x, weights, scratch for quants) -> scale, minimum, and the factor and start of the quants found."""
    factors = tuple(F(steps.first) + F(steps.by) * F(step) + F(top) for step in range(steps.count + 1))
    quants, high_quant, last, absolute = rounder(0, top), F(top), steps.count + 1, steps.absolute

    @inline
    def error(x, weights, found, scale, minimum):
        total = splat(ZERO)
        for i in range(n):
            difference = scale * load(found, i * LANE_BYTES) + minimum - load(x, i * LANE_BYTES)
            size = magnitude(difference) if absolute else difference * difference
            total = total + load(weights, i * LANE_BYTES) * size
        return total

    @inline
    def search(x, weights, found):
        low = load(x, 0)
        high, sum_w = low, load(weights, 0)
        sum_x = sum_w * low
        for i in range(1, n):
            value, w = load(x, i * LANE_BYTES), load(weights, i * LANE_BYTES)
            low, high = smaller(value, low), larger(value, high)
            sum_w, sum_x = sum_w + w, sum_x + w * value
        low = smaller(low, splat(ZERO))
        factor, minimum, start = splat(high_quant) / (high - low), low, low
        scale = splat(ONE) / factor
        for i in range(n):
            store(found, i * LANE_BYTES, quants(factor * (load(x, i * LANE_BYTES) - low)))
        best = error(x, weights, found, scale, minimum)
        for step in range(last):
            candidate = splat(factors[step]) / (high - minimum)
            sum_l, sum_ll, sum_xl = splat(ZERO), splat(ZERO), splat(ZERO)
            for i in range(n):
                value = load(x, i * LANE_BYTES)
                quant = quants(candidate * (value - minimum))
                store(found, i * LANE_BYTES, quant)
                wl = load(weights, i * LANE_BYTES) * quant
                sum_l, sum_ll, sum_xl = sum_l + wl, sum_ll + wl * quant, sum_xl + wl * value
            determinant = sum_w * sum_ll - sum_l * sum_l
            new_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant
            new_minimum = (sum_ll * sum_x - sum_l * sum_xl) / determinant
            new_scale = where_greater(new_minimum, splat(ZERO), sum_xl / sum_ll, new_scale)
            new_minimum = smaller(new_minimum, splat(ZERO))
            worse = error(x, weights, found, new_scale, new_minimum)
            worse = where_greater(determinant, splat(ZERO), worse, splat(INFINITE))
            scale, factor = where_greater(best, worse, new_scale, scale), where_greater(best, worse, candidate, factor)
            start = where_greater(best, worse, minimum, start)
            minimum = where_greater(best, worse, new_minimum, minimum)
            best = where_greater(best, worse, worse, best)
        scale, factor = where_greater(high, low, scale, splat(ZERO)), where_greater(high, low, factor, splat(ZERO))
        return scale, splat(ZERO) - where_greater(high, low, minimum, low), factor, start

    return search


def _improver(n: int, bottom: int, top: int) -> Any:
    """(x, weights, quants) -> sums of w x l and w l l after quants were changed one by one. Finished lanes keep their values."""
    rounded, positive = rounder(bottom, top), bottom == 0

    @inline
    def improve(x, weights, quants):
        xl, ll = splat(ZERO), splat(ZERO)
        for i in range(n):
            value, w, quant = load(x, i * LANE_BYTES), load(weights, i * LANE_BYTES), load(quants, i * LANE_BYTES)
            xl, ll = xl + w * value * quant, ll + w * quant * quant
        for _ in range(5):
            changed = splat(ZERO)
            for i in range(n):
                value, w, quant = load(x, i * LANE_BYTES), load(weights, i * LANE_BYTES), load(quants, i * LANE_BYTES)
                rest_xl, rest_ll = xl - w * value * quant, ll - w * quant * quant
                new = rounded(value * rest_ll / rest_xl)
                new_xl, new_ll = rest_xl + w * value * new, rest_ll + w * new * new
                gain = where_greater(rest_xl, splat(ZERO), new_xl * new_xl * ll, splat(-INFINITE))
                gain = where_equal(new, quant, splat(-INFINITE), gain)
                gain = where_greater(new_ll, splat(ZERO), gain, splat(-INFINITE))
                if positive:
                    gain = where_greater(rest_ll, splat(ZERO), gain, splat(-INFINITE))
                bar = xl * xl * new_ll
                store(quants, i * LANE_BYTES, where_greater(gain, bar, new, quant))
                changed = where_greater(gain, bar, splat(ONE), changed)
                xl, ll = where_greater(gain, bar, new_xl, xl), where_greater(gain, bar, new_ll, ll)
            if largest(changed) == ZERO:
                break
        return xl, ll

    return improve


def one_by_one(n: int, top: int) -> Any:
    """(x, weights = x squared, scratch for quants) -> scale."""
    improve, rounded, start, widest = _improver(n, -top, top - 1), rounder(-top, top - 1), F(-top), widest_of(n)

    @inline
    def search(x, weights, quants):
        extreme, most = widest(x)
        factor = splat(start) / extreme
        for i in range(n):
            store(quants, i * LANE_BYTES, rounded(factor * load(x, i * LANE_BYTES)))
        xl, ll = improve(x, weights, quants)
        scale = where_greater(ll, splat(ZERO), xl / ll, splat(ZERO))
        return where_greater(splat(TINY), most, splat(ZERO), scale)

    return search


def positive(n: int, top: int) -> Any:
    """(x >= 0, weights, quants out) -> scale."""
    shifts = tuple(F(0.1) * F(step) + F(top) for step in range(-4, 5) if step)
    improve, rounded, high, last = _improver(n, 0, top), rounder(0, top), F(top), len(shifts)

    @inline
    def error(x, weights, factor):
        total, scale = splat(ZERO), splat(ONE) / factor
        for i in range(n):
            value = load(x, i * LANE_BYTES)
            difference = value - scale * rounded(factor * value)
            total = total + load(weights, i * LANE_BYTES) * difference * difference
        return total

    @inline
    def search(x, weights, quants):
        most = splat(ZERO)
        for i in range(n):
            most = larger(load(x, i * LANE_BYTES), most)
        factor = splat(high) / most
        best = error(x, weights, factor)
        for step in range(last):
            candidate = splat(shifts[step]) / most
            worse = error(x, weights, candidate)
            factor, best = where_greater(best, worse, candidate, factor), smaller(worse, best)
        for i in range(n):
            store(quants, i * LANE_BYTES, rounded(factor * load(x, i * LANE_BYTES)))
        xl, ll = improve(x, weights, quants)
        for i in range(n):
            store(quants, i * LANE_BYTES, where_greater(splat(TINY), most, splat(ZERO), load(quants, i * LANE_BYTES)))
        scale = where_greater(ll, splat(ZERO), xl / ll, splat(ZERO))
        return where_greater(splat(TINY), most, splat(ZERO), scale)

    return search


def codebook(n: int, values: Any) -> Any:
    """-> scale; and `index`, which gives the place of the value nearest to x."""
    middles = tuple(F((a + b) / 2) for a, b in pairwise(values))
    gaps = tuple(F(b - a) for a, b in pairwise(values))
    lowest, last, widest = F(values[0]), len(middles), widest_of(n)

    @inline
    def value_of(x):
        found = splat(lowest)
        for k in range(last):
            found = where_greater(splat(middles[k]), x, found, found + splat(gaps[k]))
        return found

    @inline
    def index(x):
        place = splat(ZERO)
        for k in range(last):
            place = where_greater(splat(middles[k]), x, place, place + splat(ONE))
        return place

    @inline
    def sums(x, weights, factor):
        xl, ll = splat(ZERO), splat(ZERO)
        for i in range(n):
            value, w = load(x, i * LANE_BYTES), load(weights, i * LANE_BYTES)
            quant = value_of(factor * value)
            xl, ll = xl + w * quant * value, ll + w * quant * quant
        return xl, ll

    @inline
    def search(x, weights):
        extreme, most = widest(x)
        xl, ll = sums(x, weights, splat(ONE) / ((splat(ZERO) - extreme) / splat(lowest)))
        scale = where_greater(ll, splat(ZERO), xl / ll, splat(ZERO))
        best = scale * xl
        for step in range(-7, 8):
            xl, ll = sums(x, weights, splat(F(step) + lowest) / extreme)
            gain, bar = where_greater(ll, splat(ZERO), xl * xl, splat(-INFINITE)), best * ll
            scale = where_greater(gain, bar, xl / ll, scale)
            best = where_greater(gain, bar, scale * xl, best)
        return where_greater(splat(TINY), most, splat(ZERO), scale)

    return search, index
