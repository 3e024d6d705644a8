"""Holds conversations with pictures or clips to the ids that they have alone: forked, saved, in pieces, and two in a step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgellm import Model

ANSWER: dict[str, Any] = {"max_tokens": 5, "temperature": 0}
Opened = Callable[..., Model]  # with options of load
Asked = Callable[[int, str], list[Any]]  # messages with the medium of a seed, and a text


def hold_forks_and_saved(opened: Opened, asked: Asked, place: Path, least: int) -> None:
    """Answers are those of a new model; `least`: tokens of the medium, which stay cached."""
    with opened() as model:
        session = model.session()
        messages = asked(1, "What is it?")
        messages += [{"role": "assistant", "content": session.chat(messages, **ANSWER).text}]
        fork = session.fork()
        ways = [[*messages, {"role": "user", "content": text}] for text in ("And now?", "Why?")]
        found = [one.chat(way, **ANSWER) for one, way in zip((session, fork), ways, strict=True)]
        assert all(each.stats.cached_tokens > least for each in found)
        n = session.n_tokens
        session.save(place)
    with opened() as model:
        assert [model.chat(way, **ANSWER).token_ids for way in reversed(ways)] == [each.token_ids for each in reversed(found)]
        assert model.resume(place).n_tokens == n > least


def hold_pieces(opened: Opened, prompt: list[Any], tokens: int) -> None:
    """Logits are the same bits in steps of so many tokens."""
    with opened(kv_type="f32") as model:
        wanted = model.logits(prompt)
        with model.engine.alone() as executable:
            executable.step_size.tokens = executable.step_size._most = tokens
        assert np.array_equal(model.logits(prompt), wanted)


def hold_two_in_a_step(opened: Opened, asked: Asked) -> None:
    with opened() as model:
        alone = [model.chat(asked(seed, "What?"), **ANSWER).token_ids for seed in (1, 2)]
    with opened(parallel=2) as model:
        streams = [model.chat(asked(seed, "What?"), stream=True, **ANSWER) for seed in (1, 2)]
        threads = [threading.Thread(target=stream.drain) for stream in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [stream.result.token_ids for stream in streams] == alone
