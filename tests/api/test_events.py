"""Events of a stream: what happens to an answer, in order, and the same answer as without them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tiny_models import tiny_model

import edgellm

LONG = [1, *range(3, 40)] * 30  # several steps of a prompt
MESSAGES = [
    {"role": "user", "content": "hello " * 20},
    {"role": "assistant", "content": "well " * 20},
    {"role": "user", "content": "go on"},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[edgellm.Model]:
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    path = tiny_model(tmp_path_factory.mktemp("events") / "m.gguf", "llama", "F32", tokenizer="spm", template=template)
    with edgellm.load(path, context=192) as model:
        yield model


def test_a_long_prompt_is_reported_step_by_step(model: edgellm.Model) -> None:
    plain = model.generate(LONG, max_tokens=5, temperature=0)
    model.generate([2, 99], max_tokens=1)  # the prompt is to be read anew
    events = list(model.stream(LONG, max_tokens=5, temperature=0).events())
    read = [event.prompt for event in events if event.prompt is not None]
    assert len(read) > 2 and [one.done for one in read] == sorted({one.done for one in read})
    assert {one.total for one in read} == {len(LONG)} == {read[-1].done}
    result = events[-1].result
    assert result is not None and result.token_ids == plain.token_ids
    assert result.stats.cached_tokens == 0 and 0 < result.stats.prompt_seconds < result.stats.time_to_first_token * 1.01
    assert [event.kind for event in events if event.kind in ("evicted", "done")] == ["evicted", "done"]


def test_what_is_cached_is_not_told(model: edgellm.Model) -> None:
    with model.session() as session:
        session.generate(LONG, max_tokens=1)
        events = list(session.stream([*LONG, 5, 6], max_tokens=3, temperature=0).events())
    read = [event.prompt for event in events if event.prompt is not None]
    assert [(one.done, one.total) for one in read] == [(len(LONG) + 2, len(LONG) + 2)]


def test_eviction_is_reported_once_with_its_messages(model: edgellm.Model) -> None:
    with model.chat(MESSAGES, stream=True, max_tokens=150, temperature=0, stop_loops=False, ignore_eos=True) as stream:
        events = list(stream.events())
    evicted = [event.evicted for event in events if event.evicted is not None]
    assert len(evicted) == 1 and evicted[0].tokens == 1
    assert stream.result.stats.evicted_tokens > 1 and events[-1].result is stream.result
    assert "".join(event.text for event in events) == stream.result.text


def test_a_reader_that_stops_leaves_the_model_usable(model: edgellm.Model) -> None:
    stream = model.stream(LONG, max_tokens=5, temperature=0)
    events = stream.events()
    assert next(events).kind == "prompt"
    events.close()  # type: ignore[attr-defined]  # it is a generator
    stream.close()
    assert stream.result.stop_reason == "cancelled"
    assert model.generate([1, 5, 6], max_tokens=2, temperature=0).token_ids


def test_nothing_asked_for_is_done_at_once(model: edgellm.Model) -> None:
    events = list(model.stream([1, 5, 6], max_tokens=0).events())
    assert [event.kind for event in events] == ["prompt", "done"] and events[-1].result is not None
