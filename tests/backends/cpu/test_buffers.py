"""Memory of a plan: buffers that are in use at the same time never overlap, and those that are not share."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from edgellm.backends.cpu.buffers import ALIGNMENT, MODES, Arena, Value


def bytes_of(value: Value, rows: int) -> range:
    return range(value.address, value.address + rows * value.stride)


def free(arena: Arena, value: Value) -> None:
    arena.give_back(value.buffer)
    for table in MODES:
        arena.barrier(table)


def test_small_buffers_share_the_place_of_a_large_one() -> None:
    arena = Arena(1 << 16)
    large = arena.take(16, 4000, 1000)
    free(arena, large)
    small = [arena.take(16, 1000, 250) for _ in range(3)]
    assert [value.address - large.address for value in small] == [0, 16384, 32768]
    assert len({value.buffer for value in (large, *small)}) == 4  # to barriers, each is a buffer of its own
    for value in (small[1], small[2], small[0]):
        free(arena, value)
    assert arena.take(16, 4000, 1000).address == large.address and arena.nbytes == 16 * large.stride


@pytest.mark.parametrize(("row_bytes", "stride"), [(64, 64), (2000, 2048 + 64), (2048, 2048 + 64), (2049, 2112), (8192, 8192 + 64)])
def test_rows_do_not_lie_a_power_of_two_apart(row_bytes: int, stride: int) -> None:
    """They would share a few sets of each cache."""
    assert Arena().take(16, row_bytes, row_bytes // 4).stride == stride


def test_a_buffer_rests_until_every_table_has_had_a_barrier() -> None:
    arena = Arena(256)
    first = arena.take(1, 256, 64)
    arena.give_back(first.buffer)
    for table in MODES:
        assert arena.take(1, 64, 16).address != first.address
        arena.barrier(table)
    assert arena.take(1, 256, 64).address == first.address


@pytest.mark.parametrize("reserve", [0, 5000, 1 << 20])
def test_buffers_in_use_never_overlap(reserve: int) -> None:
    arena, rng, used = Arena(reserve), random.Random(reserve), list[tuple[Value, int]]()
    for step in range(600):
        if used and rng.random() < 0.5:
            free(arena, used.pop(rng.randrange(len(used)))[0])
        rows, row_bytes = rng.randrange(1, 20), rng.randrange(1, 3000)
        value = arena.take(rows, row_bytes, row_bytes // 4)
        assert value.address % ALIGNMENT == value.stride % ALIGNMENT == 0 and value.stride >= row_bytes
        block = arena.block(value)
        assert len(block) == rows * value.stride and block.ctypes.data == value.address
        block[:] = step % 251
        used.append((value, rows))
    ranges = sorted((bytes_of(value, rows) for value, rows in used), key=lambda each: each.start)
    assert all(a.stop <= b.start for a, b in pairwise(ranges))
    assert all((arena.block(value) == arena.block(value)[0]).all() for value, _ in used)
    assert arena.nbytes >= sum(map(len, ranges))
