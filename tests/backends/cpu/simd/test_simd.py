"""Every SIMD operation against NumPy, on every ISA level of the ladder that this machine can run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from isa_levels import ISA_LEVELS

from edgellm.backends.cpu.levels import LEVELS
from edgellm.backends.cpu.simd import F32X8, I8X32, I32X8, Isa, load_isa
from edgellm.backends.cpu.simd.generic import V32B

Array = npt.NDArray[Any]
i64, void = numba.types.int64, numba.types.void


@pytest.fixture(scope="module", params=ISA_LEVELS)
def isa(request: pytest.FixtureRequest) -> Isa:
    return load_isa(request.param)


def call(function: Callable[..., None], *arrays: Array) -> None:
    """Compile `function(record, ith, nth)` and run it with the arrays' addresses as the words of the record."""
    compiled = numba.cfunc(void(i64, i64, i64), nopython=True, error_model="numpy", boundscheck=False)(function)
    record = np.array([array.ctypes.data for array in arrays], np.int64)
    compiled.ctypes(record.ctypes.data, 0, 1)


def make(isa: Isa, inputs: int, emit: Callable[..., Any]) -> Any:
    """A Numba function of `inputs` addresses and the address of its result, which `emit(ISA level, *addresses)` gives."""
    return isa.make("tested", void, (i64,) * (inputs + 1), lambda e, *a: e.store(emit(e, *a[:-1]), a[-1]))


def test_every_level_of_the_ladder_has_instructions() -> None:
    for name, level in LEVELS.items():
        assert load_isa(name).level is level and load_isa(name).instructions.level is level
    with pytest.raises(AttributeError, match="no_such"):
        _ = load_isa("generic").no_such


def test_arithmetic(isa: Isa) -> None:
    binary = ("add", "sub", "mul", "div", "max", "min")
    load, store, load_i64, fma = isa.load_f32x8, isa.store_f32x8, isa.load_i64, isa.fma_f32x8
    add, sub, mul, div = (getattr(isa, f"{name}_f32x8") for name in binary[:4])
    larger, smaller = (
        isa.make(name, F32X8, (F32X8, F32X8), lambda e, a, b, name=name: getattr(e, name)(a, b)) for name in ("larger", "smaller")
    )
    zero, splat, load_f32 = isa.zero_f32x8, isa.splat_f32x8, isa.load_f32

    def kernel(op: int, ith: int, nth: int) -> None:
        a, b, out = load_i64(op, 0), load_i64(op, 8), load_i64(op, 16)
        x, y = load(a, 0), load(b, 4)  # 4: not aligned
        store(out, 0, add(x, y))
        store(out, 32, sub(x, y))
        store(out, 64, mul(x, y))
        store(out, 96, div(x, y))
        store(out, 128, larger(x, y))
        store(out, 160, smaller(x, y))
        store(out, 192, fma(x, y, x))
        store(out, 224, zero())
        store(out, 256, splat(load_f32(a, 8)))

    rng = np.random.default_rng(0)
    a, b, out = rng.standard_normal(8, np.float32), rng.standard_normal(9, np.float32), np.full((9, 8), 7, np.float32)
    call(kernel, a, b, out)
    y = b[1:]
    expected = [a + y, a - y, a * y, a / y, np.maximum(a, y), np.minimum(a, y)]
    for name, got, want in zip(binary, out, expected, strict=False):
        assert np.array_equal(got, want), name
    fused = (a.astype(np.float64) * y + a).astype(np.float32)
    assert np.array_equal(out[6], a * y + a if isa.level.name == "generic" else fused)
    assert not out[7].any() and (out[8] == a[2]).all()


def test_lanes(isa: Isa) -> None:
    load, store, store_f32, load_i64 = isa.load_f32x8, isa.store_f32x8, isa.store_f32, isa.load_i64
    hsum, first, lane = isa.hsum_f32x8, isa.first_f32x8, isa.lane_f32x8
    sum_of_each = isa.make("sum_of_each", F32X8, (F32X8,) * 8, lambda e, *rows: e.sum_of_each(rows))

    def kernel(op: int, ith: int, nth: int) -> None:
        a, out = load_i64(op, 0), load_i64(op, 8)
        store(
            out,
            0,
            sum_of_each(load(a, 0), load(a, 32), load(a, 64), load(a, 96), load(a, 128), load(a, 160), load(a, 192), load(a, 224)),
        )
        for i in range(8):
            store_f32(out, 32 + i * 4, hsum(load(a, i * 32)))
            store_f32(out, 64 + i * 4, lane(load(a, 0), i))
        store_f32(out, 96, first(load(a, 32)))

    a, out = np.random.default_rng(1).standard_normal((8, 8), np.float32), np.full(25, 7, np.float32)
    call(kernel, a, out)
    fours = a[:, :4] + a[:, 4:]
    twos = fours[:, :2] + fours[:, 2:]
    assert np.array_equal(out[8:16], twos[:, 0] + twos[:, 1]) and np.array_equal(out[:8], out[8:16])
    assert np.array_equal(out[16:24], a[0]) and out[24] == a[1, 0]


def test_exp(isa: Isa) -> None:
    load, store, load_i64, exp = isa.load_f32x8, isa.store_f32x8, isa.load_i64, isa.exp_f32x8

    def kernel(op: int, ith: int, nth: int) -> None:
        x, out, n = load_i64(op, 0), load_i64(op, 8), load_i64(load_i64(op, 16), 0)
        for i in range(n // 8):
            store(out, i * 32, exp(load(x, i * 32)))

    special = np.array([-np.inf, np.inf, np.nan, 0, -1e30, 1e30, -87.4, 88.8], np.float32)
    x = np.concatenate([np.linspace(-110, 89, 1 << 17), np.linspace(-1, 1, 1 << 16), special]).astype(np.float32)
    out = np.zeros_like(x)
    call(kernel, x, out, np.array([len(x)], np.int64))
    assert np.array_equal(out[-8:], np.array([0, np.inf, np.nan, 1, 0, np.inf, 0, np.inf], np.float32), equal_nan=True)
    with np.errstate(over="ignore"):
        exact = np.exp(x[:-8].astype(np.float64))
        rounded = exact.astype(np.float32)
    tiny = x[:-8] < np.float32(-87.3)  # would be subnormal, or nearly
    assert not out[:-8][tiny].any() and (out[:-8][~tiny] >= np.finfo(np.float32).tiny).all()
    finite = np.isfinite(rounded) & ~tiny
    error = np.abs(out[:-8] - exact)[finite] / np.spacing(rounded[finite])
    assert error.max() < 1.1  # measured 0.99 with fma, 0.98 without


def test_half_precision_is_numpys(isa: Isa) -> None:
    load, store, load_i64, load_f32 = isa.load_f32x8, isa.store_f32x8, isa.load_i64, isa.load_f32
    load_f16, store_f16, load_bf16 = isa.load_f16x8, isa.store_f16x8, isa.load_bf16x8
    one_f16, one_bf16, store_f32, put_f16 = isa.load_f16, isa.load_bf16, isa.store_f32, isa.store_f16

    def kernel(op: int, ith: int, nth: int) -> None:
        halves, floats, from_f16, to_f16, from_bf16 = (
            load_i64(op, 0),
            load_i64(op, 8),
            load_i64(op, 16),
            load_i64(op, 24),
            load_i64(op, 32),
        )
        for i in range(8191):
            store(from_f16, i * 32, load_f16(halves, i * 16))
            store_f16(to_f16, i * 16, load(floats, i * 32))
            store(from_bf16, i * 32, load_bf16(halves, i * 16))
        for i in range(8191 * 8, 8192 * 8):
            store_f32(from_f16, i * 4, one_f16(halves, i * 2))
            put_f16(to_f16, i * 2, load_f32(floats, i * 4))
            store_f32(from_bf16, i * 4, one_bf16(halves, i * 2))

    bits, rng = np.arange(65536).astype(np.uint16), np.random.default_rng(2)
    with np.errstate(invalid="ignore", over="ignore"):
        floats = np.concatenate(
            [
                bits[:30000].view(np.float16).astype(np.float32) * np.float32(1 + 2.0**-11),  # near halves between two f16
                (rng.standard_normal(30000) * 10.0 ** rng.uniform(-9, 6, 30000)).astype(np.float32),
                rng.integers(0, 1 << 32, 5536, dtype=np.uint32).view(np.float32),
            ]
        )
        expected = floats.astype(np.float16)
    from_f16, to_f16, from_bf16 = np.zeros(65536, np.float32), np.zeros(65536, np.float16), np.zeros(65536, np.float32)
    call(kernel, bits, floats, from_f16, to_f16, from_bf16)
    assert _same_bits(from_f16, bits.view(np.float16).astype(np.float32), np.uint32)
    assert _same_bits(to_f16, expected, np.uint16)
    assert _same_bits(from_bf16, (bits.astype(np.uint32) << 16).view(np.float32), np.uint32)


def _same_bits(got: Array, want: Array, bits: Any) -> bool:
    """Equal, zeros with their sign; one NaN is as good as another."""
    number = ~np.isnan(want)
    return bool((np.isnan(got) == ~number).all() and (got.view(bits)[number] == want.view(bits)[number]).all())


def test_integers_and_threads(isa: Isa) -> None:
    load_i64, load_i32, load_u8, load_i8 = isa.load_i64, isa.load_i32, isa.load_u8, isa.load_i8
    store_i64, store_i32, store_i8 = isa.store_i64, isa.store_i32, isa.store_i8
    add, get, put, pause, give_way, call_kernel, prefetch = (
        isa.atomic_add,
        isa.atomic_load,
        isa.atomic_store,
        isa.pause,
        isa.sched_yield,
        isa.call_kernel,
        isa.prefetch,
    )

    def called(op: int, ith: int, nth: int) -> None:
        store_i64(op, 40, ith * 100 + nth)

    inner = numba.cfunc(void(i64, i64, i64), nopython=True)(called)

    def kernel(op: int, ith: int, nth: int) -> None:
        cells, address = load_i64(op, 0), load_i64(load_i64(op, 8), 0)
        prefetch(cells, 1 << 40)  # far outside: no harm
        pause()
        give_way()
        store_i64(cells, 0, load_i8(cells, 0) * 1000 + load_u8(cells, 0))
        store_i64(cells, 8, load_i32(cells, 8))
        store_i32(cells, 16, 1 << 33 | 5)
        store_i8(cells, 20, -1)
        store_i64(cells, 24, add(cells + 32, 7))
        put(cells + 48, get(cells + 32) + 1)
        call_kernel(address, cells, 3, 4)

    cells = np.array([0xFF, -2, 0, 0, 30, 0, 0], np.int64)
    call(kernel, cells, np.array([inner.address], np.int64))
    assert cells.tolist() == [-1000 + 255, -2, 5 | 0xFF << 32, 30, 37, 304, 38]


@pytest.mark.parametrize("most", [3, 15, 31, 63, 127, 255, -128])
def test_dot_is_exact(isa: Isa, most: int) -> None:
    """Eight pairs, random and with all products at their extreme, where 16-bit sums would overflow."""
    if most == 255 and not isa.level.wide_quants:
        pytest.skip(f"{isa.level.name} takes quants up to 127")
    signed = most < 0
    dot = make(
        isa, 2, lambda e, w, x: e.dot([(e.load(V32B, w, 32 * i), e.load(V32B, x, 32 * i)) for i in range(8)], signed, abs(most))
    )
    load_i64 = isa.load_i64

    def kernel(op: int, ith: int, nth: int) -> None:
        for i in range(3):
            dot(load_i64(op, 0) + i * 256, load_i64(op, 8) + i * 256, load_i64(op, 16) + i * 32)

    rng = np.random.default_rng(abs(most))
    x = rng.integers(-127, 128, (3, 8, 32)).astype(np.int8)
    w = rng.integers(-128, 128, x.shape) if signed else rng.integers(0, most + 1, x.shape)
    w[1:], x[1], x[2] = most, 127, -127
    out = np.zeros((3, 8), np.int32)
    call(kernel, w.astype(np.uint8), x, out)
    assert np.array_equal(out, (w * x.astype(np.int64)).reshape(3, 8, 8, 4).sum(axis=(1, 3)))


def test_lookup(isa: Isa) -> None:
    table = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 0)
    find = make(isa, 1, lambda e, index: e.lookup(table, e.load(V32B, index)))
    load_i64 = isa.load_i64

    def kernel(op: int, ith: int, nth: int) -> None:
        find(load_i64(op, 0), load_i64(op, 8))

    index, out = np.arange(32, dtype=np.uint8)[::-1] % 16, np.zeros(32, np.int8)
    call(kernel, np.ascontiguousarray(index), out)
    assert np.array_equal(out, np.array(table)[index])


def test_vector_types_are_told_apart() -> None:
    assert I8X32 != I32X8 and str(I8X32) == "Vec(i8x32)"
