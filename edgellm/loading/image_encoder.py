"""A projector file made ready: from a picture to the rows that a language model takes in the place of tokens."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edgellm.arch.vision import load_encoder
from edgellm.backends import find
from edgellm.backends.base import BackendOptions, Executable, Idle, Segment, StepBatch, StepStopped, never
from edgellm.chat import images
from edgellm.checkpoints.opening import open_model
from edgellm.errors import ImageError, ModelClosed, NumericError
from edgellm.graph import KVSpec
from edgellm.memory.layout import RING_MULTIPLE, MemoryLayout, plan_patches
from edgellm.ops._spec import Patches
from edgellm.passes import optimise_encoder
from edgellm.weights import WeightStore

Rows = npt.NDArray[np.float32]
Stop = Callable[[], bool]
Progress = Callable[[int, int], None]


class Watch(NamedTuple):
    """A caller that waits for images to be encoded: whether it has given up, and a function that is called with patches."""

    stop: Stop = never
    progress: Progress | None = None


UNWATCHED = Watch()
KEPT_BYTES = 64 << 20  # of rows that were encoded, for prompts that repeat an image
PATCHES_OF_STEP = 1024  # of tiles that are encoded together; a larger image has a step of its own


class RowsOfGrid(NamedTuple):
    """Rows (n, width) that follow each other in a prompt, and the rows and columns that they are in the image."""

    rows: Rows
    grid: tuple[int, int]


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """A picture in a prompt: the rows of its images, and the texts before, between and after them."""

    pieces: tuple[str | RowsOfGrid, ...]
    fingerprint: bytes

    @property
    def rows(self) -> Rows:
        """All rows (n, width)."""
        return np.concatenate([piece.rows for piece in self.pieces if not isinstance(piece, str)])


class ImageEncoder:
    """An encoder with its weights. Its plan is kept for the next image; its work buffers take memory while it encodes."""

    def __init__(self, path: str | os.PathLike[str], threads: int | None = None) -> None:
        """Raises the FormatErrors, BackendError."""
        gguf = open_model(path)
        try:
            self.keys, graph, self.spec = load_encoder(gguf)
            self._graph = optimise_encoder(graph)
            self._outputs = sorted(self._graph.outputs)
            self.n_out = sum(self._graph.nodes[value].n for value in self._graph.outputs.values())
            self._options = BackendOptions("f32", threads)
            self.path, self.file_bytes = str(gguf.path), gguf.nbytes
            self._weights = WeightStore(gguf)
        except BaseException:
            gguf.close()
            raise
        self._lock, self._closed = threading.Lock(), False
        self._closing, self._cancels = False, 0
        self._executable: Executable | None = None  # with room for the largest step so far
        self._kept: dict[bytes, EncodedImage] = {}  # the one that was used last at the end

    def encode(self, pixels: images.Pixels, *, most_rows: int | None = None, watch: Watch = UNWATCHED) -> EncodedImage:
        """The rows of a picture. Raises NumericError, ImageError where it is given up or `cancel` is called, ModelClosed."""
        fingerprint, cancels = images.fingerprint(pixels) + repr(most_rows).encode(), self._cancels
        with self._lock:
            if self._closed:
                raise ModelClosed(f"{self.path}: the model was closed; load it again.")
            if (known := self._kept.pop(fingerprint, None)) is None:
                known = self._seen(
                    pixels,
                    most_rows,
                    fingerprint,
                    lambda: self._closing or self._cancels != cancels or watch.stop(),
                    watch.progress,
                )
            self._kept[fingerprint] = known
            while len(self._kept) > 1 and sum(image.rows.nbytes for image in self._kept.values()) > KEPT_BYTES:
                del self._kept[next(iter(self._kept))]
        return known

    def _seen(
        self, pixels: images.Pixels, most_rows: int | None, fingerprint: bytes, stop: Stop, progress: Progress | None
    ) -> EncodedImage:
        tiles, side = images.tiles(pixels, self.spec, most_rows), self.spec.side_multiple
        found = self.encode_patches([images.patches(image, self.spec) for image in tiles.images], stop, progress)
        if not all(np.isfinite(rows).all() for rows in found):
            raise NumericError(f"{self.path}: an image became NaN or Inf values; the file may be damaged: fetch it again.")
        before, *after = images.texts(tiles, self.spec)
        pieces: list[str | RowsOfGrid] = [before]
        for image, rows, text in zip(tiles.images, found, after, strict=True):
            grid = (image.shape[0] // side, image.shape[1] // side)
            if self.spec.line_end:
                for line in np.split(rows, grid[0]):
                    pieces += [RowsOfGrid(line, (1, grid[1])), self.spec.line_end]
                del pieces[-1]
            else:
                pieces.append(RowsOfGrid(rows, grid))
            pieces.append(text)
        return EncodedImage(tuple(pieces), fingerprint)

    def cancel(self) -> None:
        """Give up the images that are being encoded or wait for that, from any thread."""
        self._cancels += 1

    def close(self) -> None:
        """Give the file's pages back, once an image that is being encoded is given up. Closing twice does nothing."""
        self._closing = True
        with self._lock:
            self._closed = True
            self._kept.clear()
            if self._executable is not None:
                self._executable.close()
                self._executable = None
            self._weights.close()

    def encode_patches(self, each: Sequence[Patches], stop: Stop = never, progress: Progress | None = None) -> list[Rows]:
        """The rows of images that are cut into patches. One call at a time."""
        steps, found, done = list(_steps(each)), list[Rows](), 0
        total = sum(len(image.places) for image in each)
        executable = self._prepared(max(map(_slots, steps)), max(sum(len(image.outputs) for image in step) for step in steps))
        try:
            for step in steps:
                n, before = sum(len(image.places) for image in step), done

                def advanced(share: float, n: int = n, before: int = before) -> None:
                    if progress is not None:
                        progress(before + int(n * share), total)

                found += self._step(executable, step, stop, advanced)
                done += n
        except StepStopped as stopped:
            if self._closing:
                raise ModelClosed(f"{self.path}: the model was closed while an image was encoded.") from stopped
            raise ImageError("the image was cancelled while it was encoded.") from stopped
        finally:
            if isinstance(executable, Idle):
                executable.release_buffers()
        return found

    def _prepared(self, patches: int, rows: int) -> Executable:
        """The executable, made again where a step is larger than all before it."""
        kept = self._executable
        if kept is None or kept.max_tokens < patches or kept.max_outputs < rows:
            if kept is not None:
                patches, rows = max(patches, kept.max_tokens), max(rows, kept.max_outputs)
                self._executable = None
                kept.close()
            self._executable = find("cpu").prepare(self._graph, self._weights, self._layout(patches, rows), self._options)
        assert self._executable is not None
        return self._executable

    def _layout(self, patches: int, rows: int) -> MemoryLayout:
        return plan_patches([state for state in self._graph.states if isinstance(state, KVSpec)], patches=patches, rows=rows)

    def _step(
        self, executable: Executable, step: Sequence[Patches], stop: Stop, advanced: Callable[[float], None]
    ) -> Iterator[Rows]:
        state, patches = executable.new_state(), _joined(step)
        n = len(patches.places)
        firsts = np.cumsum([0, *(len(image.places) for image in step)]).tolist()
        starts = _starts(step)
        spans = tuple(
            np.concatenate([_spans(image, start, windowed=memory.chunked) for image, start in zip(step, starts, strict=True)])
            for memory in executable.layout.classes
        )
        segments = tuple(Segment(state, first, len(image.places)) for first, image in zip(firsts, step, strict=False))
        positions = np.arange(n)
        batch = StepBatch(
            np.zeros(n, np.int32),
            positions,
            positions,
            spans,
            patches.outputs.astype(np.int32),
            segments,
            patches=patches,
            advanced=advanced,
        )
        outputs = executable.submit(batch).wait(stop)
        rows = np.concatenate([outputs[name] for name in self._outputs], axis=1)
        ends = np.cumsum([len(image.outputs) for image in step]).tolist()
        yield from np.split(rows, ends[:-1])


def _steps(each: Sequence[Patches]) -> Iterator[list[Patches]]:
    """The images of a picture by the steps that encode them: the same ones whatever else is encoded."""
    step: list[Patches] = []
    for image in each:
        if step and _slots([*step, image]) > PATCHES_OF_STEP:
            yield step
            step = []
        step.append(image)
    yield step


def _starts(step: Sequence[Patches]) -> list[int]:
    """The slot of each image's first patch: back ends add up keys in chunks, with one of which it begins."""
    ends = np.cumsum([0, *(-(-len(image.places) // RING_MULTIPLE) * RING_MULTIPLE for image in step)])
    return [int(end) for end in ends[:-1]]


def _slots(step: Sequence[Patches]) -> int:
    return _starts(step)[-1] + len(step[-1].places)


def _spans(image: Patches, start: int, *, windowed: bool) -> npt.NDArray[np.int32]:
    """Spans (T, 4) of patches that see their window or the whole image; see backends.base.StepBatch."""
    n = len(image.places)
    spans = np.zeros((n, 4), np.int32)
    spans[:, 0] = start + np.arange(n)
    spans[:, 2], spans[:, 3] = start, n
    if windowed:
        firsts = np.flatnonzero(np.diff(image.windows, prepend=-1))
        lengths = np.diff(firsts, append=n)
        spans[:, 2], spans[:, 3] = start + np.repeat(firsts, lengths), np.repeat(lengths, lengths)
    return spans


def _joined(step: Sequence[Patches]) -> Patches:
    """The patches of several images as the rows of one step."""
    firsts = np.cumsum([0, *(len(image.places) for image in step)])
    return Patches(
        np.concatenate([image.pixels for image in step]),
        np.concatenate([image.places for image in step]),
        np.concatenate([image.grids for image in step]),
        np.concatenate([image.windows for image in step]),
        np.concatenate([image.outputs + first for image, first in zip(step, firsts, strict=False)]),
    )
