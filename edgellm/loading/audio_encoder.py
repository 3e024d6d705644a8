"""Clips to the rows that a language model takes in the place of tokens."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from edgellm.arch.audio import load_encoder
from edgellm.chat import audio
from edgellm.chat.mel import Frames, Window, windows
from edgellm.engine.prompts import UNWATCHED, PatchProgress, Stop, Watch
from edgellm.errors import AudioError
from edgellm.loading.encoder import Encoded, MediaEncoder, Piece, Rows, RowsOfClip, opened
from edgellm.ops._spec import Patches

ROWS_OF_STEP = 4096  # of convolutions, which need no neighbours any more
CONVOLUTIONS = 0.3  # their share of the work, about
HALO = 2  # frames of silence that convolutions see behind a clip


class AudioEncoder(MediaEncoder):
    """The audio encoder of a projector file."""

    medium, error = "audio clip", AudioError

    def __init__(self, path: str | os.PathLike[str], threads: int | None = None) -> None:
        """Raises the FormatErrors, BackendError."""
        gguf, (self.keys, self._stages, graphs, self.spec) = opened(path, load_encoder)
        super().__init__(gguf, graphs, threads)

    def encode(self, samples: audio.Samples, *, watch: Watch = UNWATCHED) -> Encoded:
        """The rows of a clip. Raises NumericError, AudioError where it is given up or `cancel` is called, ModelClosed."""
        return self._encoded(audio.fingerprint(samples), watch, lambda stop: self._heard(samples, stop, watch.progress))

    def _heard(self, samples: audio.Samples, stop: Stop, progress: PatchProgress | None) -> tuple[Piece, ...]:
        cut, found, done = windows(samples, self.spec), list[Rows](), 0
        total = sum(window.filled for window in cut)
        for window in cut:

            def advanced(share: float, before: int = done, n: int = window.filled) -> None:
                if progress is not None:
                    progress(before + int(n * share), total)

            found.append(self.encode_window(window, stop, advanced))
            done += window.filled
        return self.spec.begin, RowsOfClip(np.concatenate(found)), self.spec.end

    def encode_window(self, window: Window, stop: Stop, advanced: Callable[[float], None] = lambda share: None) -> Rows:
        """The rows (n, width) of frames that are encoded together. One call at a time."""
        chunk, parts, places = self.spec.chunk or len(window.frames), list[Rows](), list[int]()
        with_layers = next(number for number, stage in enumerate(self._stages) if stage.layers)
        for first in range(0, len(window.frames), chunk):
            filled = len(window.frames) if self.spec.all_rows else min(window.filled - first, chunk)
            if filled <= 0:
                break
            x = self._chunk(window.frames[first : first + chunk], filled)
            for number in range(with_layers):

                def convolved(share: float, before: float = first, number: int = number) -> None:
                    done = before + chunk * (number + share) / with_layers
                    advanced(CONVOLUTIONS * min(done / len(window.frames), 1.0))

                x = self._convolved(number, x, stop, convolved)
            rows = self._stages[with_layers].read(x)
            for stage in self._stages[: with_layers + 1]:
                filled = stage.count(filled)
            parts.append(rows[:filled])
            places += range(filled)
        x = np.concatenate(parts)
        n, merged = len(x), self._stages[with_layers].merged
        if n < merged:  # of a last window of a frame or two
            return np.zeros((0, self.n_out), np.float32)
        found = self.run(
            with_layers,
            [patches(x, np.array(places), np.arange(n // merged) * merged)],
            stop,
            lambda done: advanced(CONVOLUTIONS + (1 - CONVOLUTIONS) * done / n),
        )[0]
        for number in range(with_layers + 1, len(self._stages)):
            found = self._convolved(number, found[:, None], stop)[:, 0]
        advanced(1.0)
        return found

    def _chunk(self, frames: Frames, filled: int) -> Rows:
        """Frames as (n, bins, channels), as far as convolutions see them: one channel of bins, or a channel for each."""
        if self.spec.filled_up == "window":
            frames = frames[: filled + HALO]
        elif self.spec.chunk:
            frames = np.pad(frames, ((0, self.spec.chunk - len(frames)), (0, 0)))
        return frames[:, None] if self._stages[0].taps[1] == 1 else frames[:, :, None]

    def _convolved(self, number: int, x: Rows, stop: Stop, advanced: Callable[[float], None] = lambda share: None) -> Rows:
        """The values (n, bins, channels) that a stage without layers makes of others. `advanced` is called with the share done."""
        stage, found = self._stages[number], list[Rows]()
        views = stage.views(x)
        bins = views.shape[1]
        frames = max(ROWS_OF_STEP // bins, 1)
        for first in range(0, len(views), frames):
            rows = stage.rows(views[first : first + frames])
            if stage.depth:
                kernel, bias = (self._weights[f"{stage.depth}.{part}"].array().astype(np.float32) for part in ("weight", "bias"))
                taps = rows.reshape(len(rows), len(kernel), -1)
                rows = np.einsum("nct,ct->nc", taps, kernel.reshape(len(kernel), -1), optimize=True) + bias.reshape(-1)
            found += self.run(number, [patches(rows, np.zeros(len(rows), np.int64), np.arange(len(rows)))], stop)
            advanced(min((first + frames) / len(views), 1.0))
        return np.concatenate(found).reshape(-1, bins, found[0].shape[1])


def patches(
    rows: Rows, places: np.ndarray[tuple[int], np.dtype[np.int64]], outputs: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> Patches:
    """Rows as those of a step: a clip has one column."""
    nothing = np.zeros(len(rows), np.int64)
    return Patches(rows, np.stack([places, nothing], axis=1), np.ones((len(rows), 2), np.int64), nothing, outputs)
