"""The small parts of the engine by themselves: stop texts, token ids, context sizes, and which requests run."""

from __future__ import annotations

import itertools
from array import array
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgellm.api.stop_text import StopText
from edgellm.backends.base import Executable
from edgellm.engine.core import Core
from edgellm.engine.prompts import checked_ids
from edgellm.engine.request import Request
from edgellm.errors import OptionError
from edgellm.graph import KVSpec
from edgellm.loading import context as contexts
from edgellm.memory.layout import plan_memory
from edgellm.memory.sizes import kv_bytes
from edgellm.weights import WeightStore


@given(
    st.lists(st.text("ab<|", max_size=4), max_size=12), st.lists(st.text("ab<|", min_size=1, max_size=4), min_size=1, max_size=3)
)
def test_stop_texts_are_found_wherever_tokens_end(pieces: list[str], stops: list[str]) -> None:
    """The text up to the stop text that is complete first is shown, and never more is held back than could be one."""
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
        assert StopText(nothing).push("x") == ("x", False)
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
    """A core without an executable, and requests of different readers for it."""

    def __init__(self, parallel: int = 1) -> None:
        self.core = Core(cast(Executable, None), cast(WeightStore, None), parallel, 0)
        self._readers = itertools.count(1)

    def request(self, preempts_after: float = 60.0, *, background: bool = False, reader: int | None = None) -> Request:
        request = Request(array("i"), background=background, preempts_after=preempts_after)
        request.reader = next(self._readers) if reader is None else reader
        return request

    def add(self, *requests: Request) -> None:
        for request in requests:
            request.awaited, request.paused_at = True, None
            self.core.add(request)


def test_calls_queue_in_order_but_foreground_first() -> None:
    places = Places()
    first, *requests = (places.request(background=n in (2, 3)) for n in range(6))
    places.add(first, *requests)
    assert places.core.running == [first] and list(places.core.waiting) == [requests[n] for n in (0, 3, 4, 1, 2)]
    places.core.remove(first)
    for n in (0, 3, 4, 1, 2):
        assert places.core.running == [requests[n]]
        places.core.remove(requests[n])
    assert places.core.requests == []


def test_as_many_as_there_are_places() -> None:
    places = Places(3)
    requests = [places.request() for _ in range(4)]
    places.add(*requests)
    assert places.core.running == requests[:3] and list(places.core.waiting) == requests[3:]
    places.core.remove(requests[1])
    assert places.core.running == [requests[0], *requests[2:]] and not places.core.waiting


def test_a_paused_request_is_preempted_and_an_awaited_one_is_not() -> None:
    places = Places()
    stream, patient, hasty = places.request(), places.request(), places.request(0.0)
    places.add(stream, hasty)
    assert places.core.running == [stream], "it is awaited"
    places.core.pause(stream)
    assert places.core.running == [hasty] and places.core.preempted == [stream] and not stream.running
    places.core.remove(hasty)
    places.add(stream)
    assert places.core.preempted == []
    places.core.pause(stream)
    places.add(patient)
    assert places.core.running == [stream], "its reader may ask for more any moment"
    places.core.remove(stream)
    assert places.core.running == [patient]


def test_foreground_preempts_the_background_between_two_steps() -> None:
    places = Places()
    busy, urgent = places.request(background=True), places.request()
    places.add(busy)
    places.core.in_step = (busy,)
    places.add(urgent)
    assert places.core.running == [busy], "a step computes it"
    places.core.in_step = ()
    places.core.admit()
    assert places.core.running == [urgent] and places.core.preempted == [busy]


def test_a_request_in_a_callback_runs_at_once() -> None:
    places = Places()
    outer, inner = places.request(), places.request()
    places.add(outer)
    places.core.in_step = (outer,)
    places.core.add(inner, nested=True)
    assert places.core.running == [outer, inner]


def test_no_reader_waits_for_its_own_stream_or_for_a_dropped_one() -> None:
    places = Places()
    stream, call = places.request(reader=1), places.request(reader=1)
    places.add(stream)
    places.core.pause(stream)
    places.add(call)
    assert places.core.running == [call] and places.core.preempted == [stream]
    places.core.remove(stream)
    assert places.core.running == [call] and places.core.preempted == []
    del call
    assert places.core.running == []
    places.add(stream)
    assert places.core.running == [stream]


def test_a_reader_that_leaves_the_queue_is_not_started() -> None:
    places = Places()
    first, second = places.request(), places.request()
    places.add(first, second)
    places.core.pause(second)
    places.core.remove(first)
    assert places.core.requests == []
