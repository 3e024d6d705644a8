"""Rings and sequences against a naive simulation: a dict of which position each slot holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.graph import KVSpec
from edgellm.memory.layout import MemoryClass, MemoryLayout, plan_memory
from edgellm.memory.sequence import Placement, Ring, Sequence, Spans


def layout(context: int, sinks: int, chunk: int, window: int | None = None, pinned: int = 0) -> MemoryLayout:
    layers = [KVSpec(1, 8, 8)] + ([KVSpec(1, 8, 8, window), KVSpec(1, 8, 8, window, chunked=True)] if window else [])
    return plan_memory(layers, context=context, sinks=sinks, chunk=chunk, pinned=pinned)


class Simulation:
    """One memory class written out: `held` says which position every slot holds, `seen` what a token must see."""

    def __init__(self, memory: MemoryClass, context: int = 0, kept: int | None = None) -> None:
        self.memory = memory
        self.kept = memory.sinks if kept is None or not memory.sinks else kept
        self.window = context - self.kept if context and memory.sinks else memory.window
        self.held: dict[int, int] = {}

    def seen(self, position: int) -> list[int]:
        sinks = range(min(self.kept, position + 1))
        first = position // self.window * self.window if self.memory.chunked else position - self.window + 1
        return [*sinks, *range(max(self.kept, first), position + 1)]

    def run(self, start: int, spans: Spans) -> None:
        """Write the chunk as a back end does (all keys first), then check what each token reads."""
        for k, row in enumerate(spans):
            self.held[int(row[0])] = start + k
        for k, (slot, sinks, first, length) in enumerate(spans.tolist()):
            assert slot < self.memory.slots
            window = [self.memory.sinks + (first - self.memory.sinks + i) % self.memory.ring for i in range(length)]
            read = [self.held.get(s) for s in [*range(sinks), *window]]
            assert read == self.seen(start + k)
            assert (window[-1] if length else sinks - 1) == slot, "a token is the last entry of what it sees"


shapes = st.tuples(st.integers(2, 24), st.integers(0, 6), st.integers(1, 9), st.integers(1, 20)).filter(lambda s: s[0] > s[1] + 1)


@settings(max_examples=150, deadline=None)
@given(shapes, st.lists(st.integers(1, 9), min_size=1, max_size=25), st.data())
def test_every_visible_position_is_resident(shape: tuple[int, int, int, int], chunks: list[int], data: st.DataObject) -> None:
    context, sinks, chunk, window = shape
    plan = layout(context, sinks, chunk, window)
    sequence = Sequence(plan)
    simulations = [Simulation(memory) for memory in plan.classes]
    for n in chunks:
        n = min(n, chunk)
        start = len(sequence)
        placed = sequence.place(n)
        assert placed.positions.tolist() == list(range(start, start + n))
        assert placed.sink_positions.tolist() == [min(p, context - 1) for p in range(start, start + n)]
        for simulation, spans in zip(simulations, placed.spans, strict=True):
            simulation.run(start, spans)
        sequence.extend(np.arange(start, start + n, dtype=np.int32))
        assert sequence.evicted == len(sequence) - len(simulations[0].seen(len(sequence) - 1))
        check_truncation(sequence, simulations)
        if data.draw(st.booleans()):
            allowed = [length for length in range(len(sequence) + 1) if sequence.can_truncate(length)]
            sequence.truncate(data.draw(st.sampled_from(allowed)))


def check_truncation(sequence: Sequence, simulations: list[Simulation]) -> None:
    """Where a cut is allowed, all that the next token sees (itself aside) is held; where it is refused, something is not."""
    for length in range(len(sequence) + 1):
        held = all(set(s.seen(length)) - {length} <= set(s.held.values()) for s in simulations)
        if sequence.can_truncate(length):
            assert held
    assert sequence.can_truncate(len(sequence)) and sequence.can_truncate(0)


@given(shapes, st.integers(0, 200))
def test_a_cut_is_refused_only_where_something_is_gone(shape: tuple[int, int, int, int], total: int) -> None:
    context, sinks, chunk, window = shape
    plan = layout(context, sinks, chunk, window)
    sequence, simulations = Sequence(plan), [Simulation(memory) for memory in plan.classes]
    for position in range(total):
        for simulation, spans in zip(simulations, sequence.place(1).spans, strict=True):
            simulation.run(position, spans)
        sequence.extend(np.array([position], np.int32))
    for length in range(total + 1):
        held = all(set(s.seen(length)) - {length} <= set(s.held.values()) for s in simulations)
        assert sequence.can_truncate(length) == held


@settings(max_examples=150, deadline=None)
@given(shapes, st.integers(0, 12), st.integers(1, 60), st.data())
def test_more_first_tokens_may_stay(shape: tuple[int, int, int, int], pinned: int, total: int, data: st.DataObject) -> None:
    context, sinks, chunk, window = shape
    plan = layout(context, sinks, chunk, window, min(pinned, context // 2))
    kept = data.draw(st.integers(sinks, max(sinks, min(pinned, context // 2))))
    sequence = Sequence(plan)
    sequence.keep(kept)
    simulations = [Simulation(memory, context, kept) for memory in plan.classes]
    while len(sequence) < total:
        n, start = data.draw(st.integers(1, chunk)), len(sequence)
        for simulation, spans in zip(simulations, sequence.place(n).spans, strict=True):
            simulation.run(start, spans)
        sequence.extend(np.arange(start, start + n, dtype=np.int32))
    assert sequence.evicted == max(0, len(sequence) - context)
    check_truncation(sequence, simulations)
    assert sequence.fork().kept == kept


@given(shapes, st.integers(0, 10**12), st.integers(1, 9))
def test_one_token_at_a_time_equals_a_chunk(shape: tuple[int, int, int, int], start: int, n: int) -> None:
    context, sinks, chunk, window = shape
    for memory in layout(context, sinks, chunk, window).classes:
        ring, rows, out = Ring(memory), [], np.zeros((1, 4), np.int32)
        for k in range(n):
            ring.place_one(start + k, out)
            rows.append(out[0].tolist())
            assert rows[-1][0] == ring.slot(start + k)
        assert ring.place(start, n).tolist() == rows


def test_a_failed_step_leaves_the_sequence_as_it_was() -> None:
    sequence = Sequence(layout(16, 2, 4, 5))
    for _ in range(80):
        sequence.extend(sequence.place(4).positions.astype(np.int32))
    before = len(sequence)
    sequence.place(4)  # the step fails: extend is never called
    assert len(sequence) == before and sequence.can_truncate(before) and not sequence.can_truncate(before - 256)


def test_decode_reuses_its_arrays() -> None:
    sequence = Sequence(layout(16, 2, 4))
    first: Placement = sequence.place(1)
    sequence.extend(np.array([7], np.int32))
    assert sequence.place(1) is first and first.positions[0] == 1


def test_common_prefix() -> None:
    sequence = Sequence(layout(16, 2, 4))
    sequence.extend(np.array([5, 6, 7, 8], np.int32))
    for tokens, wanted in (([5, 6, 9, 8], 2), ([5, 6, 7, 8, 9], 4), ([5], 1), ([], 0), ([1, 6], 0)):
        assert sequence.common_prefix(np.array(tokens, np.int32)) == wanted


def test_a_cut_that_is_not_possible_is_a_bug_of_ours() -> None:
    sequence = Sequence(layout(8, 1, 2))
    for position in range(600):
        sequence.place(1)
        sequence.extend(np.array([position], np.int32))
    with pytest.raises(AssertionError):
        sequence.truncate(10)


def test_sliding_layers_get_their_own_class() -> None:
    plan = plan_memory([KVSpec(1, 8, 8, 6), KVSpec(1, 8, 8), KVSpec(1, 8, 8, 64)], context=32, sinks=4, chunk=8)
    assert plan.layer_class == (1, 0, 0)
    assert plan.classes == (MemoryClass(4, 28, 256), MemoryClass(0, 6, 256))


def ids_with_pictures(pieces: list[tuple[int, int]]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Texts and pictures of these lengths in turn; every second row of a long picture is a text between its lines."""
    ids: list[int] = []
    for text, rows in pieces:
        ids += [5] * text + [7 if rows > 4 and k % 3 == 2 and k < rows - 1 else -2 for k in range(rows)]
        if rows:
            ids[-1] = -1
    return np.array(ids, np.int32)


def extents_of(ids: np.ndarray[tuple[int], np.dtype[np.int32]]) -> list[tuple[int, int]]:
    found, start = [], None
    for k, each in enumerate(ids.tolist()):
        if each < 0:
            start = k if start is None else start
            if each == -1:
                found, start = [*found, (start, k + 1)], None
    return found


@settings(max_examples=200, deadline=None)
@given(shapes, st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=9), st.data())
def test_pictures_are_seen_whole_or_not_at_all(
    shape: tuple[int, int, int, int], pieces: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Whatever the steps are, a token sees of each picture before it all or nothing, and of all else what it sees without any."""
    context, sinks, chunk, window = shape
    plan, ids = layout(context, sinks, chunk, window), ids_with_pictures(pieces)
    sequence, plain = Sequence(plan), Simulation(plan.classes[0])
    memory, held = plan.classes[0], dict[int, int]()
    cuts = data.draw(st.integers(0, 4))  # without a bound the walk seldom comes to an end
    while len(sequence) < len(ids):
        n, start = min(data.draw(st.integers(1, chunk)), len(ids) - len(sequence)), len(sequence)
        placed = sequence.place(n, ids[start : start + n])
        for k, row in enumerate(placed.spans[0]):
            held[int(row[0])] = start + k
        for k, (_, stay, first, length) in enumerate(placed.spans[0].tolist()):
            slots = [*range(stay), *(memory.sinks + (first - memory.sinks + i) % memory.ring for i in range(length))]
            seen, without = {held[slot] for slot in slots}, set(plain.seen(start + k))
            before = [set(range(a, b)) for a, b in extents_of(ids) if b <= start + k]
            assert all(picture <= seen or not picture & seen for picture in before)
            cut = [picture for picture in before if picture & without and not picture <= without]
            assert seen == without - set().union(*cut)
        sequence.extend(ids[start : start + n])
        assert sequence.evicted == len(sequence) - len(seen)
        again = Sequence.restored(plan, sequence.ids, sequence.oldest, None, sequence.kept)
        assert again.evicted == sequence.evicted == sequence.fork().evicted
        if cuts and data.draw(st.booleans()):
            cuts -= 1
            sequence.truncate(data.draw(st.sampled_from([m for m in range(len(sequence) + 1) if sequence.can_truncate(m)])))
