"""ultravox: Whisper's encoder, eight of whose rows become one, before any Llama, Qwen or Gemma."""

from __future__ import annotations

from edgellm.arch._stages import Stage
from edgellm.arch.audio._keys import AudioKeys
from edgellm.arch.audio._whisper import whisper, window
from edgellm.audio_spec import AudioSpec
from edgellm.graph import Builder
from edgellm.ops.dense import activation, columns, matmul, mul
from edgellm.ops.norm import rms_norm
from edgellm.ops.vision import features, merge_rows

EPS = 1e-6  # of the projector's norms


def stages(keys: AudioKeys) -> tuple[Stage, ...]:
    """Of the projector's first product the second half is the gate (fixie-ai, ultravox_model.py)."""
    n = keys.stacked * keys.n_embd

    def project(g: Builder) -> None:
        inner = keys.rows("mm.a.mlp.1.weight")
        both = matmul(g, rms_norm(g, features(g, n), "mm.a.norm_pre", EPS), "mm.a.mlp.1", inner)
        half = inner // 2
        y = mul(g, activation(g, "silu", columns(g, both, half, inner)), columns(g, both, 0, half))
        y = matmul(g, rms_norm(g, y, "mm.a.norm_mid", EPS), "mm.a.mlp.2", keys.n_out)
        g.output("rows", merge_rows(g, y, 1))

    return (*whisper(keys, lambda g, x: x), Stage(project, (keys.stacked, 1), keys.stacked, order="tfc"))


def audio(keys: AudioKeys) -> AudioSpec:
    return AudioSpec("whisper", keys.bins, window(keys), filled_up="hop")
