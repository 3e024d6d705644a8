"""meralion: the encoder of Whisper in MERaLiON 2, fifteen of whose rows become one by gated products."""

from __future__ import annotations

from edgellm.arch._stages import Stage
from edgellm.arch.audio._keys import AudioKeys
from edgellm.arch.audio._whisper import whisper, window
from edgellm.audio_spec import AudioSpec
from edgellm.graph import Builder
from edgellm.ops.dense import activation, matmul, mul
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import features, merge_rows


def stages(keys: AudioKeys) -> tuple[Stage, ...]:
    def product(g: Builder, x: int, number: int) -> int:
        name = f"mm.a.mlp.{number}"
        return matmul(g, x, name, keys.rows(f"{name}.weight"))

    def project(g: Builder) -> None:
        x = layer_norm(g, features(g, keys.stacked * keys.n_embd), "mm.a.norm_pre", keys.eps)
        x = activation(g, "silu", product(g, x, 0))
        x = mul(g, activation(g, "silu", product(g, x, 1)), product(g, x, 2))
        g.output("rows", merge_rows(g, matmul(g, x, "mm.a.mlp.3", keys.n_out), 1))

    return (*whisper(keys, lambda g, x: x), Stage(project, (keys.stacked, 1), keys.stacked, order="tfc"))


def audio(keys: AudioKeys) -> AudioSpec:
    return AudioSpec("whisper", keys.bins, window(keys), filled_up="window", all_rows=True)
