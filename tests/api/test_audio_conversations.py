"""Conversations with clips: forked, in pieces, side by side, saved, in a ring that is full, and on MLX: the same answers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from media_conversations import hold_forks_and_saved, hold_pieces, hold_two_in_a_step
from tiny_hearing import KINDS, clip, hearing, hearing_file

import edgellm
from edgellm.backends import find
from edgellm.loading.audio_encoder import AudioEncoder


def asked(seed: int, text: str) -> list[Any]:
    return [{"role": "user", "content": [{"type": "audio", "audio": clip(1.5, seed)}, {"type": "text", "text": text}]}]


def test_forks_and_saved_sessions_continue_as_their_conversation_does(tmp_path: Path) -> None:
    hold_forks_and_saved(partial(hearing, tmp_path), asked, tmp_path / "talk", 37)


@pytest.mark.parametrize("tokens", [16, 48])
def test_prompts_in_pieces(tmp_path: Path, tokens: int) -> None:
    prompt = ["hear ", edgellm.Audio(clip(1.5, 1)), " and ", edgellm.Audio(clip(3, 2)), " now"]
    hold_pieces(partial(hearing, tmp_path), prompt, tokens)


def test_two_conversations_with_clips_in_one_step(tmp_path: Path) -> None:
    hold_two_in_a_step(partial(hearing, tmp_path), asked)


def test_a_full_context_forgets_a_clip_as_a_whole(tmp_path: Path) -> None:
    with hearing(tmp_path, context=128) as model:
        prompt = [part for seed in range(4) for part in (edgellm.Audio(clip(1.5, seed)), f" clip {seed} ")]
        options: dict[str, Any] = {"max_tokens": 4, "temperature": 0, "context_policy": "ring"}
        session = model.session()
        answer = session.generate(prompt, **options)
        assert answer.stats.forgotten_clips >= 1 and not answer.stats.forgotten_images
        assert (
            model.generate(prompt, **options).token_ids == session.fork().generate(prompt, **options).token_ids == answer.token_ids
        )


def test_rows_turn_by_positions_where_images_turn_by_axes(tmp_path: Path) -> None:
    """A clip's rows count on as tokens do, so that the text after it has the coordinates that it would have without axes."""
    with hearing(tmp_path, "qwen3a", "qwen3vl", kv_type="f32") as model:
        ids, vectors = model.prompt_of(["a ", edgellm.Audio(clip(2)), " b"])
        assert vectors is not None and vectors.given.coordinates is not None and vectors.ahead == 0
        assert np.array_equal(vectors.given.coordinates, np.repeat(np.arange(len(ids))[:, None], 3, axis=1))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_rows_on_mlx_are_those_of_the_cpu(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("mlx.core")
    path = hearing_file(tmp_path / "mmproj.gguf", kind)
    cpu, mlx = AudioEncoder(path, threads=1), AudioEncoder(path, threads=1)
    mlx.backend = find("mlx")
    for seconds in (0.7, 3.1):
        wanted, found = cpu.encode(clip(seconds)).rows, mlx.encode(clip(seconds)).rows
        assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()
    cpu.close()
    mlx.close()
