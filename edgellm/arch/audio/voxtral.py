"""voxtral: the encoder of Voxtral, four of whose rows become one; silence up to 30 seconds is heard."""

from __future__ import annotations

from edgellm.arch._stages import Stage
from edgellm.arch.audio._keys import AudioKeys
from edgellm.arch.audio._whisper import whisper, window
from edgellm.arch.vision._blocks import two_products
from edgellm.audio_spec import AudioSpec
from edgellm.graph import Builder
from edgellm.ops.vision import features, merge_rows


def stages(keys: AudioKeys) -> tuple[Stage, ...]:
    """llama.cpp averages rows by two before as well, which the model's makers do not."""
    n = keys.stacked * keys.n_embd

    def project(g: Builder) -> None:
        y = two_products(g, keys, features(g, n), "mm.a.mlp.1", "mm.a.mlp.2")
        g.output("rows", merge_rows(g, y, 1))

    return (*whisper(keys, lambda g, x: x), Stage(project, (keys.stacked, 1), keys.stacked, order="tfc"))


def audio(keys: AudioKeys) -> AudioSpec:
    return AudioSpec(
        "whisper",
        keys.bins,
        window(keys),
        filled_up="window",
        all_rows=True,
        begin="[BEGIN_AUDIO]",
        raw_prompt=("[INST]", "[/INST][TRANSCRIBE]"),
    )
