"""The form in which a model's encoder takes audio: features of its frames, windows, and the text that stands around their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Features = Literal["whisper", "gemma", "nemo", "samples"]
RATE = 16000  # samples of a second, of all encoders


@dataclass(frozen=True, slots=True)
class AudioSpec:
    """The preprocessing of clips, done by chat/mel.py, and what becomes of their frames.

    `features`:
    "whisper": log10 of a Slaney mel spectrogram, from 8 below its maximum on.
    "gemma": log of an HTK mel spectrogram of magnitudes, whose frames end with the samples.
    "nemo": log of a Slaney mel spectrogram after pre-emphasis, of each bin less its mean and by its deviation.
    "samples": no spectrum, a frame's samples themselves.
    """

    features: Features
    bins: int  # values of a frame
    window: int = 0  # frames that are encoded together; 0: all
    chunk: int = 0  # frames that convolutions see together, filled up with zeros; 0: those of a window
    filled_up: Literal["window", "half_minute", "hop", "nothing"] = "nothing"  # with silence, before frames are made
    all_rows: bool = False  # those of the silence go to the model, too
    least_samples: int = 1  # of a clip; a shorter one is filled up with silence
    begin: str = ""  # text before the rows of a clip
    end: str = ""
    prompt: str = ""  # asks for a transcription; "": in plain words
    raw_prompt: tuple[str, str] | None = None  # texts before and after a clip that ask for it without a chat template
