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
GEMMA_FRAME, GEMMA_FLOOR = 320, np.float32(0.001)
PREEMPHASIS, NEMO_FLOOR = np.float32(0.97), np.float32(2**-24)


class Window(NamedTuple):
    """Frames that are encoded together, and how many of them the clip fills."""

    frames: Frames
    filled: int


def windows(samples: Samples, spec: AudioSpec) -> list[Window]:
    """The windows of a clip (n,)."""
    samples = np.pad(samples, (0, max(spec.least_samples - len(samples), 0)))
    if spec.features == "whisper":
        return _cut(*_whisper(samples, spec), spec)
    if spec.features in SPECTRA:
        frames = SPECTRA[spec.features](samples, spec.bins)
    else:
        frames = np.pad(samples, (0, -len(samples) % spec.bins)).reshape(-1, spec.bins)
    return _cut(frames, len(frames), spec)


def _cut(frames: Frames, filled: int, spec: AudioSpec) -> list[Window]:
    """`filled`: frames of the clip; silence may follow them."""
    size = spec.window or len(frames)
    cut = (Window(frames[first : first + size], min(filled - first, size)) for first in range(0, len(frames), size))
    return [window for window in cut if window.filled > 0]


def _whisper(samples: Samples, spec: AudioSpec) -> tuple[Frames, int]:
    """transformers, feature_extraction_whisper.py: padded with silence to full windows, or to full hops."""
    filled = -(-len(samples) // HOP) if spec.filled_up != "nothing" else len(samples) // HOP
    multiple = {"window": spec.window * HOP, "half_minute": 30 * RATE, "hop": HOP, "nothing": 1}[spec.filled_up]
    samples = np.pad(samples, (0, -len(samples) % multiple))
    mel = _spectra(np.pad(samples, N_FFT // 2, mode="reflect"), _hann(N_FFT), N_FFT, mel_filters(spec.bins))[:-1]
    frames = np.log10(np.maximum(mel, np.float32(1e-10)))
    frames = np.maximum(frames, frames.max() - np.float32(8))
    frames = frames[:filled] if spec.filled_up == "half_minute" else frames
    return (frames + np.float32(4)) / np.float32(4), filled


def _gemma(samples: Samples, bins: int) -> Frames:
    """transformers, feature_extraction_gemma4.py: frames of 20 ms, half of the first is silence before the clip."""
    padded = np.pad(samples, (GEMMA_FRAME // 2, 0))
    count = (len(padded) - GEMMA_FRAME - 1) // HOP + 1
    spectra = _spectra(padded, _hann(GEMMA_FRAME), 512, mel_filters(bins, 512, htk=True), power=1)[:count]
    found: Frames = np.log(spectra + GEMMA_FLOOR)
    return found


def _nemo(samples: Samples, bins: int) -> Frames:
    """NVIDIA's FilterbankFeatures: a symmetric window within 512 samples, whose middle is at each hop."""
    count = len(samples) // HOP
    risen = np.concatenate([samples[:1], samples[1:] - PREEMPHASIS * samples[:-1]])
    window = np.pad(np.hanning(N_FFT).astype(np.float32), (512 - N_FFT) // 2)
    frames = np.log(_spectra(np.pad(risen, 256), window, 512, mel_filters(bins, 512))[:count] + NEMO_FLOOR)
    mean, deviation = frames.mean(axis=0), frames.std(axis=0, ddof=1)
    found: Frames = ((frames - mean) / (deviation + np.float32(1e-5))).astype(np.float32)
    return found


def _hann(n: int) -> npt.NDArray[np.float32]:
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / n)).astype(np.float32)


def _spectra(
    samples: Samples, window: npt.NDArray[np.float32], n_fft: int, filters: npt.NDArray[np.float32], power: int = 2
) -> Frames:
    """Mel spectra (n, bins) of magnitudes or of their squares of all whole frames, each as long as the window."""
    if len(samples) < len(window):
        return np.zeros((0, filters.shape[1]), np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(samples, len(window))[::HOP]
    found = np.empty((len(frames), filters.shape[1]), np.float32)
    for at in range(0, len(frames), FRAMES_AT_ONCE):
        spectra = np.abs(np.fft.rfft(frames[at : at + FRAMES_AT_ONCE] * window, n_fft, axis=1)).astype(np.float32)
        found[at : at + FRAMES_AT_ONCE] = (spectra**2 if power == 2 else spectra) @ filters
    return found


@functools.lru_cache(maxsize=8)
def mel_filters(bins: int, n_fft: int = N_FFT, *, htk: bool = False) -> npt.NDArray[np.float32]:
    """Triangles over frequencies up to 8 kHz (n_fft / 2 + 1, bins), evenly spaced in mel: Slaney's, of equal areas, or HTK's."""
    hz, mels = (_htk_hz, _htk_mels) if htk else (_hz, _mels)
    edges = hz(mels(np.array(RATE / 2)) * np.linspace(0, 1, bins + 2))
    frequencies = np.linspace(0, RATE / 2, n_fft // 2 + 1)
    slopes = edges[None, :] - frequencies[:, None]
    widths = np.diff(edges)
    triangles = np.maximum(0, np.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]))
    return (triangles * (1.0 if htk else 2.0 / (edges[2:] - edges[:-2]))).astype(np.float32)


Values = npt.NDArray[np.float64]


def _mels(hz: Values) -> Values:
    return np.where(hz < 1000, hz * 3 / 200, 15 + np.log(np.maximum(hz, 1) / 1000) * (27 / np.log(6.4)))


def _hz(mel: Values) -> Values:
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * (np.log(6.4) / 27)))


def _htk_mels(hz: Values) -> Values:
    found: Values = 2595 * np.log10(1 + hz / 700)
    return found


def _htk_hz(mel: Values) -> Values:
    found: Values = 700 * (10 ** (mel / 2595) - 1)
    return found


SPECTRA = {"gemma": _gemma, "nemo": _nemo}
