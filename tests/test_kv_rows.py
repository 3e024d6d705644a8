"""Rows of keys and values in their forms, on every rung: what is written, and "q8_0" read again."""
from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest

from edgellm.backends.cpu import abi, system
from edgellm.backends.cpu.kernels import kv_rows
from edgellm.backends.cpu.simd import Isa, load_isa
from edgellm.errors import OptionError
from edgellm.memory.kv_types import BLOCK, KV_TYPES, check_kv_type, kv_row_bytes

ROWS = abi.ATTENTION_BLOCK
DIMS = [1, 8, 20, 32, 64, 100]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
i64, void = numba.types.int64, numba.types.void


@pytest.fixture(scope="module", params=system.usable_isas())
def isa(request: pytest.FixtureRequest) -> Isa:
    return load_isa(request.param)


@pytest.fixture(scope="module")
def keep(isa: Isa) -> dict[str, Any]:
    """Compiled functions (record, dim) by type: all rows at word 0 of the record into the cache at word 1."""
    return {kv_type: _keeper(isa, kv_type) for kv_type in KV_TYPES}


def _keeper(isa: Isa, kv_type: str) -> Any:
    load_i64, put, row_bytes = isa.load_i64, kv_rows.put(kv_type, isa), kv_rows.row(kv_type)

    def rows(record, dim):                       # type: ignore[no-untyped-def]  # Numba types it
        for row in range(ROWS):
            put(load_i64(record, 0) + row * dim * 4, load_i64(record, 8) + row * row_bytes(dim), dim)

    return numba.cfunc(void(i64, i64), nopython=True, error_model="numpy", boundscheck=False)(rows).ctypes


@pytest.fixture(scope="module")
def widen(isa: Isa) -> Any:
    load_i64, emitted = isa.load_i64, kv_rows.widen(isa)

    def block(record, dim):                      # type: ignore[no-untyped-def]
        emitted(load_i64(record, 0), dim, load_i64(record, 8))

    return numba.cfunc(void(i64, i64), nopython=True, error_model="numpy", boundscheck=False)(block).ctypes


def call(function: Any, dim: int, *arrays: npt.NDArray[Any]) -> None:
    record = np.array([array.ctypes.data for array in arrays], np.int64)
    function(record.ctypes.data, dim)


def kept(keep: dict[str, Any], kv_type: str, values: Floats) -> Bytes:
    """The cache's rows, with a margin that nothing may touch."""
    dim = values.shape[1]
    cache = np.full(ROWS * kv_row_bytes(kv_type, dim) + 64, 0xA5, np.uint8)
    call(keep[kv_type], dim, values, cache)
    assert (cache[-64:] == 0xA5).all()
    return cache[:-64].reshape(ROWS, -1)


def values_of(dim: int) -> Floats:
    rng = np.random.default_rng(dim)
    sizes = rng.choice([1e-6, 1e-3, 1.0, 300.0, 1e5], (ROWS, 1))
    values = (rng.standard_normal((ROWS, dim)) * sizes).astype(np.float32)
    values[3] = 0
    return values


@pytest.mark.parametrize("dim", DIMS)
def test_floats_are_converted(keep: dict[str, Any], dim: int) -> None:
    values = np.clip(values_of(dim), -60000, 60000)
    np.testing.assert_array_equal(kept(keep, "f32", values).view(np.float32), values)
    np.testing.assert_array_equal(kept(keep, "f16", values).view(np.float16), values.astype(np.float16))


@pytest.mark.parametrize("dim", DIMS)
def test_bytes_are_the_nearest_steps(keep: dict[str, Any], dim: int) -> None:
    values = values_of(dim)
    rows = kept(keep, "q8_0", values)
    codes, scales = rows[:, :dim].view(np.int8), rows[:, dim:].copy().view(np.float16)
    blocks = np.pad(values, ((0, 0), (0, -dim % BLOCK))).reshape(ROWS, -1, BLOCK)
    np.testing.assert_array_equal(scales, (np.abs(blocks).max(axis=2) / np.float32(127)).astype(np.float16))
    steps = np.repeat(scales.astype(np.float32), BLOCK, axis=1)[:, :dim]
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(steps > 0, np.float32(1) / steps, np.float32(0))
    np.testing.assert_array_equal(codes, np.clip(np.rint(values * inverse), -127, 127))
    assert not codes[3].any() and np.abs(codes).max() == 127


@pytest.mark.parametrize("dim", DIMS)
def test_widened_bytes_are_codes_times_steps(keep: dict[str, Any], widen: Any, dim: int) -> None:
    rows = kept(keep, "q8_0", values_of(dim))
    out = np.full((ROWS + 1, dim), 7, np.float32)
    call(widen, dim, rows, out)
    steps = np.repeat(rows[:, dim:].copy().view(np.float16).astype(np.float32), BLOCK, axis=1)[:, :dim]
    np.testing.assert_array_equal(out[:-1], rows[:, :dim].view(np.int8).astype(np.float32) * steps)
    assert (out[-1] == 7).all()


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 17, 39])
def test_what_is_no_number_shows(keep: dict[str, Any], widen: Any, odd: float, place: int) -> None:
    values = values_of(40)
    values[5, place] = odd
    out = np.empty((ROWS, 40), np.float32)
    call(widen, 40, kept(keep, "q8_0", values), out)
    same_block = np.arange(40) // BLOCK == place // BLOCK
    assert np.isnan(out[5, same_block]).all() and np.isfinite(out[5, ~same_block]).all() and np.isfinite(out[6]).all()


def test_bytes_of_rows() -> None:
    assert [kv_row_bytes(kv_type, 64) for kv_type in KV_TYPES] == [128, 68, 256]
    assert kv_row_bytes("q8_0", 20) == 22 and kv_row_bytes("q8_0", 33) == 37
    with pytest.raises(OptionError, match="choose one of f16, q8_0, f32"):
        check_kv_type("q4_0")
