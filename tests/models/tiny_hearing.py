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


def _conformer(norms: tuple[str, ...], after: str, *, bias: bool) -> Shapes:
    """Blocks; `after`: the name of a projection of sines and cosines."""
    shapes: Shapes = {}
    for block in (f"a.blk.{layer}" for layer in range(LAYERS)):
        for name in norms:
            shapes |= _norm(f"{block}.{name}", N) if bias else {f"{block}.{name}.weight": (N,)}
        for name in ("attn_q", "attn_k", "attn_v", "attn_out", "conv_pw2"):
            shapes |= _linear(f"{block}.{name}", N, N, bias=bias)
        for number in ("", "_1"):
            shapes |= _linear(f"{block}.ffn_up{number}", FF, N, bias=bias) | _linear(f"{block}.ffn_down{number}", N, FF, bias=bias)
        shapes |= _linear(f"{block}.conv_pw1", 2 * N, N, bias=bias) | {f"{block}.{after}.weight": (N, N)}
    return shapes


def _gemma4a() -> tuple[dict[str, Any], Shapes]:
    norms = ("ffn_norm", "ffn_norm_1", "ffn_post_norm", "ffn_post_norm_1", "attn_pre_norm", "attn_post_norm", "conv_norm")
    shapes = _conformer((*norms, "norm_conv", "ln2"), "attn_k_rel", bias=False)
    for block in (f"a.blk.{layer}" for layer in range(LAYERS)):
        shapes |= {f"{block}.per_dim_scale.weight": (N // 2,), f"{block}.conv_dw.weight": (N, 5)}
        shapes |= {f"{block}.attn_q.input_{end}": (1,) for end in ("min", "max")}
    shapes |= {"a.conv1d.0.weight": (6, 1, 3, 3), "a.conv1d.1.weight": (4, 6, 3, 3)}
    shapes |= {"a.conv1d.0.norm.weight": (6,), "a.conv1d.1.norm.weight": (4,), "a.input_projection.weight": (N, 4 * BINS // 4)}
    return {}, shapes | _linear("a.pre_encode.out", 40, N) | {"mm.a.input_projection.weight": (OUT, 40)}


def _lfm2a() -> tuple[dict[str, Any], Shapes]:
    shapes = _conformer(("ffn_norm", "ffn_norm_1", "ln1", "ln2", "norm_conv", "conv_norm"), "linear_pos", bias=True)
    for block in (f"a.blk.{layer}" for layer in range(LAYERS)):
        shapes |= {f"{block}.pos_bias_u": (2, N // 2), f"{block}.pos_bias_v": (2, N // 2)}
        shapes |= {f"{block}.conv_dw.weight": (N, 9), f"{block}.conv_dw.bias": (N,)}
    for number, inputs in ((0, 1), (2, 1), (3, 8), (5, 1), (6, 8)):
        size = 1 if number in (3, 6) else 3
        shapes |= {f"a.conv1d.{number}.weight": (8, inputs, size, size), f"a.conv1d.{number}.bias": (8, 1, 1)}
    shapes |= _linear("a.pre_encode.out", N, 8 * BINS // 8) | _norm("mm.a.mlp.0", N)
    return {}, shapes | _linear("mm.a.mlp.1", 40, N) | _linear("mm.a.mlp.3", OUT, 40)


def _meralion() -> tuple[dict[str, Any], Shapes]:
    shapes = _whisper() | _norm("mm.a.norm_pre", 5 * N) | _linear("mm.a.mlp.0", 40, 5 * N) | _linear("mm.a.mlp.3", OUT, 40)
    return {"projector.stack_factor": 5}, shapes | _linear("mm.a.mlp.1", 40, 40) | _linear("mm.a.mlp.2", 40, 40)


KINDS = {
    "meralion": _meralion,
    "gemma4a": _gemma4a,
    "lfm2a": _lfm2a,
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
