"""The small parts of the engine by themselves: stop texts, token ids, context sizes, and whose turn it is."""

from __future__ import annotations

import threading
from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from edgellm.api.stop_text import StopText
from edgellm.engine.prompts import checked_ids
from edgellm.engine.task import Task
from edgellm.engine.turns import Driver, Turns
from edgellm.errors import OptionError
from edgellm.graph import KVSpec
from edgellm.loading import context as contexts
from edgellm.memory.layout import plan_memory
from edgellm.memory.sizes import kv_bytes


@given(
    st.lists(st.text("ab<|", max_size=4), max_size=12), st.lists(st.text("ab<|", min_size=1, max_size=4), min_size=1, max_size=3)
)
def test_stop_texts_are_found_wherever_tokens_end(pieces: list[str], stops: list[str]) -> None:
    """What is shown is the text up to the stop text that is complete first, and never more is held back than could be one."""
    text, found = StopText(stops), False
    shown, given_ = "", ""
    for piece in pieces:
        given_ += piece
        out, found = text.push(piece)
        shown += out
        if found:
            break
        held = given_[len(shown) :]
        assert given_.startswith(shown) and all(stop not in given_ for stop in stops)
        assert held == "" or any(stop.startswith(held) for stop in stops)
    if found:
        assert shown == given_[: min(at for stop in stops if (at := given_.find(stop)) >= 0)]
    else:
        assert shown + text.flush() == "".join(pieces)


def test_stop_texts_are_checked() -> None:
    assert StopText("end").push("the end.") == ("the ", True)
    for nothing in ((), None):
        assert StopText(nothing).push("x") == ("x", False) and not StopText(nothing)
    for wrong in ("", [""], ["a", 3], 5):
        with pytest.raises(OptionError, match="stop="):
            StopText(wrong)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    "given_", [[1, 2, 9], (1, 2, 9), np.array([1, 2, 9], np.int64), np.array([1, 2, 9], np.uint8), range(1, 4)]
)
def test_ids_of_many_kinds(given_: object) -> None:
    ids = checked_ids(given_, 10, name="prompt")  # type: ignore[arg-type]
    assert ids.dtype == np.int32 and ids.tolist() == list(given_)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("given_", "text"),
    [
        ([], "empty"),
        (np.zeros((0, 3), np.int32), "empty"),
        ("hello", "is a text"),
        (b"hi", "is a text"),
        ([1.0, 2.0], "float64"),
        ([True], "bool"),
        ([[1, 2]], "shape"),
        ([[1], [2, 3]], "sequence"),
        ([1, 10], "10 at place 1"),
        ([-1], "-1 at place 0"),
        ([2**70], "sequence"),
        (None, "sequence"),
        (5, "sequence"),
        ([None], "sequence"),
    ],
)
def test_bad_ids_are_named(given_: object, text: str) -> None:
    with pytest.raises(OptionError, match="prompt") as caught:
        checked_ids(given_, 10, name="prompt")  # type: ignore[arg-type]  # wrong on purpose
    assert text in str(caught.value)


def test_context_defaults_and_bounds() -> None:
    assert contexts.choose_context(None, 4, 2048) == 2048
    assert contexts.choose_context(None, 4, 131072) == contexts.DEFAULT_CONTEXT
    assert contexts.choose_context(100_000, 4, 2048) == 100_000, "rotary positions go on"
    assert contexts.choose_context(2, 0, 2048) == 2
    for asked, sinks, name in (
        (5, 4, "context=5"),
        (0, 0, "context=0"),
        (-1, 4, "context=-1"),
        (2.5, 4, "context=2.5"),
        (True, 0, "context=True"),
        (2**31, 4, "context="),
        (64, -1, "sinks=-1"),
        (64, "4", "sinks='4'"),
    ):
        with pytest.raises(OptionError, match=name):
            contexts.choose_context(asked, sinks, 2048)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(OptionError, match="64 positions"):
        contexts.check_learned(65, 64)


def test_memory_of_keys_and_values() -> None:
    layout = plan_memory([KVSpec(2, 8, 16), KVSpec(2, 8, 16, 10)], context=100, sinks=4, chunk=8)
    slots = (32 + 256) + 256  # a page for the sinks; rings of 96 + 7 and 10 + 7 tokens, to whole pages
    assert kv_bytes(layout, "f16") == 2 * (8 + 16) * slots * 2 and kv_bytes(layout, "f32") == 2 * 24 * slots * 4
    assert kv_bytes(layout, "q8_0") == 2 * (10 + 18) * slots and kv_bytes(layout, "q4_0") == 2 * (18 + 18) * slots
    with pytest.raises(OptionError, match="kv_type='q9'"):
        kv_bytes(layout, "q9")
    contexts.check_memory(1000, 100, 1000)
    with pytest.raises(OptionError, match=r"context=100 needs 2\.0 GiB .* 1\.0 GiB .* about 40 or fewer"):
        contexts.check_memory(2 << 30, 100, 1 << 30)


class Places:
    """Turns with their lock, and tasks for them; `order` has those that got a place in another thread."""

    def __init__(self, parallel: int = 1) -> None:
        self.lock, self.driver, self.lost = threading.RLock(), Driver(), list[Task]()
        self.turns = Turns(parallel, self.driver, self.lost.append)
        self.order = list[Task]()

    def task(self, patience: float = 60.0, *, background: bool = False) -> Task:
        return Task(array("i"), self.lock, background=background, patience=patience)

    def take(self, *tasks: Task) -> None:
        for task in tasks:
            with self.lock:
                self.turns.take(task, lambda: None)

    def wait(self, task: Task) -> threading.Thread:
        """Another thread waits for a place, and gives it away at once."""

        def run() -> None:
            with self.lock:
                self.turns.take(task, lambda: None)
                self.order.append(task)
                self.turns.leave(task)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        until(lambda: task in self.turns.queue or not thread.is_alive())
        return thread


def test_calls_queue_in_order_but_foreground_first() -> None:
    places = Places()
    first = places.task()
    places.take(first)
    tasks = [places.task(background=n in (1, 2)) for n in range(5)]
    threads = [places.wait(task) for task in tasks]
    assert places.order == []
    with places.lock:
        places.turns.leave(first)
    for thread in threads:
        thread.join(120)
    assert places.order == [tasks[n] for n in (0, 3, 4, 1, 2)]


def test_as_many_as_there_are_places() -> None:
    places = Places(3)
    tasks = [places.task() for _ in range(4)]
    places.take(*tasks[:3])
    assert places.turns.holders == tasks[:3]
    waiting = places.wait(tasks[3])
    assert places.order == []
    with places.lock:
        places.turns.leave(tasks[1])
    waiting.join(120)
    assert places.order == [tasks[3]] and places.turns.holders == [tasks[0], tasks[2]]


def test_a_paused_holder_gives_way_and_a_busy_one_does_not() -> None:
    places = Places()
    stream, patient, hasty = places.task(), places.task(), places.task(0.0)
    places.take(stream)
    waiting = places.wait(hasty)
    assert places.order == [], "the holder is busy"
    with places.lock:
        places.turns.pause(stream)
    waiting.join(120)
    assert places.order == [hasty] and places.lost[0] is stream
    places.take(stream)
    with places.lock:
        places.turns.pause(stream)
    waiting = places.wait(patient)
    assert waiting.is_alive() and places.order == [hasty], "its reader may go on any moment"
    with places.lock:
        places.turns.leave(stream)
    waiting.join(120)
    assert places.order == [hasty, patient]


def test_foreground_takes_the_place_of_what_is_busy_in_the_background_between_two_steps() -> None:
    places = Places()
    busy = places.task(background=True)
    places.take(busy)
    places.driver.thread, places.driver.tasks = 1, (busy,)
    waiting = places.wait(urgent := places.task())
    assert waiting.is_alive() and busy.holds, "a step computes it"
    with places.lock:
        places.driver.thread, places.driver.tasks = 0, ()
        places.turns.admit()
    waiting.join(120)
    assert places.order == [urgent] and not busy.holds


def test_a_place_that_is_lost_before_its_thread_goes_on_is_waited_for_again() -> None:
    places = Places()
    first, urgent = places.task(), places.task()
    places.take(first)
    waiting = places.wait(behind := places.task(background=True))
    with places.lock:  # all of it before the other thread gets the lock
        places.turns.leave(first)
        assert behind.holds
        places.take(urgent)
        assert not behind.holds and places.turns.holders == [urgent]
    with places.lock:
        places.turns.leave(urgent)
    waiting.join(120)
    assert places.order == [behind]


def test_nobody_waits_for_himself_or_for_the_dead() -> None:
    places = Places()
    stream, call = places.task(), places.task()
    places.take(stream)
    with places.lock:
        places.turns.pause(stream)
    places.take(call)  # by the thread that read the stream last
    assert places.turns.holders == [call]
    with places.lock:
        places.turns.leave(stream)  # no longer its turn: nothing happens
    assert places.turns.holders == [call]
    del call
    assert places.turns.holders == []
    places.wait(stream).join(120)
    assert places.order == [stream]
