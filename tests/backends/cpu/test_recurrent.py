"""Recurrent states: where they are kept, and that conversations are cut back, forked, saved and go on as if nothing had been."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from test_ragged_steps import ready
from tiny_encoders import writers
from tiny_hybrids import HYBRIDS
from tiny_models import tiny_model

import edgellm
from edgellm.backends.base import Executable, State, StepStopped
from edgellm.backends.cpu import executable as cpu
from edgellm.engine.conversation import Conversation
from edgellm.memory.sequence import Sequence
from edgellm.memory.state_ring import StateRing

Logits = npt.NDArray[np.float32]
IDS = np.random.default_rng(5).integers(3, 90, 60).astype(np.int32)


# --- the ring --------------------------------------------------------------------------------------------------------------
class Slots:
    """A conversation whose state after a token is the tuple of all tokens so far, in slots as a back end has them."""

    def __init__(self, ring: StateRing) -> None:
        self.ring, self.slots = ring, dict[int, tuple[int, ...]]()

    def step(self, done: tuple[int, ...], tokens: list[int], *, counts: bool = True) -> tuple[int, ...]:
        places = self.ring.place(len(done), len(tokens))
        assert (places[1:, 0] == places[:-1, 1]).all() and places[0, 0] not in places[:, 1]
        for (before, after), token in zip(places.tolist(), tokens, strict=True):
            self.slots[after] = (*(self.slots[before] if before >= 0 else ()), token)
        if counts:
            self.ring.extend()
        return (*done, *tokens) if counts else done


@pytest.mark.parametrize(("rolling", "snapshots"), [(3, 1), (3, 4), (9, 4)])
def test_slots_hold_what_the_ring_says(rolling: int, snapshots: int) -> None:
    rng, one, done = np.random.default_rng(rolling), Slots(StateRing(rolling, snapshots)), ()
    for token in range(400):
        done = one.step(done, [token] * int(rng.integers(1, 2 * rolling)), counts=bool(rng.random() < 0.8))
        if rng.random() < 0.2:
            one.ring.mark()
        if rng.random() < 0.2 and len(lengths := one.ring.lengths()) > 1:
            done = done[: int(rng.choice(lengths))]
            one.ring.truncate(len(done))
        assert len(one.ring.marked) <= snapshots and len(set(one.ring.held.values())) == len(one.ring.held) <= rolling + snapshots
        for position, slot in one.ring.held.items():
            assert one.slots[slot] == done[: position + 1]
        assert not done or one.ring.can_truncate(len(done))


def test_the_newest_states_and_snapshots_stay() -> None:
    one = Slots(StateRing(4, 2))
    done = one.step((), list(range(20)))
    assert one.ring.lengths() == [20, 19, 18, 0]  # one slot is for what the next step starts from
    one.ring.mark()
    for token in range(6):
        done = one.step(done, [token])
    assert one.ring.lengths() == [26, 25, 24, 23, 18, 0] and one.ring.marked == (17,)
    for _ in range(2):
        done = one.step(done, [1, 2, 3, 4])
        one.ring.mark()
    assert one.ring.marked == (25, 29)
    one.step(done, [1])
    assert one.ring.lengths() == [35, 34, 33, 32, 30, 26, 0]


# --- the back ends ---------------------------------------------------------------------------------------------------------
def feed(executable: Executable, state: State, sequence: Sequence, ids: npt.NDArray[np.int32], size: int) -> Logits:
    """Logits of all tokens, `size` a step."""
    found = []
    for first in range(0, len(ids), size):
        part = ids[first : first + size]
        rows = np.arange(len(part), dtype=np.int32)
        found.append(executable.submit(Conversation(sequence, state).step(part, rows)).wait()["logits"].copy())
        sequence.extend(part)
    return np.concatenate(found)


def close(backend: str, a: Logits, b: Logits) -> bool:
    """The same bits on the CPU."""
    return np.array_equal(a, b) if backend == "cpu" else bool(np.abs(a - b).max() <= 1e-4 * np.abs(b).max())


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "cpu") for name in HYBRIDS),
        *(pytest.param(name, "mlx", marks=pytest.mark.slow if number % 4 else ()) for number, name in enumerate(HYBRIDS)),
    ],
)
@pytest.mark.usefixtures("mlx_products")
def test_pieces_cuts_forks_and_files(tmp_path: Path, name: str, backend: str) -> None:
    if backend == "mlx":
        pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    reached = hold_pieces_cuts_forks_and_files(tiny_model(tmp_path / "m.gguf", name, "Q8_0", n_layers=3), backend)
    assert 15 < reached < 30


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(writers()) - set(HYBRIDS)))
def test_pieces_cuts_forks_and_files_in_every_architecture(tmp_path: Path, name: str) -> None:
    assert hold_pieces_cuts_forks_and_files(tiny_model(tmp_path / "m.gguf", name, "Q8_0", n_layers=3), "cpu") <= 40


def hold_pieces_cuts_forks_and_files(path: Path, backend: str) -> int:
    """The length to which a conversation of 50 tokens could be cut back for 40."""
    with ready(path, backend=backend) as executable:
        whole = feed(executable, executable.new_state(), Sequence(executable.layout), IDS, 20)
        for size in (1, 7):
            pieces = feed(executable, executable.new_state(), Sequence(executable.layout), IDS, size)
            assert close(backend, pieces, whole), size
        state, sequence = executable.new_state(), Sequence(executable.layout)
        feed(executable, state, sequence, IDS[:30], 20)
        sequence.mark()
        feed(executable, state, sequence, IDS[30:50], 5)
        other, fork = state.fork(), sequence.fork()
        file = io.BytesIO()
        state.save(file)
        for length in (48, sequence.reachable(40)):
            sequence.truncate(length)
            assert close(backend, feed(executable, state, sequence, IDS[length:], 9), whole[length:]), length
        assert close(backend, feed(executable, other, fork, IDS[50:], 4), whole[50:])
        restored = executable.load_state(io.BytesIO(file.getvalue()))
        scratch, again = executable.new_state(), Sequence(executable.layout)  # to have the slots of before
        feed(executable, scratch, again, IDS[:30], 20)
        again.mark()
        feed(executable, scratch, again, IDS[30:50], 5)
        assert close(backend, feed(executable, restored, again, IDS[50:], 3), whole[50:])
        return length


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_step_that_was_stopped_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(cpu, "PART", 1)
    with ready(tiny_model(tmp_path / "m.gguf", name, n_layers=3)) as executable:
        whole = feed(executable, executable.new_state(), Sequence(executable.layout), IDS, 20)
        for asked in range(1, 7):
            state, sequence, times = executable.new_state(), Sequence(executable.layout), itertools.count(1)
            feed(executable, state, sequence, IDS[:20], 20)
            batch = Conversation(sequence, state).step(IDS[20:50], np.array([29], np.int32))
            with pytest.raises(StepStopped):
                executable.submit(batch).wait(lambda times=times, asked=asked: next(times) == asked)
            assert np.array_equal(feed(executable, state, sequence, IDS[20:], 11), whole[20:]), asked


def test_pages_go_to_the_next_conversation_once_nobody_holds_them(tmp_path: Path) -> None:
    def pages(state: Any) -> set[int]:
        return {id(page) for page in state.recurrent._table if page is not None}

    with ready(tiny_model(tmp_path / "m.gguf", "lfm2", n_layers=3)) as executable:
        state, sequence = executable.new_state(), Sequence(executable.layout)
        whole = feed(executable, state, sequence, IDS, 20)
        fork, forked, held = state.fork(), sequence.fork(), pages(state)
        del state
        second = executable.new_state()
        assert np.array_equal(feed(executable, second, Sequence(executable.layout), IDS, 20), whole)
        assert not pages(second) & held
        forked.truncate(len(IDS) - 2)
        assert np.array_equal(feed(executable, fork, forked, IDS[-2:], 1), whole[-2:])
        held = pages(second)
        del second
        third = executable.new_state()
        assert np.array_equal(feed(executable, third, Sequence(executable.layout), IDS, 20), whole)
        assert pages(third) == held


# --- the engine ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", HYBRIDS)
def test_a_second_turn_computes_its_own_tokens(tmp_path: Path, name: str) -> None:
    with edgellm.load(tiny_model(tmp_path / "m.gguf", name, tokenizer=None), context=256) as model:
        prompt = IDS[:40].tolist()
        first = model.generate(prompt, max_tokens=12, temperature=0)
        longer = [*prompt, *first.token_ids, 7, 8, 9]
        second = model.generate(longer, max_tokens=5, temperature=0)
        assert second.stats.cached_tokens >= len(longer) - 4
        edited = model.generate([*prompt, 11, 12, 13], max_tokens=5, temperature=0)  # the answer was edited
        assert edited.stats.cached_tokens >= len(prompt) - 9
        with edgellm.load(model.path, context=256) as fresh:
            assert fresh.generate(longer, max_tokens=5, temperature=0).token_ids == second.token_ids
            model.generate([3], max_tokens=1)
            assert fresh.generate([*prompt, 11, 12, 13], max_tokens=5, temperature=0).token_ids == edited.token_ids


def test_a_saved_session_continues(tmp_path: Path) -> None:
    path, file = tiny_model(tmp_path / "m.gguf", "lfm2"), tmp_path / "s.session"
    with edgellm.load(path, context=256) as model, model.session() as session:
        answer = session.generate(IDS.tolist(), max_tokens=6, temperature=0)
        session.save(file)
        prompt = [*IDS.tolist(), *answer.token_ids, 4, 5]
        wanted = session.generate(prompt, max_tokens=6, temperature=0)
    with edgellm.load(path, context=256) as model, model.resume(file) as session:
        got = session.generate(prompt, max_tokens=6, temperature=0)
        assert got.token_ids == wanted.token_ids and got.stats.cached_tokens >= len(prompt) - 3
