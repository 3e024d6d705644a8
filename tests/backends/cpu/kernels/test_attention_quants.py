"""A block of keys and values in quants, multiplied as integers, against float64, on every ISA level."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from isa_levels import ISA_LEVELS

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.attention import attention_block, kv_quants
from edgellm.backends.cpu.kernels.attention.attention_partial import LOWEST
from edgellm.backends.cpu.simd import Isa, load_isa
from edgellm.memory.kv_types import QUANTISED, kv_row_bytes

KEYS, SCALE = abi.ATTENTION_BLOCK, np.float32(0.125)
Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
i64, void = numba.types.int64, numba.types.void


@pytest.fixture(scope="module", params=ISA_LEVELS)
def isa(request: pytest.FixtureRequest) -> Isa:
    return load_isa(request.param)


def compiled(isa: Isa, kv_type: str, queries: int) -> Any:
    """Function of a record: queries to i16, then a block added to their partials."""
    load_i64, load_f32 = isa.load_i64, isa.load_f32
    block = attention_block.build(kv_type, isa, queries)
    to_int16 = isa.make("to_int16", void, (i64, i64), kv_quants.query_to_int16)

    def run(record):  # type: ignore[no-untyped-def]  # Numba types it
        table, dim = load_i64(record, 0), load_i64(record, 48)
        for query in range(queries):
            to_int16(load_i64(table, query * abi.ATTENTION_ENTRY), dim)
        keys, values, part = load_i64(record, 8), load_i64(record, 16), load_i64(record, 24)
        block(
            table,
            0,
            keys,
            values,
            keys,
            values,
            load_i64(record, 40),
            part,
            queries + 1,
            load_i64(record, 32),
            dim,
            dim,
            dim,
            load_f32(record, 56),
            np.float32(0),
        )

    return numba.cfunc(void(i64), nopython=True, error_model="numpy", boundscheck=False)(run).ctypes


def random_rows(rng: np.random.Generator, kv_type: str, dim: int) -> tuple[Bytes, npt.NDArray[np.float64]]:
    """Rows as they are kept, and what they stand for."""
    low, high = (-127, 128) if kv_type == "q8_0" else (-8, 8)
    quants = rng.integers(low, high, (KEYS, dim // 32, 32))
    scales = rng.uniform(0.001, 0.02, (KEYS, dim // 32)).astype(np.float16)
    if kv_type == "q8_0":
        kept = quants.astype(np.int8).view(np.uint8).reshape(KEYS, dim)
    else:
        kept = ((quants[..., :16] + 8) | (quants[..., 16:] + 8) << 4).astype(np.uint8).reshape(KEYS, dim // 2)
    rows = np.concatenate([kept, scales.view(np.uint8).reshape(KEYS, -1)], axis=1)
    assert rows.shape[1] == kv_row_bytes(kv_type, dim)
    return rows, (quants * scales.astype(np.float64)[..., None]).reshape(KEYS, dim)


def added(run: Any, kv_type: str, q: Floats, keys: Bytes, values: Bytes, seen: range, at: int) -> tuple[Floats, Floats, Floats]:
    """Weighted values, maxima and sums of weights of all queries, of a block that begins with key `at`."""
    queries, dim = q.shape
    rows, table = np.ascontiguousarray(q.copy()), np.zeros((queries, abi.ATTENTION_ENTRY // 8), np.int64)
    table[:, 0] = rows.ctypes.data + np.arange(queries) * rows.strides[0]
    table[:, 1], table[:, 2] = seen.start, seen.stop
    part = np.zeros((queries + 1) * (dim + 16), np.float32)
    stats = part[(queries + 1) * dim :].reshape(-1, 16)
    stats[:, 0] = LOWEST
    scores = np.full(abi.ATTENTION_SCORES // 4, np.nan, np.float32)
    record = np.array([each.ctypes.data for each in (table, keys, values, part, scores)] + [at, dim, 0], np.int64)
    record[7:].view(np.float32)[0] = SCALE
    run(record.ctypes.data)
    return part[: queries * dim].reshape(queries, dim), stats[:queries, 0], stats[:queries, 8:].sum(axis=1)


@pytest.mark.parametrize("queries", [2, 4])
@pytest.mark.parametrize("kv_type", QUANTISED)
def test_a_block_of_quants(isa: Isa, kv_type: str, queries: int) -> None:
    """Queries and weights in i16 are nearly f32; of 32 keys the first or the last ones may be out of sight."""
    run, rng = compiled(isa, kv_type, queries), np.random.default_rng(3)
    for dim, seen, at in ((32, range(64, 96), 64), (96, range(69, 96), 64), (128, range(10, 77), 64), (64, range(90, 91), 64)):
        q = rng.standard_normal((queries, dim)).astype(np.float32) * rng.uniform(0.1, 8, (queries, 1)).astype(np.float32)
        (keys, k), (values, v) = (random_rows(rng, kv_type, dim) for _ in range(2))
        sums, maxima, totals = added(run, kv_type, q, keys, values, seen, at)
        score = q.astype(np.float64) @ k.T * float(SCALE)
        hidden = [key for key in range(KEYS) if at + key not in seen]
        score[:, hidden] = -np.inf
        weight = np.exp(score - maxima[:, None].astype(np.float64))
        np.testing.assert_allclose(maxima, score.max(axis=1), rtol=0, atol=np.abs(q).max() * np.abs(k).max() * dim * 1e-5)
        np.testing.assert_allclose(totals, weight.sum(axis=1), rtol=1e-3)
        error = np.abs(sums - weight @ v) / (weight @ np.abs(v)).max()
        assert error.max() < 1e-3, (dim, error.max())


@pytest.mark.parametrize("kv_type", QUANTISED)
def test_what_nobody_sees_may_be_anything(isa: Isa, kv_type: str) -> None:
    run, rng = compiled(isa, kv_type, 2), np.random.default_rng(4)
    q = rng.standard_normal((2, 64)).astype(np.float32)
    (keys, _), (values, _) = (random_rows(rng, kv_type, 64) for _ in range(2))
    expected = added(run, kv_type, q, keys, values, range(8, 20), 0)
    for rows in (keys, values):
        rows[:8, -4:] = rows[24:, -4:] = 0xFF  # scales that are no number
    for found, each in zip(added(run, kv_type, q, keys, values, range(8, 20), 0), expected, strict=True):
        np.testing.assert_array_equal(found, each)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_query_that_is_no_number_shows(isa: Isa, value: float) -> None:
    run, rng = compiled(isa, "q8_0", 2), np.random.default_rng(5)
    q = rng.standard_normal((2, 64)).astype(np.float32)
    q[1, 5] = value
    (keys, _), (values, _) = (random_rows(rng, "q8_0", 64) for _ in range(2))
    sums, _, totals = added(run, "q8_0", q, keys, values, range(32), 0)
    assert np.isfinite(sums[0]).all() and np.isfinite(totals[0])
    assert not np.isfinite(sums[1] / totals[1]).any()
