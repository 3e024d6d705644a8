"""Images on MLX: the rows of all encoders, and conversations with pictures as on the CPU."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tiny_projectors
from isa_levels import in_turn
from media_conversations import ANSWER, hold_forks_and_saved, hold_two_in_a_step
from tiny_projectors import KINDS, picture, projector_file

import edgellm
from edgellm.backends import find
from edgellm.errors import ImageError, ModelClosed
from edgellm.loading.image_encoder import ImageEncoder, Watch

pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")

Rows = npt.NDArray[np.float32]
seeing = partial(tiny_projectors.seeing, backend="mlx", kv_type="f32")


def error(a: Rows, b: Rows) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


def encoder_on(backend: str, path: Path) -> ImageEncoder:
    encoder = ImageEncoder(path, threads=1)
    encoder.backend = find(backend)
    return encoder


def asked(seed: int, text: str) -> list[Any]:
    return [{"role": "user", "content": [{"type": "image", "image": picture(64, 64, seed)}, {"type": "text", "text": text}]}]


@pytest.mark.parametrize(("kind", "weights"), in_turn(sorted(KINDS), ["F32", "F16", "Q8_0"]))
def test_rows_are_those_of_the_cpu(tmp_path: Path, kind: str, weights: str) -> None:
    """A small image first, then larger ones, whose tiles share a step or not."""
    path = projector_file(tmp_path / "mmproj.gguf", kind, kind_of=weights)
    cpu, mlx = encoder_on("cpu", path), encoder_on("mlx", path)
    first = None
    for height, width in ((64, 64), (50, 190), (233, 90)):
        wanted = cpu.encode(picture(height, width)).rows
        assert error(mlx.encode(picture(height, width)).rows, wanted) < 1e-4
        first = first or mlx.graphs[0].executable
    assert mlx.graphs[0].executable is first  # weights are copied once
    cpu.close()
    mlx.close()
    with pytest.raises(ModelClosed):
        mlx.encode(picture(64, 64))


def test_golds(vision_golds: tuple[ModuleType, list[dict[str, Any]]]) -> None:
    score, entries = vision_golds
    assert len(entries) >= 10
    for entry in entries:
        with edgellm.load(entry["path"], mmproj=entry["mmproj_path"], kv_type="f32", backend="mlx") as model:
            prompt = [entry["prompt"]["before"], edgellm.Image(entry["image_path"]), entry["prompt"]["after"]]
            after = model.logits(prompt)[-score.after_image(entry) :]
            passed, errors = score.judge(entry, embd=model.embed_image(entry["image_path"]), after=after)
            assert passed and model._loaded.encoders.image is not None, (entry["name"], errors)
            assert model._loaded.encoders.image.backend.name == "mlx"


@pytest.mark.parametrize(
    ("kind", "arch", "tokenizer"), [("gemma3", "gemma3", "spm"), ("qwen3vl_merger", "qwen3vl", "bpe"), ("lfm2", "lfm2", "bpe")]
)
def test_logits_after_images_are_those_of_the_cpu(tmp_path: Path, kind: str, arch: str, tokenizer: str) -> None:
    """Rows that see each other, coordinates on three axes with rows for the first layers, and recurrent layers."""
    prompt = [edgellm.Image(picture(64, 64)), "what", edgellm.Image(picture(64, 64, 1)), " is it?"]
    with seeing(tmp_path, kind, arch, tokenizer, backend="cpu") as model:
        wanted, answer = model.logits(prompt), model.generate(prompt, **ANSWER).token_ids
    with seeing(tmp_path, kind, arch, tokenizer) as model:
        assert error(model.logits(prompt), wanted) < 1e-4
        with model.engine.alone() as executable:
            executable.step_size.tokens = 16
        assert error(model.logits(prompt), wanted) < 1e-4
        assert model.generate(prompt, **ANSWER).token_ids == answer


def test_sessions_forks_and_saved_states(tmp_path: Path) -> None:
    hold_forks_and_saved(partial(seeing, tmp_path), asked, tmp_path / "talk", 80)


def test_two_conversations_with_pictures_in_one_step(tmp_path: Path) -> None:
    hold_two_in_a_step(partial(seeing, tmp_path), asked)


def test_progress_and_giving_up(tmp_path: Path) -> None:
    encoder = encoder_on("mlx", projector_file(tmp_path / "mmproj.gguf", "qwen3vl_merger"))
    with pytest.raises(ImageError, match="cancelled"):
        encoder.encode(picture(300, 300), watch=Watch(lambda: True))
    shares: list[int] = []
    asked_to_stop = Watch(lambda: bool(shares), lambda done, total: shares.append(done))
    with pytest.raises(ImageError, match="cancelled"):
        encoder.encode(picture(300, 300), watch=asked_to_stop)
    assert len(shares) == 1
    wanted = encoder.encode(picture(300, 300), watch=Watch(progress=lambda done, total: shares.append(done))).rows
    assert len(shares) > 2 and shares == sorted(shares) and np.isfinite(wanted).all()
    encoder.close()
