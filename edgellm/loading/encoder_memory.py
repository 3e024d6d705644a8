"""The memory that the encoders of a projector file take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from edgellm.arch._projector import media_of
from edgellm.audio_spec import RATE
from edgellm.backends import find
from edgellm.backends.base import Backend, BackendNeed, never
from edgellm.chat import images
from edgellm.chat.mel import windows
from edgellm.checkpoints.opening import open_model
from edgellm.engine.prompts import Stop
from edgellm.loading.audio_encoder import AudioEncoder
from edgellm.loading.encoder import MediaEncoder, Rows
from edgellm.loading.image_encoder import ImageEncoder
from edgellm.ops._spec import Patches

HEIGHT, WIDTH, SECONDS = 768, 1024, 30  # of what is encoded


class _Measured(MediaEncoder):
    """An encoder that computes nothing, and notes the memory that it would need."""

    needs: list[tuple[int, BackendNeed]]  # and the numbers of graphs

    def run(
        self, number: int, each: Sequence[Patches], stop: Stop = never, advanced: Callable[[int], None] = lambda done: None
    ) -> list[Rows]:
        self.needs.append((number, self.graphs[number].need(self.backend, self.gguf, each)))
        return [np.zeros((len(one.outputs), self.graphs[number].width), np.float32) for one in each]


class _ImageNeed(_Measured, ImageEncoder):
    def measure(self) -> None:
        tiles = images.tiles(np.zeros((HEIGHT, WIDTH, 3), np.uint8), self.spec)
        self.encode_patches([images.patches(image, self.spec) for image in tiles.images])


class _AudioNeed(_Measured, AudioEncoder):
    def measure(self) -> None:
        self.encode_window(windows(np.zeros(SECONDS * RATE, np.float32), self.spec)[0], never)


def memory_of(path: str | os.PathLike[str], threads: int | None = None, backend: Backend | None = None) -> int:
    """Bytes of a projector and of its work for a picture of 1024 x 768 or a clip of half a minute on a back end, the CPU where none
    is given.

    Raises the FormatErrors, BackendError.
    """
    weights, work = 0, 0
    for encoder in _encoders(path, threads):
        encoder.backend, encoder.needs = backend or find("cpu"), []
        encoder.measure()
        weights += sum({number: need.weights for number, need in encoder.needs}.values())
        work = max(work, *(need.kv + need.work for _, need in encoder.needs))  # which the next graph takes again
        encoder.close()
    return weights + work


def _encoders(path: str | os.PathLike[str], threads: int | None) -> Iterator[_ImageNeed | _AudioNeed]:
    with open_model(path) as gguf:
        sees, hears = media_of(gguf)
    if sees or not hears:
        yield _ImageNeed(path, threads)
    if hears:
        yield _AudioNeed(path, threads)
