"""Features of clips as the makers of encoders compute them: log-mel spectrograms, or samples in frames."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edgellm.audio_spec import RATE, AudioSpec

Samples = npt.NDArray[np.float32]
Frames = npt.NDArray[np.float32]  # (n, bins)
N_FFT, HOP = 400, 160  # samples
FRAMES_AT_ONCE = 4096  # whose spectra are in memory


class Window(NamedTuple):
    """Frames that are encoded together, and how many of them the clip fills."""

    frames: Frames
    filled: int


def windows(samples: Samples, spec: AudioSpec) -> list[Window]:
    """The windows of a clip (n,)."""
    samples = np.pad(samples, (0, max(spec.least_samples - len(samples), 0)))
    if spec.features == "whisper":
        return _cut(*_whisper(samples, spec), spec)
    frames = np.pad(samples, (0, -len(samples) % spec.bins)).reshape(-1, spec.bins)
    return _cut(frames, len(frames), spec)


def _cut(frames: Frames, filled: int, spec: AudioSpec) -> list[Window]:
    """`filled`: frames of the clip; silence may follow them."""
    size = spec.window or len(frames)
    cut = (Window(frames[first : first + size], min(filled - first, size)) for first in range(0, len(frames), size))
    return [window for window in cut if window.filled > 0]


def _whisper(samples: Samples, spec: AudioSpec) -> tuple[Frames, int]:
    """transformers, feature_extraction_whisper.py: filled up with silence to windows, or to whole hops."""
    filled = -(-len(samples) // HOP) if spec.filled_up != "nothing" else len(samples) // HOP
    multiple = {"window": spec.window * HOP, "half_minute": 30 * RATE, "hop": HOP, "nothing": 1}[spec.filled_up]
    samples = np.pad(samples, (0, -len(samples) % multiple))
    frames = np.log10(np.maximum(_mel(np.pad(samples, N_FFT // 2, mode="reflect"), spec.bins), np.float32(1e-10)))
    frames = np.maximum(frames, frames.max() - np.float32(8))
    frames = frames[:filled] if spec.filled_up == "half_minute" else frames
    return (frames + np.float32(4)) / np.float32(4), filled


def _mel(samples: Samples, bins: int) -> Frames:
    """Mel spectra of squares (n, bins) of frames of 400 samples; the last frame does not count."""
    hann = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(N_FFT) / N_FFT)).astype(np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(samples, N_FFT)[::HOP][:-1]
    filters, found = mel_filters(bins), np.empty((len(frames), bins), np.float32)
    for at in range(0, len(frames), FRAMES_AT_ONCE):
        spectra = np.abs(np.fft.rfft(frames[at : at + FRAMES_AT_ONCE] * hann, axis=1)).astype(np.float32)
        found[at : at + FRAMES_AT_ONCE] = spectra**2 @ filters
    return found


@functools.lru_cache(maxsize=8)
def mel_filters(bins: int) -> npt.NDArray[np.float32]:
    """Slaney's triangles of equal areas over frequencies up to 8 kHz (n_fft / 2 + 1, bins), evenly spaced in mel."""
    edges = _hz(_mels(np.array(RATE / 2)) * np.linspace(0, 1, bins + 2))
    frequencies = np.linspace(0, RATE / 2, N_FFT // 2 + 1)
    slopes = edges[None, :] - frequencies[:, None]
    widths = np.diff(edges)
    triangles = np.maximum(0, np.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]))
    return (triangles * (2.0 / (edges[2:] - edges[:-2]))).astype(np.float32)


Values = npt.NDArray[np.float64]


def _mels(hz: Values) -> Values:
    return np.where(hz < 1000, hz * 3 / 200, 15 + np.log(np.maximum(hz, 1) / 1000) * (27 / np.log(6.4)))


def _hz(mel: Values) -> Values:
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * (np.log(6.4) / 27)))
