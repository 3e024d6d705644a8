"""qwen2.5o: the audio encoder of Qwen2.5-Omni: that of Qwen2-Audio over two seconds at a time."""

from __future__ import annotations

from edgellm.arch._stages import Stage
from edgellm.arch.audio._keys import AudioKeys
from edgellm.arch.audio._whisper import LEAST
from edgellm.arch.audio.qwen2a import stages as of_qwen2a
from edgellm.audio_spec import AudioSpec

WINDOW = 200  # frames, in no file


def stages(keys: AudioKeys) -> tuple[Stage, ...]:
    return of_qwen2a(keys)


def audio(keys: AudioKeys) -> AudioSpec:
    """llama.cpp lets rows see 30 seconds, which the model's makers do not."""
    return AudioSpec(
        "whisper", keys.bins, WINDOW, filled_up="half_minute", least_samples=LEAST, begin="<|audio_bos|>", end="<|audio_eos|>"
    )
