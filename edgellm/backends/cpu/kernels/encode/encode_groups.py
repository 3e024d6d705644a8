"""Types whose scales are searched for: sixteen groups of weights at a time, a lane each, then block after block is packed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types

from edgellm.backends.cpu.kernels.encode import lanes, scale_search
from edgellm.backends.cpu.kernels.encode.encode_simple import store_32
from edgellm.backends.cpu.kernels.encode.lanes import LANE_BYTES, LANES, packer
from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.formats.codecs import CODECS, _fit, q2_k, q4_k, q5_k
from edgellm.formats.codecs.iq4_nl import VALUES

F = np.float32
ZERO, ONE = F(0), F(1)
BIG = F(12582912.0)  # added and taken away, it rounds to the nearest integer
SUPERBLOCK = 256
# Scratch: values and weights and quants of sixteen groups, a vector per element; then vectors of one number per group.
X, W, QUANTS = 0, 32 * LANE_BYTES, 64 * LANE_BYTES
SCALES, MINIMA, FACTORS, STARTS, COSTS, COST_LANES, SCALE_LANES, SCALE_QUANTS, MIN_QUANTS, BYTES = (
    96 * LANE_BYTES + place * LANE_BYTES for place in (0, 1, 2, 3, 4, 5, 21, 37, 53, 69)
)
SCRATCH_BYTES = BYTES + SUPERBLOCK
i64, f32, void = types.int64, types.float32, types.void
load, store, splat, first, store_quants = lanes.load, lanes.store, lanes.splat, lanes.first, lanes.store_quants
magnitude, root = lanes.magnitude, lanes.root


def _nibbles(place: int, half: int, groups: int) -> tuple[tuple[int, lanes.Pieces], ...]:
    """Per `half` bytes the low nibbles from the first quants, the high ones from the next."""
    return tuple(
        (place + g * half + h, ((2 * g * half + h, 0, 15, 0), ((2 * g + 1) * half + h, 0, 15, 4)))
        for g in range(groups)
        for h in range(0, half, 16)
    )


def _pairs(place: int, right: int) -> tuple[tuple[int, lanes.Pieces], ...]:
    """Two bits of each of 256 quants, `right` bits up: four runs of 32 to a byte."""
    return tuple(
        (place + 32 * half + h, tuple((128 * half + 32 * k + h, right, 3, 2 * k) for k in range(4)))
        for half in (0, 1)
        for h in (0, 16)
    )


def _singles(place: int, right: int) -> tuple[tuple[int, lanes.Pieces], ...]:
    """One bit of each of 256 quants: eight runs of 32 to a byte."""
    return tuple((place + h, tuple((32 * g + h, right, 1, g) for g in range(8))) for h in (0, 16))


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """A block of `n_groups` groups: how many lanes it takes, and how the bytes of its quants are packed."""

    n_groups: int
    elements: int
    packing: tuple[tuple[int, lanes.Pieces], ...] = ()


LAYOUTS = {
    "Q2_K": GroupLayout(16, SUPERBLOCK, _pairs(16, 0)),
    "Q3_K": GroupLayout(16, SUPERBLOCK, _pairs(32, 0) + _singles(0, 2)),
    "Q4_K": GroupLayout(8, SUPERBLOCK, _nibbles(16, 32, 4)),
    "Q5_K": GroupLayout(8, SUPERBLOCK, _nibbles(48, 32, 4) + _singles(16, 4)),
    "Q6_K": GroupLayout(16, SUPERBLOCK, _nibbles(0, 64, 2) + _pairs(128, 4)),
    "IQ4_XS": GroupLayout(8, SUPERBLOCK, _nibbles(8, 16, 8)),
    "IQ4_NL": GroupLayout(1, 32, _nibbles(2, 16, 1)),
    "Q4_0": GroupLayout(1, 32),
    "Q4_1": GroupLayout(1, 32),
    "Q5_0": GroupLayout(1, 32),
    "Q5_1": GroupLayout(1, 32),
}
DOUBLED = ("Q3_K", "Q4_K", "Q5_K", "IQ4_NL", "IQ4_XS")  # types that take twice the mean square into their weights
OF_ROWS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1")  # types that take that of the row, not of the block


def build(name: str, isa: Isa, *, weighted: bool) -> KernelFunction:
    layout, load_i64 = LAYOUTS[name], isa.load_i64
    groups, elements, size = layout.n_groups, layout.elements, CODECS[name].dtype.itemsize
    n, blocks = elements // groups, LANES // groups
    gather, weigh = _gather(isa, groups, n), _weigher(name, isa, groups, n, weighted)
    search, finish = _method(name, isa, weighted)
    square_rows, mean_square = weighted and name in OF_ROWS, _mean_square(isa)

    def encode(op, ith, nth):
        x, n_blocks, out, scratch = load_i64(op, 8), load_i64(op, 16), load_i64(op, 24), load_i64(op, 32)
        importance, of_row = load_i64(op, 40), load_i64(op, 48)
        square = ZERO
        for begin in range(0, n_blocks, blocks):
            for lane in range(LANES):
                block = min(begin + lane // groups, n_blocks - 1)
                at = x + block * elements * 4
                gather(at, lane, scratch)
                if square_rows and (lane == 0 or block % of_row == 0):
                    square = mean_square(x + block // of_row * of_row * elements * 4, of_row * elements)
                weigh(at, importance + block % of_row * elements * 4, lane, square, scratch)
            search(scratch)
            for block in range(begin, min(begin + blocks, n_blocks)):
                finish(x + block * elements * 4, out + block * size, (block - begin) * groups, scratch)

    return encode


def _gather(isa: Isa, groups: int, n: int) -> Any:
    """Copy a group's values to its lane."""
    load_f32, store_f32 = isa("load_f32 store_f32")

    @inline
    def gather(block, lane, scratch):
        source = block + lane % groups * n * 4
        for i in range(n):
            store_f32(scratch, X + i * LANE_BYTES + lane * 4, load_f32(source, i * 4))

    return gather


def _mean_square(isa: Isa) -> Any:
    load_f32 = isa.load_f32

    @inline
    def mean_square(x, n):
        total = ZERO
        for i in range(n):
            value = load_f32(x, i * 4)
            total += value * value
        return total / F(n)

    return mean_square


def _weigher(name: str, isa: Isa, groups: int, n: int, weighted: bool) -> Any:
    """Error weights of a group's values, to its lane, where they depend on more than the values (the rest is in `_method`)."""
    load_f32, store_f32 = isa("load_f32 store_f32")
    mean_square, doubled = _mean_square(isa), name in DOUBLED
    of_rows, plain = name in OF_ROWS, name == "Q6_K"
    sqrt = isa.make("sqrt", f32, (f32,), lambda e, x: e.call("llvm.sqrt.f32", x.type, x))

    @inline
    def nothing(block, importance, lane, square, scratch):
        pass

    @inline
    def weigh(block, importance, lane, square, scratch):
        if not of_rows:
            square = mean_square(block, groups * n)
            if doubled:
                square = square + square
        place = lane % groups * n * 4
        for i in range(n):
            value, cost = load_f32(block + place, i * 4), load_f32(importance + place, i * 4)
            if not plain:
                cost = cost * sqrt(square + value * value)
            store_f32(scratch, W + i * LANE_BYTES + lane * 4, cost)

    return weigh if weighted else nothing


def _method(name: str, isa: Isa, weighted: bool) -> tuple[Any, Any]:
    """(scratch) -> None: scales of sixteen groups. (values, block, its first lane, scratch) -> None: writes a block."""
    if name in ("Q2_K", "Q4_K", "Q5_K"):
        return _affine_search(name, weighted), _affine_finish(name, isa, weighted)
    if name in ("Q3_K", "Q6_K"):
        return _symmetric_search(name, weighted), _symmetric_finish(name, isa, weighted)
    if name in ("IQ4_NL", "IQ4_XS"):
        search, index = scale_search.codebook(32, VALUES)
        return _codebook_search(search, weighted), _codebook_finish(name, isa, index)
    return _block_search(name), _block_finish(name, isa)


# --- scale and minimum: Q2_K, Q4_K, Q5_K ------------------------------------------------------------------------------
_AFFINE = {"Q2_K": q2_k.SHAPE, "Q4_K": q4_k.SHAPE, "Q5_K": q5_k.SHAPE}


def _affine_search(name: str, weighted: bool) -> Any:
    shape = _AFFINE[name]
    n, with_average = SUPERBLOCK // shape.groups, shape.average
    search, count = scale_search.affine(n, shape.quant, _fit.WITH_IMPORTANCE if weighted else shape.steps), F(n)

    @inline
    def find(scratch):
        costs = splat(ZERO)
        if not weighted:
            average = splat(ZERO)
            if with_average:
                for i in range(n):
                    value = load(scratch, X + i * LANE_BYTES)
                    average = average + value * value
                average = root(average / splat(count))
            for i in range(n):
                store(scratch, W + i * LANE_BYTES, average + magnitude(load(scratch, X + i * LANE_BYTES)))
        for i in range(n):
            costs = costs + load(scratch, W + i * LANE_BYTES)
        scale, minimum, _, _ = search(scratch + X, scratch + W, scratch + QUANTS)
        store(scratch, SCALES, scale)
        store(scratch, MINIMA, minimum)
        store(scratch, COSTS, costs)

    return find


def _affine_finish(name: str, isa: Isa, weighted: bool) -> Any:
    groups, top, last = _AFFINE[name].groups, _AFFINE[name].quant, _AFFINE[name].scale
    n, high = SUPERBLOCK // groups, F(last)
    fields = CODECS[name].dtype.fields
    assert fields is not None
    d_at, dmin_at, scales_at = fields["d"][1], fields["dmin"][1], fields["scales"][1]
    load_f32, store_f16, load_f16 = isa("load_f32 store_f16 load_f16")
    load_u8, store_i8 = isa("load_u8 store_i8")
    nibble_scales, rounded = name == "Q2_K", scale_search.rounder(0, top)
    pack = isa.make("pack", void, (i64, i64), packer(LAYOUTS[name].packing))
    fit_scales = _scale_search(isa, groups, scale_search.positive(groups, last))

    @inline
    def by_widest(values, quants, scratch):
        """Quants such that the widest has the last one -> the step."""
        most = ZERO
        for j in range(groups):
            most = max(most, load_f32(values, j * 4))
        for j in range(groups):
            quant = ZERO
            if most > ZERO:
                quant = (min(max(high / most * load_f32(values, j * 4), ZERO), high) + BIG) - BIG
            store_i8(quants, j, int(quant))
        return most / high

    @inline
    def finish(x, block, lane, scratch):
        steps, lows = scratch + SCALES + lane * 4, scratch + MINIMA + lane * 4
        if weighted:
            d = fit_scales(steps, scratch + COSTS + lane * 4, scratch + SCALE_QUANTS, scratch)
            dmin = fit_scales(lows, scratch + COSTS + lane * 4, scratch + MIN_QUANTS, scratch)
        else:
            d = by_widest(steps, scratch + SCALE_QUANTS, scratch)
            dmin = by_widest(lows, scratch + MIN_QUANTS, scratch)
        store_f16(block, d_at, d)
        store_f16(block, dmin_at, dmin)
        d, dmin = load_f16(block, d_at), load_f16(block, dmin_at)
        for j in range(groups):
            step = d * F(load_u8(scratch + SCALE_QUANTS, j))
            low = dmin * F(load_u8(scratch + MIN_QUANTS, j))
            for i in range(j * n, j * n + n, LANES):
                if step == ZERO:
                    store_quants(scratch, BYTES + i, splat(ZERO))
                else:
                    store_quants(scratch, BYTES + i, rounded((load(x, i * 4) + splat(low)) / splat(step)))
        for j in range(groups if nibble_scales else 4):
            sc, m = load_u8(scratch + SCALE_QUANTS, j), load_u8(scratch + MIN_QUANTS, j)
            if nibble_scales:
                store_i8(block, scales_at + j, sc | m << 4)
            else:
                sc2, m2 = load_u8(scratch + SCALE_QUANTS, j + 4), load_u8(scratch + MIN_QUANTS, j + 4)
                store_i8(block, scales_at + j, sc | sc2 >> 4 << 6)
                store_i8(block, scales_at + 4 + j, m | m2 >> 4 << 6)
                store_i8(block, scales_at + 8 + j, (sc2 & 15) | (m2 & 15) << 4)
        pack(scratch + BYTES, block)

    return finish


def _scale_search(isa: Isa, groups: int, search: Any) -> Any:
    """(scales, their costs, bytes for quants, scratch) -> the scale of scales; all lanes do the same."""
    load_f32, store_i8 = isa("load_f32 store_i8")

    @inline
    def fit(values, costs, quants, scratch):
        for j in range(groups):
            store(scratch, SCALE_LANES + j * LANE_BYTES, splat(load_f32(values, j * 4)))
            store(scratch, COST_LANES + j * LANE_BYTES, splat(load_f32(costs, j * 4)))
        scale = search(scratch + SCALE_LANES, scratch + COST_LANES, scratch + QUANTS)
        for j in range(groups):
            store_i8(quants, j, int(first(load(scratch, QUANTS + j * LANE_BYTES))))
        return first(scale)

    return fit


# --- scale of either sign: Q3_K, Q6_K ---------------------------------------------------------------------------------
def _symmetric_search(name: str, weighted: bool) -> Any:
    one_by_one = name == "Q3_K" and not weighted
    by_quants, by_scales = scale_search.one_by_one(16, 4), scale_search.symmetric(16, 4 if name == "Q3_K" else 32)

    @inline
    def find(scratch):
        costs = splat(ZERO)
        for i in range(16):
            value = load(scratch, X + i * LANE_BYTES)
            if not weighted:
                store(scratch, W + i * LANE_BYTES, value * value)
            costs = costs + load(scratch, W + i * LANE_BYTES)
        if one_by_one:
            scale = by_quants(scratch + X, scratch + W, scratch + QUANTS)
        else:
            scale, _, _ = by_scales(scratch + X, scratch + W)
        store(scratch, SCALES, scale)
        store(scratch, COSTS, costs)

    return find


def _symmetric_finish(name: str, isa: Isa, weighted: bool) -> Any:
    is_q3, bottom = name == "Q3_K", F(-32 if name == "Q3_K" else -128)
    top = 4 if is_q3 else 32
    fields = CODECS[name].dtype.fields
    assert fields is not None
    d_at, scales_at = fields["d"][1], fields["scales"][1]
    load_f32, store_f16, load_f16 = isa("load_f32 store_f16 load_f16")
    load_i8, store_i8 = isa("load_i8 store_i8")
    rounded, middle, tiny = scale_search.rounder(-top, top - 1), F(top), _fit.TINY
    pack = isa.make("pack", void, (i64, i64), packer(LAYOUTS[name].packing))
    by_search, none = _scale_search(isa, 16, _symmetric_scales(32)), F(-32 if is_q3 else 0)

    @inline
    def by_widest(scratch):
        """Quants such that the widest scale has the most negative one -> the step."""
        widest = ZERO
        for j in range(16):
            value = load_f32(scratch, SCALES + j * 4)
            if abs(value) > abs(widest):
                widest = value
        empty = widest == ZERO if is_q3 else abs(widest) < tiny
        factor = bottom / widest
        for j in range(16):
            quant = none
            if not empty:
                quant = (min(max(factor * load_f32(scratch, SCALES + j * 4), bottom), -bottom - ONE) + BIG) - BIG
            store_i8(scratch, SCALE_QUANTS + j, int(quant))
        return ZERO if empty else ONE / factor

    @inline
    def finish(x, block, lane, scratch):
        if is_q3 and weighted:
            d = by_search(scratch + SCALES, scratch + COSTS, scratch + SCALE_QUANTS, scratch)
        else:
            d = by_widest(scratch)
        store_f16(block, d_at, d)
        d = load_f16(block, d_at)
        for j in range(16):
            step = d * F(load_i8(scratch, SCALE_QUANTS + j))
            if step == ZERO:
                store_quants(scratch, BYTES + j * 16, splat(middle))
            else:
                store_quants(scratch, BYTES + j * 16, rounded(load(x, j * 64) / splat(step)) + splat(middle))
        if is_q3:
            for j in range(4):
                a, b = load_i8(scratch, SCALE_QUANTS + j) + 32, load_i8(scratch, SCALE_QUANTS + j + 4) + 32
                c, e = load_i8(scratch, SCALE_QUANTS + j + 8) + 32, load_i8(scratch, SCALE_QUANTS + j + 12) + 32
                store_i8(block, scales_at + j, (a & 15) | (c & 15) << 4)
                store_i8(block, scales_at + 4 + j, (b & 15) | (e & 15) << 4)
                store_i8(block, scales_at + 8 + j, a >> 4 | b >> 4 << 2 | c >> 4 << 4 | e >> 4 << 6)
        else:
            for j in range(16):
                store_i8(block, scales_at + j, load_i8(scratch, SCALE_QUANTS + j))
        pack(scratch + BYTES, block)

    return finish


def _symmetric_scales(top: int) -> Any:
    """`symmetric` with its quants stored, as `_scale_search` wants it."""
    find, quant_of = scale_search.symmetric(16, top), scale_search.symmetric_quants(top)

    @inline
    def search(x, weights, quants):
        scale, factor, most = find(x, weights)
        for j in range(16):
            store(quants, j * LANE_BYTES, quant_of(load(x, j * LANE_BYTES), factor, most))
        return scale

    return search


# --- values of a codebook: IQ4_NL, IQ4_XS -----------------------------------------------------------------------------
def _codebook_search(search: Any, weighted: bool) -> Any:
    @inline
    def find(scratch):
        if not weighted:
            for i in range(32):
                value = load(scratch, X + i * LANE_BYTES)
                store(scratch, W + i * LANE_BYTES, value * value)
        store(scratch, SCALES, search(scratch + X, scratch + W))

    return find


def _codebook_finish(name: str, isa: Isa, index: Any) -> Any:
    load_f32, store_f16, store_i8 = isa("load_f32 store_f16 store_i8")
    load_u8, high, low, width = isa.load_u8, F(31), F(-32), F(32)
    pack = isa.make("pack", void, (i64, i64), packer(LAYOUTS[name].packing))

    @inline
    def finish_nl(x, block, lane, scratch):
        d = load_f32(scratch, SCALES + lane * 4)
        inverse = ONE / d if d != ZERO else ZERO
        store_f16(block, 0, d)
        store_quants(scratch, BYTES, index(splat(inverse) * load(x, 0)))
        store_quants(scratch, BYTES + LANES, index(splat(inverse) * load(x, LANE_BYTES)))
        pack(scratch + BYTES, block)

    @inline
    def finish_xs(x, block, lane, scratch):
        widest = ZERO
        for j in range(8):
            value = load_f32(scratch, SCALES + (lane + j) * 4)
            if abs(value) > abs(widest):
                widest = value
        d = -widest / width
        factor = ONE / d if d != ZERO else ZERO
        store_f16(block, 0, d)
        scales_h = 0
        for j in range(8):
            quant = (min(max(factor * load_f32(scratch, SCALES + (lane + j) * 4), low), high) + BIG) - BIG
            step = d * quant
            inverse = ONE / step if step != ZERO else ZERO
            for i in (0, 1):
                store_quants(scratch, BYTES + j * 32 + i * LANES, index(splat(inverse) * load(x, (j * 2 + i) * LANE_BYTES)))
            sc = int(quant) + 32
            scales_h |= sc >> 4 << 2 * j
            store_i8(scratch, SCALE_QUANTS + j, sc & 15)
        store_i8(block, 2, scales_h & 255)
        store_i8(block, 3, scales_h >> 8)
        for j in range(4):
            store_i8(block, 4 + j, load_u8(scratch, SCALE_QUANTS + 2 * j) | load_u8(scratch, SCALE_QUANTS + 2 * j + 1) << 4)
        pack(scratch + BYTES, block)

    return finish_nl if name == "IQ4_NL" else finish_xs


# --- blocks of 32 by importance: Q4_0, Q4_1, Q5_0, Q5_1 ---------------------------------------------------------------
_BLOCK_TOPS = {"Q4_0": 8, "Q5_0": 16, "Q4_1": 15, "Q5_1": 31}


def _block_search(name: str) -> Any:
    symmetric, top = name in ("Q4_0", "Q5_0"), _BLOCK_TOPS[name]
    by_scale, quant_of = scale_search.symmetric(32, top), scale_search.symmetric_quants(top)
    by_both, rounded, middle = scale_search.affine(32, top, _fit.WITH_IMPORTANCE), scale_search.rounder(0, top), F(top)

    @inline
    def find_symmetric(scratch):
        scale, factor, most = by_scale(scratch + X, scratch + W)
        store(scratch, SCALES, scale)
        for i in range(32):
            store(scratch, QUANTS + i * LANE_BYTES, quant_of(load(scratch, X + i * LANE_BYTES), factor, most) + splat(middle))

    @inline
    def find_affine(scratch):
        scale, minimum, factor, start = by_both(scratch + X, scratch + W, scratch + QUANTS)
        store(scratch, SCALES, scale)
        store(scratch, MINIMA, splat(ZERO) - minimum)
        for i in range(32):
            store(scratch, QUANTS + i * LANE_BYTES, rounded(factor * (load(scratch, X + i * LANE_BYTES) - start)))

    return find_symmetric if symmetric else find_affine


def _block_finish(name: str, isa: Isa) -> Any:
    store_f16, load_f32, store_f32 = isa("store_f16 load_f32 store_f32")
    store_halves = store_32(isa, name)
    with_minimum = name in ("Q4_1", "Q5_1")

    @inline
    def finish(x, block, lane, scratch):
        store_f16(block, 0, load_f32(scratch, SCALES + lane * 4))
        if with_minimum:
            store_f16(block, 2, load_f32(scratch, MINIMA + lane * 4))
        for i in range(32):
            store_f32(scratch, COST_LANES + i * 4, load_f32(scratch, QUANTS + i * LANE_BYTES + lane * 4))
        store_halves(block, load(scratch, COST_LANES), load(scratch, COST_LANES + LANE_BYTES))

    return finish
