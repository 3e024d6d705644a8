"""Encoders of a projector file made ready: graphs with their plans, and media that were encoded and are kept."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from edgellm.backends import find
from edgellm.backends.base import Backend, BackendNeed, BackendOptions, Executable, Idle, Segment, StepBatch, StepStopped, never
from edgellm.checkpoints.opening import open_model
from edgellm.engine.prompts import Stop, Watch
from edgellm.errors import EdgeError, ModelClosed, NumericError
from edgellm.formats.gguf import GGUFFile
from edgellm.graph import Graph, KVSpec
from edgellm.memory.layout import RING_MULTIPLE, MemoryClass, MemoryLayout, plan_patches
from edgellm.ops._spec import Patches
from edgellm.passes import optimise_encoder
from edgellm.weights import WeightStore

Rows = npt.NDArray[np.float32]
Opened = TypeVar("Opened")
KEPT_BYTES = 64 << 20  # of rows that were encoded, for prompts that repeat an image or a clip
COPIED_PATCHES = 1 << 16  # of a step, for which there is room from the start where an executable holds copies of the weights
PATCHES_OF_STEP = 1024  # of tiles that are encoded together; a larger image has a step of its own


class RowsOfGrid(NamedTuple):
    """Rows (n, width) that follow each other in a prompt, and the rows and columns that they are in the image."""

    rows: Rows
    grid: tuple[int, int]


class RowsOfLines(NamedTuple):
    """Rows (n, width) of an image, whose positions are those of tokens. All but the first and last, in so many lines and columns,
    turn by column, row and the image's number as well.
    """

    rows: Rows
    grid: tuple[int, int]


class RowsOfClip(NamedTuple):
    """Rows (n, width) of a clip, whose positions are those of tokens."""

    rows: Rows


Piece = str | RowsOfGrid | RowsOfLines | RowsOfClip


@dataclass(frozen=True, slots=True)
class Encoded:
    """A picture or clip in a prompt: its rows, and the texts before, between and after them."""

    pieces: tuple[Piece, ...]
    fingerprint: bytes

    @property
    def is_image(self) -> bool:
        return any(isinstance(piece, RowsOfGrid | RowsOfLines) for piece in self.pieces)

    @property
    def rows(self) -> Rows:
        """All rows (n, width)."""
        return np.concatenate([piece.rows for piece in self.pieces if not isinstance(piece, str)])


class EncoderGraph:
    """A graph of an encoder. Its plan is kept for the next call; its work buffers take memory while it computes."""

    def __init__(self, graph: Graph, weights: WeightStore, options: BackendOptions) -> None:
        self._graph, self._weights, self._options = optimise_encoder(graph), weights, options
        self._outputs = sorted(self._graph.outputs)
        self.width = sum(self._graph.nodes[value].n for value in self._graph.outputs.values())
        self.executable: Executable | None = None  # with room for the largest step so far

    def run(
        self, backend: Backend, each: Sequence[Patches], stop: Stop = never, advanced: Callable[[int], None] = lambda done: None
    ) -> list[Rows]:
        """The rows of each image or part of a clip. `advanced` is called with patches. Raises StepStopped."""
        found, done = list[Rows](), 0
        executable = self._prepared(backend, *largest_step(each))
        try:
            for step in _steps(each):
                n, before = sum(len(one.places) for one in step), done

                def share_done(share: float, n: int = n, before: int = before) -> None:
                    advanced(before + int(n * share))

                found += self._step(executable, step, stop, share_done)
                done += n
        finally:
            if isinstance(executable, Idle):
                executable.release_buffers()
        return found

    def need(self, backend: Backend, gguf: GGUFFile, each: Sequence[Patches]) -> BackendNeed:
        """The memory for these images or parts of a clip. Raises Unsupported."""
        return backend.need(self._graph, gguf, layout_of(self._graph, *largest_step(each)), self._options)

    def close(self) -> None:
        if self.executable is not None:
            self.executable.close()
            self.executable = None

    def _prepared(self, backend: Backend, patches: int, rows: int) -> Executable:
        """The executable, made again where a step is larger than all before it; not where that would copy the weights again."""
        kept = self.executable
        if backend.copies_weights:
            patches, rows = max(patches, COPIED_PATCHES), max(rows, COPIED_PATCHES)
        if kept is None or kept.max_tokens < patches or kept.max_outputs < rows:
            if kept is not None:
                patches, rows = max(patches, kept.max_tokens), max(rows, kept.max_outputs)
                self.close()
            self.executable = backend.prepare(self._graph, self._weights, layout_of(self._graph, patches, rows), self._options)
        assert self.executable is not None
        return self.executable

    def _step(
        self, executable: Executable, step: Sequence[Patches], stop: Stop, advanced: Callable[[float], None]
    ) -> Iterator[Rows]:
        state, patches = executable.new_state(), _joined(step)
        n = len(patches.places)
        firsts = np.cumsum([0, *(len(one.places) for one in step)]).tolist()
        starts = _starts(step)
        spans = tuple(
            np.concatenate([_spans(one, start, memory) for one, start in zip(step, starts, strict=True)])
            for memory in executable.layout.classes
        )
        segments = tuple(Segment(state, first, len(one.places)) for first, one in zip(firsts, step, strict=False))
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
        ends = np.cumsum([len(one.outputs) for one in step]).tolist()
        yield from np.split(rows, ends[:-1])


class MediaEncoder:
    """An encoder with its weights, and the media that it has encoded last."""

    medium: str  # what it encodes, and the error of one that is given up
    error: type[EdgeError]

    def __init__(self, gguf: GGUFFile, graphs: Sequence[Graph], threads: int | None) -> None:
        """`gguf`: open, and closed with the encoder. `graphs`: one after the other; rows of the last go to the model."""
        self.path, self.file_bytes = str(gguf.path), gguf.nbytes
        self.gguf, self._weights = gguf, WeightStore(gguf)
        self.graphs = [EncoderGraph(graph, self._weights, BackendOptions("f32", threads)) for graph in graphs]
        self.n_out = self.graphs[-1].width
        self.backend = find("cpu")  # which computes the graphs
        self._lock, self._closed = threading.Lock(), False
        self._closing, self._cancels = False, 0
        self._kept: dict[bytes, Encoded] = {}  # the one that was used last at the end

    def cancel(self) -> None:
        """Give up what is being encoded or waits for that, from any thread."""
        self._cancels += 1

    def close(self) -> None:
        """Give the file's pages back, once what is being encoded is given up. Closing twice does nothing."""
        self._closing = True
        with self._lock:
            self._closed = True
            self._kept.clear()
            for graph in self.graphs:
                graph.close()
            self._weights.close()

    def _encoded(self, fingerprint: bytes, watch: Watch, encode: Callable[[Stop], tuple[Piece, ...]]) -> Encoded:
        """The rows that `encode` makes, or has made before. Raises NumericError, ModelClosed, and `error` where it is given up."""
        cancels = self._cancels
        with self._lock:
            if self._closed:
                raise ModelClosed(f"{self.path}: the model was closed; load it again.")
            if (known := self._kept.pop(fingerprint, None)) is None:
                known = Encoded(encode(lambda: self._closing or self._cancels != cancels or watch.stop()), fingerprint)
                if not np.isfinite(known.rows).all():
                    raise NumericError(
                        f"{self.path}: the {self.medium} became NaN or Inf values; the file may be damaged: fetch it again."
                    )
            self._kept[fingerprint] = known
            while len(self._kept) > 1 and sum(one.rows.nbytes for one in self._kept.values()) > KEPT_BYTES:
                del self._kept[next(iter(self._kept))]
        return known

    def run(
        self, number: int, each: Sequence[Patches], stop: Stop = never, advanced: Callable[[int], None] = lambda done: None
    ) -> list[Rows]:
        """The rows that a graph makes of images or parts of clips. One call at a time. Raises ModelClosed, and `error`."""
        try:
            return self.graphs[number].run(self.backend, each, stop, advanced)
        except StepStopped as stopped:
            if self._closing:
                raise ModelClosed(f"{self.path}: the model was closed while the {self.medium} was encoded.") from stopped
            raise self.error(f"the {self.medium} was cancelled while it was encoded.") from stopped


def opened(path: str | os.PathLike[str], load: Callable[[GGUFFile], Opened]) -> tuple[GGUFFile, Opened]:
    """An open file, and what `load` reads of it; closed again where that fails."""
    gguf = open_model(path)
    try:
        return gguf, load(gguf)
    except BaseException:
        gguf.close()
        raise


def layout_of(graph: Graph, patches: int, rows: int) -> MemoryLayout:
    return plan_patches([state for state in graph.states if isinstance(state, KVSpec)], patches=patches, rows=rows)


def largest_step(each: Sequence[Patches]) -> tuple[int, int]:
    """Slots and rows of the steps that encode these, at most."""
    steps = list(_steps(each))
    return max(map(_slots, steps)), max(sum(len(one.outputs) for one in step) for step in steps)


def _steps(each: Sequence[Patches]) -> Iterator[list[Patches]]:
    """Images by the steps that encode them: the same ones whatever else is encoded."""
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


def _spans(image: Patches, start: int, memory: MemoryClass) -> npt.NDArray[np.int32]:
    """Spans (T, 4) of patches that see their window, the whole image, or those before them; see backends.base.StepBatch."""
    n = len(image.places)
    spans = np.zeros((n, 4), np.int32)
    spans[:, 0] = start + np.arange(n)
    spans[:, 2], spans[:, 3] = start, np.maximum(n - image.queries - image.ordered, np.arange(1, n + 1) if image.ordered else 0)
    if memory.causal:
        spans[:, 3] = np.minimum(np.arange(n) + 1, memory.window)
        spans[:, 2] = start + np.arange(n) + 1 - spans[:, 3]
    if memory.chunked:
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
