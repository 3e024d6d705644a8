"""Clips, and tiny projector files with audio encoders of seeded random weights: one for each projector type that is supported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tiny_models import tiny_model
from tiny_projectors import FF, LAYERS, OUT, N, Shapes, written

import edgellm

BINS, PLACES = 80, 100  # mel bins; positions, of 2 seconds


def clip(seconds: float, seed: int = 0, rate: int = 16000) -> npt.NDArray[np.float32]:
    """A tone that rises, and noise."""
    at = np.arange(int(seconds * rate)) / rate
    noise = np.random.default_rng(seed).standard_normal(len(at))
    return (0.3 * np.sin(2 * np.pi * (200 + 150 * at + 40 * seed) * at) + 0.05 * noise).astype(np.float32)


def hearing(folder: Path, kind: str = "qwen2a", arch: str = "llama", tokenizer: str = "bpe", **options: Any) -> edgellm.Model:
    """A tiny model with an audio encoder of this kind beside it, loaded."""
    hearing_file(folder / "mmproj.gguf", kind)
    return edgellm.load(tiny_model(folder / "m.gguf", arch, "F32", n_embd=OUT, tokenizer=tokenizer), **{"context": 512} | options)


def _linear(name: str, n: int, k: int, *, bias: bool = True) -> Shapes:
    return {f"{name}.weight": (n, k)} | ({f"{name}.bias": (n,)} if bias else {})


def _norm(name: str, n: int) -> Shapes:
    return {f"{name}.weight": (n,), f"{name}.bias": (n,)}


def _layers() -> Shapes:
    shapes = _norm("a.post_ln", N)
    for block in (f"a.blk.{layer}" for layer in range(LAYERS)):
        shapes |= _norm(f"{block}.ln1", N) | _norm(f"{block}.ln2", N) | _linear(f"{block}.attn_out", N, N)
        shapes |= _linear(f"{block}.attn_q", N, N) | _linear(f"{block}.attn_k", N, N, bias=False) | _linear(f"{block}.attn_v", N, N)
        shapes |= _linear(f"{block}.ffn_up", FF, N) | _linear(f"{block}.ffn_down", N, FF)
    return shapes


def _whisper() -> Shapes:
    shapes: Shapes = {"a.conv1d.1.weight": (N, BINS, 3), "a.conv1d.1.bias": (N, 1), "a.conv1d.2.weight": (N, N, 3)}
    return shapes | {"a.conv1d.2.bias": (N, 1), "a.position_embd.weight": (PLACES, N)} | _layers()


def _qwen2a() -> tuple[dict[str, Any], Shapes]:
    return {}, _whisper() | _linear("mm.a.fc", OUT, N)


def _musicflamingo() -> tuple[dict[str, Any], Shapes]:
    return {}, _whisper() | _linear("mm.a.mlp.1", OUT, N) | _linear("mm.a.mlp.2", OUT, OUT)


def _voxtral() -> tuple[dict[str, Any], Shapes]:
    shapes = _whisper() | _linear("mm.a.mlp.1", OUT, 4 * N, bias=False) | _linear("mm.a.mlp.2", OUT, OUT, bias=False)
    return {"projector.stack_factor": 4}, shapes


def _ultravox() -> tuple[dict[str, Any], Shapes]:
    shapes = _whisper() | _linear("mm.a.mlp.1", 48, 8 * N, bias=False) | _linear("mm.a.mlp.2", OUT, 24, bias=False)
    return {"projector.stack_factor": 8}, shapes | {"mm.a.norm_pre.weight": (8 * N,), "mm.a.norm_mid.weight": (24,)}


def _qwen3a() -> tuple[dict[str, Any], Shapes]:
    channels = 6
    shapes: Shapes = {"a.conv2d.1.weight": (channels, 1, 3, 3), "a.position_embd.weight": (PLACES, N)}
    shapes |= {f"a.conv2d.{number}.weight": (channels, channels, 3, 3) for number in (2, 3)}
    shapes |= {f"a.conv2d.{number}.bias": (channels, 1, 1) for number in (1, 2, 3)} | {"a.conv_out.weight": (N, channels * 10)}
    return {}, shapes | _layers() | _linear("mm.a.mlp.1", N, N) | _linear("mm.a.mlp.2", OUT, N)


def _gemma4ua() -> tuple[dict[str, Any], Shapes]:
    return {}, {"mm.a.input_projection.weight": (OUT, 640)}


KINDS = {
    "qwen2.5o": _qwen2a,
    "qwen3a": _qwen3a,
    "gemma4ua": _gemma4ua,
    "qwen2a": _qwen2a,
    "musicflamingo": _musicflamingo,
    "voxtral": _voxtral,
    "ultravox": _ultravox,
}


def hearing_file(path: Path, kind: str, *, kind_of: str = "F32", seed: int = 0, **keys: Any) -> Path:
    """A projector of this type; matrices in `kind_of` (F32 or F16). `keys`: `clip.audio.*` that are different, None: missing."""
    own, shapes = KINDS[kind]()
    audio = {
        "projection_dim": OUT,
        "embedding_length": N,
        "feed_forward_length": FF,
        "block_count": LAYERS,
        "attention.head_count": 2,
        "attention.layer_norm_epsilon": 1e-5,
        "num_mel_bins": BINS,
    } | own
    audio |= {key.replace("__", "."): value for key, value in keys.items()}
    clip_keys = {"clip.projector_type": kind, "clip.has_audio_encoder": True}
    return written(path, clip_keys | {f"clip.audio.{key}": value for key, value in audio.items()}, shapes, kind_of, seed)
