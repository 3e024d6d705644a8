"""Conversations with pictures: forked, in pieces, side by side, in a ring that is full: the same answers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tiny_models import tiny_model
from tiny_projectors import OUT, projector_file

import edgellm


def picture(seed: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 255, (64, 64, 3), np.uint8)


def seeing(folder: Path, kind: str = "idefics3", arch: str = "llama", **options: Any) -> edgellm.Model:
    projector_file(folder / "mmproj.gguf", kind)
    return edgellm.load(tiny_model(folder / "m.gguf", arch, "F32", n_embd=OUT, tokenizer="bpe"), **options)


def asked(seed: int, text: str) -> list[Any]:
    return [{"role": "user", "content": [{"type": "image", "image": picture(seed)}, {"type": "text", "text": text}]}]


def test_forks_continue_as_their_conversation_does(tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_tokens": 4, "temperature": 0}
    with seeing(tmp_path) as model:
        session = model.session()
        messages = asked(1, "What is it?")
        messages += [{"role": "assistant", "content": session.chat(messages, **options).text}]
        fork = session.fork()
        ways = [[*messages, {"role": "user", "content": text}] for text in ("And now?", "Why?")]
        found = [one.chat(way, **options) for one, way in zip((session, fork), ways, strict=True)]
        assert all(each.stats.cached_tokens > 80 for each in found)
    with seeing(tmp_path) as model:
        assert [model.chat(way, **options).token_ids for way in reversed(ways)] == [each.token_ids for each in reversed(found)]


@pytest.mark.parametrize("tokens", [16, 48])
def test_prompts_in_pieces(tmp_path: Path, tokens: int) -> None:
    prompt = ["see ", edgellm.Image(picture(1)), " and ", edgellm.Image(picture(2)), " now"]
    with seeing(tmp_path, kv_type="f32") as model:
        wanted = model.logits(prompt)
        with model.engine.alone() as executable:
            executable.step_size.tokens = executable.step_size._most = tokens
        assert np.array_equal(model.logits(prompt), wanted)


def test_two_conversations_with_pictures_in_one_step(tmp_path: Path) -> None:
    with seeing(tmp_path) as model:
        alone = [model.chat(asked(seed, "What?"), max_tokens=5, temperature=0).token_ids for seed in (1, 2)]
    with seeing(tmp_path, parallel=2) as model:
        streams = [model.chat(asked(seed, "What?"), stream=True, max_tokens=5, temperature=0) for seed in (1, 2)]
        threads = [threading.Thread(target=stream.drain) for stream in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [stream.result.token_ids for stream in streams] == alone


def test_a_ring_that_is_full_of_pictures_goes_on(tmp_path: Path) -> None:
    """Rows of the oldest picture are evicted, and the answer says how many tokens were."""
    with seeing(tmp_path, context=256) as model:
        prompt = [part for seed in range(4) for part in (edgellm.Image(picture(seed)), f" picture {seed} ")]
        answer = model.generate(prompt, max_tokens=8, temperature=0, context_policy="ring")
        assert answer.stats.evicted_tokens > 60 and len(answer.token_ids) > 0
        again = model.generate(prompt, max_tokens=8, temperature=0, context_policy="ring")
        assert again.token_ids == answer.token_ids


def test_the_state_of_a_chat_with_pictures_is_saved(tmp_path: Path) -> None:
    with seeing(tmp_path) as model:
        session = model.session()
        session.chat(asked(1, "What is it?"), max_tokens=3, temperature=0)
        n = session.n_tokens
        session.save(tmp_path / "talk")
    with seeing(tmp_path) as model:
        assert model.resume(tmp_path / "talk").n_tokens == n > 80
