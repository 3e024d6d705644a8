"""qwen2a: the encoder of Qwen2-Audio, whose rows are averaged by two."""

from __future__ import annotations

from edgellm.arch._stages import Stage
from edgellm.arch.audio._keys import AudioKeys
from edgellm.arch.audio._whisper import LEAST, whisper, window
from edgellm.audio_spec import AudioSpec
from edgellm.ops.dense import matmul


def stages(keys: AudioKeys) -> tuple[Stage, ...]:
    return whisper(keys, lambda g, x: matmul(g, x, "mm.a.fc", keys.n_out), pooled=True)


def audio(keys: AudioKeys) -> AudioSpec:
    return AudioSpec(
        "whisper", keys.bins, window(keys), filled_up="window", least_samples=LEAST, begin="<|audio_bos|>", end="<|audio_eos|>"
    )
