"""Conversations with pictures: forked, in pieces, side by side, in a ring that is full: the same answers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from media_conversations import hold_forks_and_saved, hold_pieces, hold_two_in_a_step
from tiny_models import tiny_model
from tiny_projectors import OUT, projector_file, seeing

import edgellm
from edgellm.api.prompting import prompt_of
from edgellm.errors import ContextFull


def picture(seed: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 255, (64, 64, 3), np.uint8)


def asked(seed: int, text: str) -> list[Any]:
    return [{"role": "user", "content": [{"type": "image", "image": picture(seed)}, {"type": "text", "text": text}]}]


def test_forks_and_saved_sessions_continue_as_their_conversation_does(tmp_path: Path) -> None:
    hold_forks_and_saved(partial(seeing, tmp_path), asked, tmp_path / "talk", 80)


@pytest.mark.parametrize("tokens", [16, 48])
def test_prompts_in_pieces(tmp_path: Path, tokens: int) -> None:
    prompt = ["see ", edgellm.Image(picture(1)), " and ", edgellm.Image(picture(2)), " now"]
    hold_pieces(partial(seeing, tmp_path), prompt, tokens)


def test_two_conversations_with_pictures_in_one_step(tmp_path: Path) -> None:
    hold_two_in_a_step(partial(seeing, tmp_path), asked)


def test_a_ring_that_is_full_of_pictures_forgets_the_oldest_ones_as_a_whole(tmp_path: Path) -> None:
    """The answer says how many; the same where the prompt was cached, in a fork and in a session that was saved."""
    with seeing(tmp_path, context=256) as model:
        prompt = [part for seed in range(4) for part in (edgellm.Image(picture(seed)), f" picture {seed} ")]
        options: dict[str, Any] = {"max_tokens": 8, "temperature": 0, "context_policy": "ring"}
        session = model.session()
        answer = session.generate(prompt, **options)
        n = answer.stats.prompt_tokens + len(answer.token_ids)
        assert answer.stats.forgotten_images >= 1 and answer.stats.evicted_tokens > n - 256 and len(answer.token_ids) > 0
        assert (
            model.generate(prompt, **options).token_ids == session.fork().generate(prompt, **options).token_ids == answer.token_ids
        )
        session.save(tmp_path / "talk")
        more = [*prompt, *answer.token_ids, " and"]
        wanted = session.generate(more, **options)
        resumed = model.resume(tmp_path / "talk").generate(more, **options)
        assert resumed.token_ids == wanted.token_ids and resumed.stats.cached_tokens > 100
        assert resumed.stats.evicted_tokens == wanted.stats.evicted_tokens


def test_what_is_seen_after_an_eviction_is_what_a_prompt_without_the_picture_has(tmp_path: Path) -> None:
    """One layer and no sinks: keys know nothing of what came before, and only distances count."""
    projector_file(tmp_path / "mmproj.gguf", "gemma3")
    path = tiny_model(tmp_path / "m.gguf", "llama", "F32", n_embd=OUT, tokenizer="bpe", n_layers=1)
    with edgellm.load(path, context=140, sinks=0, kv_type="f32") as model:
        begin, end = ([*map(int, model.tokenize(mark, add_special=False))] for mark in ("<start_of_image>", "<end_of_image>"))
        rest = [*end, *[9] * 30, edgellm.Image(picture(1)), *[8] * 40]
        full = model.logits([*[7] * 20, edgellm.Image(picture(2)), *rest[len(end) :]])
        assert len(full) == 20 + len(begin) + 16 + len(rest) - 1 + len(begin) + 16 + len(end)
        assert 20 + len(begin) < len(full) - 140 < 20 + len(begin) + 16, "the context ends within the first picture"
        last = model.logits(rest)[-1]
        assert np.abs(full[-1] - last).max() < 1e-5 * np.abs(last).max()


def test_messages_with_pictures_are_forgotten_with_their_rows(tmp_path: Path) -> None:
    """Of five messages with about 240 tokens of pictures in each, those are named that the context lost, texts included."""
    with seeing(tmp_path, context=512) as model:
        messages = [
            turn for seed in range(4) for turn in (*asked(seed, f"Number {seed}?"), {"role": "assistant", "content": "Yes."})
        ]
        answer = model.chat([*messages, *asked(9, "And?")], max_tokens=2, temperature=0, context_policy="ring")
        assert answer.stats.evicted_tokens > answer.stats.prompt_tokens - 512 and answer.stats.forgotten_images == 4
        assert answer.stats.forgotten_messages == tuple(range(6)), "the text beside the fourth picture is still seen"


def test_a_picture_larger_than_the_context_is_refused(tmp_path: Path) -> None:
    with (
        seeing(tmp_path, context=64) as model,
        pytest.raises(ContextFull, match="a picture or clip takes 234 tokens, and the context holds"),
    ):
        model.generate([edgellm.Image(picture(1)), "?"], max_tokens=2, context_policy="ring")


def test_the_state_of_a_chat_with_pictures_is_saved(tmp_path: Path) -> None:
    with seeing(tmp_path) as model:
        session = model.session()
        session.chat(asked(1, "What is it?"), max_tokens=3, temperature=0)
        n = session.n_tokens
        session.save(tmp_path / "talk")
    with seeing(tmp_path) as model:
        assert model.resume(tmp_path / "talk").n_tokens == n > 80


def test_images_are_numbered_in_their_prompt(tmp_path: Path) -> None:
    """As MiniCPM-V 2.6 has it, in a prompt of pieces and in a conversation."""
    with seeing(tmp_path, "resampler") as model:
        loaded = model._loaded
        assert loaded is not None and loaded.encoders.image is not None and not loaded.encoders.image.spec.number
        loaded.encoders.image.spec = replace(loaded.encoders.image.spec, number="<id>{number}</id>")
        ids, _ = prompt_of(loaded, ["a", edgellm.Image(picture(1)), "b", edgellm.Image(picture(2))])
        text = model.detokenize([int(token) for token in ids if token >= 0], skip_special=False)
        assert text.index("a<id>0</id>") < text.index("b<id>1</id>")
        first = model.chat(asked(1, "What?"), max_tokens=2, temperature=0)
        loaded.encoders.image.spec = replace(loaded.encoders.image.spec, number="")
        assert model.chat(asked(1, "What?"), max_tokens=2, temperature=0).stats.prompt_tokens < first.stats.prompt_tokens
