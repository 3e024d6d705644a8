"""Rows of keys and values in their forms, on every ISA level: what is written, rotated and rounded, and quants read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
import tiny_latent
import tiny_models
from isa_levels import FLOAT_LEVELS
from tiny_models import tiny_model

import edgellm
from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.attention import kv_rows, rotation
from edgellm.backends.cpu.kernels.attention.kv_quants import TRIED
from edgellm.backends.cpu.simd import Isa, load_isa
from edgellm.errors import BackendError, OptionError
from edgellm.memory.kv_types import BLOCK, KV_TYPES, QUANTISED, check_kv_type, kv_row_bytes

ROWS = abi.ATTENTION_BLOCK
DIMS = [1, 8, 20, 32, 64, 100]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
i64, void = numba.types.int64, numba.types.void


@pytest.fixture(scope="module", params=FLOAT_LEVELS)
def isa(request: pytest.FixtureRequest) -> Isa:
    return load_isa(request.param)


@pytest.fixture(scope="module")
def keep(isa: Isa) -> dict[str, Any]:
    """Compiled functions (record, dim) by type: all rows at word 0 of the record into the cache at word 1."""
    return {kv_type: _keeper(isa, kv_type) for kv_type in KV_TYPES}


def _keeper(isa: Isa, kv_type: str) -> Any:
    load_i64, put, row_bytes = isa.load_i64, kv_rows.put(kv_type, isa), kv_rows.row(kv_type)

    def rows(record, dim):  # type: ignore[no-untyped-def]  # Numba types it
        for row in range(ROWS):
            put(load_i64(record, 0) + row * dim * 4, load_i64(record, 8) + row * row_bytes(dim), dim)

    return numba.cfunc(void(i64, i64), nopython=True, error_model="numpy", boundscheck=False)(rows).ctypes


@pytest.fixture(scope="module")
def widen(isa: Isa) -> dict[str, Any]:
    """Compiled functions (record, dim) by type: a block of rows at word 0 of the record as f32 at word 1."""
    return {kv_type: _widener(isa, kv_type) for kv_type in QUANTISED}


def _widener(isa: Isa, kv_type: str) -> Any:
    load_i64, emitted = isa.load_i64, kv_rows.widen(kv_type, isa)

    def block(record, dim):  # type: ignore[no-untyped-def]
        emitted(load_i64(record, 0), dim, load_i64(record, 8), 0)

    return numba.cfunc(void(i64, i64), nopython=True, error_model="numpy", boundscheck=False)(block).ctypes


@pytest.fixture(scope="module")
def rotate(isa: Isa) -> Any:
    load_i64, emitted = isa.load_i64, rotation.rotate(isa)

    def rows(record, dim):  # type: ignore[no-untyped-def]
        for row in range(ROWS):
            emitted(load_i64(record, 0) + row * dim * 4, dim)

    return numba.cfunc(void(i64, i64), nopython=True, error_model="numpy", boundscheck=False)(rows).ctypes


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


def rotated(rotate: Any, values: Floats) -> Floats:
    turned = values.copy()
    call(rotate, values.shape[1], turned)
    return turned


@pytest.mark.parametrize("dim", DIMS)
def test_rotation_is_by_hadamard_matrices(rotate: Any, dim: int) -> None:
    values, matrix, at = values_of(dim), np.eye(dim), 0
    for n in (*[32] * (dim // 32), *(n for n in (16, 8) if dim & n)):
        hadamard = np.ones((1, 1))
        while len(hadamard) < n:
            hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
        matrix[at : at + n, at : at + n] = hadamard / np.sqrt(n)
        at += n
    turned, size = rotated(rotate, values), np.abs(values).max(axis=1, keepdims=True)
    assert (np.abs(turned - values @ matrix) <= 1e-6 * size).all()
    assert (np.abs(rotated(rotate, turned) - values) <= 1e-6 * size).all()


def steps_of(scales: Any, dim: int) -> Floats:
    """A block's f16 scale for each of its values."""
    steps: Floats = np.repeat(scales.astype(np.float32), BLOCK, axis=1)[:, :dim]
    return steps


def blocks_of(values: Floats) -> Floats:
    return np.pad(values, ((0, 0), (0, -values.shape[1] % BLOCK))).reshape(ROWS, -1, BLOCK)


def nearest(values: Floats, steps: Floats, low: int, high: int) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(steps != 0, np.float32(1) / steps, np.float32(0))
    quants: Floats = np.clip(np.rint(values * inverse), low, high)
    return quants


def halves(rows: Bytes, dim: int) -> Floats:
    """Quants of "q4_0": the second half of a block stands in the upper halves of its bytes."""
    pairs = rows[:, : -(-dim // BLOCK) * BLOCK // 2].reshape(ROWS, -1, BLOCK // 2)
    quants: Floats = np.concatenate([pairs & 15, pairs >> 4], axis=2).reshape(ROWS, -1)[:, :dim].astype(np.float32) - 8
    return quants


@pytest.mark.parametrize("dim", DIMS)
def test_bytes_are_the_nearest_steps(keep: dict[str, Any], rotate: Any, dim: int) -> None:
    values = values_of(dim)
    rows, values = kept(keep, "q8_0", values), rotated(rotate, values)
    quants, scales = rows[:, :dim].view(np.int8), rows[:, dim:].copy().view(np.float16)
    np.testing.assert_array_equal(scales, (np.abs(blocks_of(values)).max(axis=2) / np.float32(127)).astype(np.float16))
    np.testing.assert_array_equal(quants, nearest(values, steps_of(scales, dim), -127, 127))
    assert not quants[3].any() and np.abs(quants).max() == 127


@pytest.mark.parametrize("dim", DIMS)
def test_halves_of_bytes_are_the_nearest_of_the_best_steps(keep: dict[str, Any], rotate: Any, dim: int) -> None:
    values = np.clip(values_of(dim), -1000, 1000)
    rows, values = kept(keep, "q4_0", values), rotated(rotate, values)
    scales = rows[:, -(-dim // BLOCK) * BLOCK // 2 :].copy().view(np.float16)
    quants = halves(rows, dim)
    np.testing.assert_array_equal(quants, nearest(values, steps_of(scales, dim), -8, 7))
    blocks = blocks_of(values)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2)[..., None], 2)
    errors = []
    for part in TRIED:
        steps = np.float32(-part / 8) * largest
        errors.append(((nearest(blocks, steps, -8, 7) * steps - blocks) ** 2).sum(axis=2))
    ours = (blocks_of(quants * steps_of(scales, dim) - values) ** 2).sum(axis=2)
    normal, slack = np.abs(scales) > 1e-4, 1e-6 * (blocks**2).sum(axis=2)  # smaller scales have few bits in f16
    assert normal.sum() > normal.size // 4 and (ours <= np.min(errors, axis=0) * 1.02 + slack)[normal].all()
    assert not quants[3].any()


@pytest.mark.parametrize("dim", DIMS)
def test_widened_quants_are_quants_times_steps(keep: dict[str, Any], widen: dict[str, Any], dim: int) -> None:
    for kv_type in QUANTISED:
        rows, out = kept(keep, kv_type, values_of(dim)), np.full((ROWS + 1, dim), 7, np.float32)
        call(widen[kv_type], dim, rows, out)
        quants = rows[:, :dim].view(np.int8).astype(np.float32) if kv_type == "q8_0" else halves(rows, dim)
        scales = rows[:, kv_row_bytes(kv_type, dim) - -(-dim // BLOCK) * 2 :].copy().view(np.float16)
        np.testing.assert_array_equal(out[:-1], quants * steps_of(scales, dim))
        assert (out[-1] == 7).all()


@pytest.mark.parametrize("kv_type", QUANTISED)
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 17, 39])
def test_what_is_no_number_shows(keep: dict[str, Any], widen: dict[str, Any], kv_type: str, odd: float, place: int) -> None:
    values = values_of(40)
    values[5, place] = odd
    out = np.empty((ROWS, 40), np.float32)
    call(widen[kv_type], 40, kept(keep, kv_type, values), out)
    same_block = np.arange(40) // BLOCK == place // BLOCK
    assert np.isnan(out[5, same_block]).all() and np.isfinite(out[5, ~same_block]).all() and np.isfinite(out[6]).all()


def test_values_within_keys_have_to_come_in_whole_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny_latent, "LATENT", 40)
    monkeypatch.setattr(tiny_models, "_WRITTEN", {})  # kept for later tests, whose rows are not as long
    with pytest.raises(BackendError, match="values of 40 within keys"):
        edgellm.load(tiny_model(tmp_path / "m.gguf", "deepseek2"), kv_type="q8_0", backend="cpu")


def test_bytes_of_rows() -> None:
    assert [kv_row_bytes(kv_type, 64) for kv_type in KV_TYPES] == [128, 68, 36, 256]
    assert kv_row_bytes("q8_0", 20) == 22 and kv_row_bytes("q8_0", 33) == 37 and kv_row_bytes("q4_0", 33) == 36
    with pytest.raises(OptionError, match="give f16, q8_0, q4_0 or f32"):
        check_kv_type("q4_1")
