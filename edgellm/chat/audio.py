"""Clips as a model's encoder takes them: read from files, bytes or arrays, as samples of one channel at 16 kHz."""

from __future__ import annotations

import functools
import hashlib
import io
import math
import os
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from edgellm.audio_spec import RATE
from edgellm.chat.media import bytes_of_medium
from edgellm.errors import AudioError, BackendError, OptionError

Samples: TypeAlias = npt.NDArray[np.float32]  # (n,)
Source: TypeAlias = "str | os.PathLike[str] | bytes | npt.NDArray[np.floating[Any]]"
FORMATS = ("WAV", "WAVEX", "FLAC", "MP3", "OGG", "AIFF")  # what is decoded: each further decoder is one more to trust
OTHERS = {  # formats that people send, by the beginnings of their files
    "M4A or MP4": rb"(?s)....ftyp",
    "WebM or Matroska": rb"\x1a\x45\xdf\xa3",
    "AMR": rb"#!AMR",
    "WMA": rb"\x30\x26\xb2\x75",
    "MIDI": rb"MThd",
    "AAC": rb"\xff[\xf0\xf1\xf8\xf9]",
}
MOST_SECONDS = 3600
MOST_BYTES = 1 << 30  # of a file: an hour of stereo floats at 48 kHz takes 1.3 GiB, of 16 bits 0.6
LEAST_RATE, MOST_RATE = 1000, 768000
CROSSINGS = 64  # of the resampler's sinc on each side, its roll-off and window, as torchaudio's "kaiser_best" has them
ROLL_OFF, BETA = 0.9475937167399596, 14.769656459379492
BLOCK = 1 << 16  # frames that are decoded at a time


@dataclass(frozen=True, slots=True)
class Audio:
    """A clip in a prompt. `data`: a path, the bytes of a file, a data URI, or samples (n,) or (n, channels) from -1 to 1, of which
    `rate` make a second.
    """

    data: Source
    rate: int = RATE


def read(audio: Audio) -> Samples:
    """A clip as samples (n,) at 16 kHz, the mean of its channels. Raises AudioError, OptionError."""
    if isinstance(audio.data, np.ndarray):
        return _at_rate(_mono(audio.data), _checked_rate(audio.rate), "the array")
    data, name = bytes_of_medium(
        audio.data, "audio clip", "audio/wav", "a path, bytes, a data URI or an array of samples", AudioError, most=MOST_BYTES
    )
    soundfile = _soundfile()
    try:
        file = soundfile.SoundFile(io.BytesIO(data))
    except Exception as error:  # decoders raise whatever they meet in a damaged file
        kind = next((kind for kind, pattern in OTHERS.items() if re.match(pattern, data[:64])), "")
        reason = f"its format is {kind}" if kind else "it is empty" if not data else "its format is unknown, or it is damaged"
        raise AudioError(f"{name} can't be read as audio: {reason}; save it as WAV, FLAC, MP3 or Ogg first.") from error
    with file:
        if file.format not in FORMATS:
            raise AudioError(f"{name} can't be read as audio: its format is {file.format}; save it as WAV, FLAC, MP3 or Ogg first.")
        rate = file.samplerate
        if not LEAST_RATE <= rate <= MOST_RATE:
            raise AudioError(f"{name} has {rate} samples a second; {LEAST_RATE} to {MOST_RATE} are read, save the audio again.")
        most, blocks, n = MOST_SECONDS * rate, list[Samples](), 0
        try:
            while n <= most and len(block := file.read(BLOCK, dtype="float32", always_2d=True)):
                blocks.append(block.mean(axis=1, dtype=np.float32))
                n += len(block)
        except Exception as error:  # as for opening
            raise AudioError(f"{name} is damaged: {' '.join(str(error).split())[:100]}; save the audio again.") from error
    return _at_rate(np.concatenate(blocks) if blocks else np.zeros(0, np.float32), rate, name)


def fingerprint(samples: Samples) -> bytes:
    """A hash of what a clip plays, whatever file it came from."""
    return hashlib.sha256(b"audio" + np.ascontiguousarray(samples).data).digest()


def _soundfile() -> Any:  # Any: a module that is imported only when a clip comes
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: without libsndfile
        raise BackendError("audio needs soundfile; install it: pip install soundfile") from error
    return soundfile


def _checked_rate(rate: object) -> int:
    if not isinstance(rate, int) or isinstance(rate, bool) or not LEAST_RATE <= rate <= MOST_RATE:
        raise OptionError(option="rate", value=rate, advice=f"give the samples of a second, {LEAST_RATE} to {MOST_RATE}")
    return rate


def _mono(array: npt.NDArray[Any]) -> Samples:
    if array.dtype.kind != "f" or array.ndim not in (1, 2) or (array.ndim == 2 and not 1 <= array.shape[1] <= 64):
        raise OptionError(
            f"the audio is an array of {array.dtype} {array.shape}; give floats from -1 to 1, of (samples,) or (samples, channels)."
        )
    found: Samples = np.asarray(array if array.ndim == 1 else array.mean(axis=1), np.float32)
    return found


def _at_rate(samples: Samples, rate: int, name: str) -> Samples:
    """Raises AudioError for a clip that is empty, too long, or not finite."""
    if not len(samples):
        raise AudioError(f"{name} has no samples; give a clip with sound.")
    if len(samples) > MOST_SECONDS * rate:
        raise AudioError(f"{name} is longer than {MOST_SECONDS // 60} minutes; cut it into parts.")
    if not np.isfinite(samples).all():
        raise AudioError(f"{name} has samples that are NaN or Inf; save the audio again.")
    return np.ascontiguousarray(samples if rate == RATE else resampled(samples, rate))


def resampled(samples: Samples, rate: int) -> Samples:
    """At 16 kHz: a sinc with a Kaiser window, by the phases of the output's samples between the input's."""
    divisor = math.gcd(rate, RATE)
    up, down = RATE // divisor, rate // divisor
    cutoff = ROLL_OFF * min(1.0, RATE / rate)  # of half the input's rate
    reach = math.ceil(CROSSINGS / cutoff)
    padded = np.pad(samples, (reach, reach + down + 1))
    n = -(-len(samples) * up // down)
    found = np.empty(n, np.float32)
    for phase in range(min(up, n)):
        count = len(range(phase, n, up))
        first, part = divmod(phase * down, up)
        taps = _taps(part / up, cutoff, reach)
        windows = np.lib.stride_tricks.sliding_window_view(padded[first:], len(taps))[::down]
        found[phase::up] = windows[:count] @ taps
    return found


@functools.lru_cache(maxsize=1024)
def _taps(part: float, cutoff: float, reach: int) -> Samples:
    """Of input samples from `reach` before an output on, which lies `part` after one."""
    at = (np.arange(-reach, reach + 1) - part) * cutoff
    window = np.i0(BETA * np.sqrt(np.maximum(1 - (at / CROSSINGS) ** 2, 0))) / np.i0(BETA)
    taps: Samples = (np.sinc(at) * np.where(np.abs(at) < CROSSINGS, window, 0) * cutoff).astype(np.float32)
    return taps
