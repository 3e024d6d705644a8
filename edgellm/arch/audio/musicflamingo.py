"""musicflamingo: the encoder of Audio Flamingo 3 and Music Flamingo, whose rows are averaged by two."""

from __future__ import annotations

from edgellm.arch._stages import Stage
from edgellm.arch.audio._keys import AudioKeys
from edgellm.arch.audio._whisper import LEAST, whisper, window
from edgellm.arch.vision._blocks import two_products
from edgellm.audio_spec import AudioSpec


def stages(keys: AudioKeys) -> tuple[Stage, ...]:
    return whisper(keys, lambda g, x: two_products(g, keys, x, "mm.a.mlp.1", "mm.a.mlp.2"), pooled=True)


def audio(keys: AudioKeys) -> AudioSpec:
    return AudioSpec("whisper", keys.bins, window(keys), filled_up="window", least_samples=LEAST, begin="<sound>")
