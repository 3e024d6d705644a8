"""Few columns on AArch64, as IR: raw rows by up to four columns, four blocks at a time.

The sums are those of superblock.py, operation by operation; only the way of the integers is another. A vector has half a block.
Block j of four has a chain of dot products of its own, and pairwise additions make one vector of the four chains. One column takes
two rows at once, so that activations are loaded once for both, and its chains run on from block to block to the row's end: what one
block gave is the difference of two states, exact even where the chain has overflowed. That saves the zeroing of an accumulator per
block, a tenth of all instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from numba.core import cgutils

from edgellm.backends.cpu.kernels.unpack.neon_unpack import ANCHOR, numbers_of_four
from edgellm.backends.cpu.kernels.unpack.superblock import (
    BLOCKS,
    Shape,
    accumulator_init,
    open_superblock,
    quants_offset,
    raw_superblock_bytes,
    sums_section,
    weighed,
)
from edgellm.backends.cpu.kernels.unpack.unpack import Superblock
from edgellm.backends.cpu.simd.base import I64, Value
from edgellm.backends.cpu.simd.generic import V16B
from edgellm.backends.cpu.simd.neon import V4F, V4I, Neon
from edgellm.backends.cpu.traits import SUPERBLOCK, TRAITS

Load = Callable[..., Value]  # (block, half)
GROUP = 4  # blocks whose sums make a vector
GROUPS = BLOCKS // GROUP
PREFETCH = 2048  # bytes ahead, at least, of the rows' stream


@dataclass(frozen=True, slots=True)
class _State:
    """The registers of one row by one column: pointers to the accumulators (an f32x4 per group); where chains run on,
    also to these and their sums at the last block.
    """

    totals: Sequence[Value]
    chains: Sequence[Value] = ()
    before: Value | None = None


def accumulate(
    e: Neon,
    name: str,
    shape: Shape,
    weights: Value,
    row_bytes: Value,
    rows: Value,
    k: Value,
    columns: Sequence[Value],
    spaces: Sequence[Value],
) -> None:
    """The eight accumulators of each of some rows by some columns, to the column's space: an f32x8 after the other."""
    b, at_once = e.b, 2 if len(columns) == 1 else 1
    with e.loop(b.sdiv(b.add(rows, at_once - 1), at_once)) as index:
        first = b.mul(index, at_once)
        mine = [first]
        if at_once == 2:  # past the last row that one is done again, the same
            mine.append(b.select(b.icmp_signed("<", b.add(first, 1), rows), b.add(first, 1), first))
        states = _rows(e, name, shape, [e.at(weights, row, row_bytes) for row in mine], k, columns)
        for row, of_row in zip(mine, states, strict=True):
            for state, space in zip(of_row, spaces, strict=True):
                for group, total in enumerate(state.totals):
                    e.store(b.load(total), e.at(space, row, 32), 16 * group)


def _rows(e: Neon, name: str, shape: Shape, rows: Sequence[Value], k: Value, columns: Sequence[Value]) -> list[list[_State]]:
    """One or two rows from end to end by some columns; all streams run through."""
    b, raw_superblock, full = e.b, raw_superblock_bytes(name), e.b.sdiv(k, SUPERBLOCK)
    superblocks = b.sdiv(b.add(k, SUPERBLOCK - 1), SUPERBLOCK)
    section, first_scales = b.mul(superblocks, BLOCKS * 4), b.mul(superblocks, SUPERBLOCK)
    states = [[_new_state(e, chained=len(columns) == 1) for _ in columns] for _ in rows]

    def add_superblock(weights: Sequence[Value], quants: Sequence[Value], scales: Sequence[Value], last: Value | None) -> None:
        opened = [open_superblock(e, name, row, last) for row in weights]
        for group in range(GROUPS):
            _add_group(e, shape, opened, states, list(zip(quants, scales, strict=True)), section, group)

    anchor = I64(ANCHOR.get(name, 0))
    streams = [*(b.add(row, anchor) for row in rows), *columns, *(b.add(x, first_scales) for x in columns)]
    streams.append(b.add(rows[0], PREFETCH))
    strides = [
        *[raw_superblock] * len(rows),
        *[SUPERBLOCK] * len(columns),
        *[BLOCKS * 4] * len(columns),
        raw_superblock * len(rows),
    ]
    variables = [cgutils.alloca_once_value(b, stream) for stream in streams]
    for stream, variable in zip(streams, variables, strict=True):
        b.store(stream, variable)

    def here() -> tuple[list[Value], list[Value], list[Value], Value]:
        *at, ahead = (b.load(variable) for variable in variables)
        return [b.sub(row, anchor) for row in at[: len(rows)]], at[len(rows) : -len(columns)], at[-len(columns) :], ahead

    with e.loop(full):
        row, quant, scale, ahead = here()
        for line in range(-(-raw_superblock * len(rows) // 64)):
            e.prefetch(ahead, 64 * line)
        add_superblock(row, quant, scale, None)
        for stride, variable in zip(strides, variables, strict=True):
            b.store(e.plain(b.add(b.load(variable), stride)), variable)  # plain: LLVM would add offsets to bases instead
    if TRAITS[name].block != SUPERBLOCK:
        rest = b.srem(k, SUPERBLOCK)
        with b.if_then(b.icmp_signed(">", rest, 0)):
            row, quant, scale, _ = here()
            add_superblock(row, quant, scale, b.sub(b.sdiv(rest, TRAITS[name].block), 1))
    return states


def _new_state(e: Neon, chained: bool) -> _State:
    def variable(kind: Any) -> Value:
        pointer = cgutils.alloca_once(e.b, kind)
        e.b.store(e.constant(kind, 0), pointer)
        return pointer

    totals = [variable(V4F) for _ in range(GROUPS)]
    if not (chained and e.level.dot == "signed"):
        return _State(totals)
    return _State(totals, [variable(V4I) for _ in range(GROUP)], variable(V4I))


def _add_group(
    e: Neon,
    shape: Shape,
    superblocks: Sequence[Superblock],
    states: Sequence[Sequence[_State]],
    columns: Sequence[tuple[Value, Value]],
    section: Value,
    group: int,
) -> None:
    """Four blocks of each row by each column, of which the addresses are given: of the superblock's quants and of the d of its
    blocks.
    """
    places = range(GROUP * group, GROUP * group + GROUP)
    opened = [[[each.quants(j, h) for h in (0, 1)] for j in places] for each in superblocks] if len(columns) > 1 else None
    for c, (quants, scales) in enumerate(columns):
        mine = [of_row[c] for of_row in states]
        load = cache(lambda j, h, turn=0, quants=quants: e.load(V16B, quants, quants_offset(j, h, shape.by_block)))

        def quant(row: int, j: int, h: int) -> Value:
            return opened[row][j % GROUP][h] if opened else superblocks[row].quants(j, h)

        dots = (_full_blocks if shape.n_scales == 1 else _half_blocks)(e, shape, mine, quant, load, places)
        offsets, sums, d = _numbers(e, shape, scales, section, group, rows=len(superblocks))
        for superblock, state, parts in zip(superblocks, mine, dots, strict=True):
            if offsets:
                parts = [e.b.add(dot, each) for dot, each in zip(parts, offsets, strict=True)]
            scales_, mins, factor = numbers_of_four(e, superblock, group)
            total = state.totals[group]
            value = weighed(e, e.b.load(total), parts, scales_, mins, sums, d, factor)
            e.b.store(e.done_here([value])[0], total)


def _full_blocks(e: Neon, shape: Shape, states: Sequence[_State], quant: Load, x: Load, places: range) -> list[list[Value]]:
    """For each row an i32x4 of the dot products of four blocks. Two blocks at a time: their activations stay for both rows."""
    ends: list[list[Value]] = [[] for _ in states]
    for two in (places[:2], places[2:]):
        for row, (state, mine) in enumerate(zip(states, ends, strict=True)):
            mine += e.done_here([_chain(e, shape, state, j, [(quant(row, j, h), x(j, h)) for h in (0, 1)]) for j in two])
    return [[_totals(e, state, mine)] for state, mine in zip(states, ends, strict=True)]


def _half_blocks(e: Neon, shape: Shape, states: Sequence[_State], quant: Load, x: Load, places: range) -> list[list[Value]]:
    """For each row two i32x4: of first and of second halves. A second row begins with the halves that the first has ended with."""
    dots = []
    for row, state in enumerate(states):
        mine = {}
        for h in (0, 1) if row == 0 else (1, 0):
            ends = [_chain(e, shape, state, j, [(quant(row, j, h), x(j, h, row * (1 - h)))]) for j in places]
            mine[h] = _totals(e, state, e.done_here(ends))
        dots.append([mine[0], mine[1]])
    return dots


def _chain(e: Neon, shape: Shape, state: _State, j: int, pairs: Sequence[tuple[Value, Value]]) -> Value:
    """Where the chain of block j ends up with these products."""
    start = e.b.load(state.chains[j % GROUP]) if state.chains else None
    return e.dot_anyhow(pairs, 128 if shape.signed else shape.most, start)


def _totals(e: Neon, state: _State, ends: Sequence[Value]) -> Value:
    """The sums of four chains, one lane each."""
    totals = e.totals(ends)
    if not state.chains:
        return totals
    for end, chain in zip(ends, state.chains, strict=True):
        e.b.store(end, chain)
    gained = e.b.sub(totals, e.b.load(state.before))
    e.b.store(totals, state.before)
    return gained


def _numbers(e: Neon, shape: Shape, scales: Value, section: Value, group: int, rows: int) -> tuple[list[Value], list[Value], Value]:
    """A column's numbers for four blocks: what offsets of quants add, sums for mins, and d."""

    def load(kind: Any, part: int) -> Value:
        return e.load(kind, e.at(scales, section, part), 16 * group)

    offsets = [load(V4I, sums_section(h, shape.n_scales)) for h in range(shape.n_scales)] if shape.offset else []
    if rows > 1:  # one shift for all rows
        offsets = [accumulator_init(e, shape.offset, each) for each in offsets]
    else:  # a multiply-add: of a known number LLVM makes a shift and a sum
        offsets = [e.b.mul(each, e.plain(e.constant(V4I, shape.offset))) for each in offsets]
    return offsets, [load(V4I, sums_section(h, shape.n_mins)) for h in range(shape.n_mins)], load(V4F, 0)
