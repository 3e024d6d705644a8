"""Graphs of an encoder that follow each other: convolutions, whose neighbours are laid side by side before, and layers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgellm.formats.gguf import TensorInfo
from edgellm.graph import Builder, Graph
from edgellm.spec import uses, verify

Rows = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Stage:
    """A graph and the rows that it reads: values of an array (frames, bins, channels) that a convolution's taps lie on, as im2col
    lays them out. Without bins, rows (n, channels) are (n, 1, channels). Of an image, frames and bins are rows and columns.
    """

    build: Callable[[Builder], None]
    taps: tuple[int, int] = (1, 1)  # over frames and bins; 0: all bins
    stride: int = 1  # of each that has more than one tap
    around: int = 0  # zeros on both sides of each that has more than one tap
    order: str = "ctf"  # of a row's values: channels, frames, bins, the last one fastest
    layers: bool = False  # rows see each other: those of a window are one step
    merged: int = 1  # rows that become one of those that leave the graph
    queries: bool = False  # zeros for as many queries, each of which sees the rows before it, follow the rows of an image
    class_row: bool = False  # zeros for a class token follow the rows of an image
    depth: str = ""  # names a convolution of each channel for itself, whose results are read in place of what its taps lie on

    def read(self, x: Rows) -> Rows:
        """The rows of the graph."""
        return self.rows(self.views(x))

    def rows(self, views: Rows) -> Rows:
        """Those of some frames of `views`."""
        places = [2 + "ctf".index(axis) for axis in self.order]
        rows = views.transpose(0, 1, *places).reshape(views.shape[0] * views.shape[1], -1)
        return np.ascontiguousarray(rows, np.float32)

    def views(self, x: Rows) -> Rows:
        """(frames, rows of one, channels, taps over frames, taps over bins). Behind the last frame are zeros."""
        frames, bins = self.taps[0], self.taps[1] or x.shape[1]
        ends = [(self.around, self.around) if taps > 1 else (0, 0) for taps in (frames, self.taps[1])]
        if not self.around:
            ends[0] = (0, -len(x) % self.stride)
        padded = np.pad(x, (*ends, (0, 0)))
        views = np.lib.stride_tricks.sliding_window_view(padded, (frames, bins), axis=(0, 1))
        return views[:: self.stride if frames > 1 else 1, :: self.stride if self.taps[1] > 1 else 1]

    def count(self, frames: int) -> int:
        """Frames that it gives for so many."""
        if not self.around:
            return -(-frames // self.stride)
        return (frames + 2 * self.around - self.taps[0]) // self.stride + 1


def graphs_of(
    stages: Sequence[Stage], tensors: Mapping[str, TensorInfo], file: str | os.PathLike[str], left_out: Sequence[str] = ()
) -> list[Graph]:
    """The verified graphs of stages, which need all of the tensors together but those that they or `left_out` name.

    Raises BadHParam, BadTensorInfo, ShapeMismatch and Unsupported.
    """
    shapes, left, graphs = {name: tuple(info.shape) for name, info in tensors.items()}, dict(tensors), list[Graph]()
    for number, stage in enumerate(stages, 1):
        builder = Builder(shapes)
        for beginning in left_out:
            builder.leave_out(beginning)
        stage.build(builder)
        graph = builder.graph()
        needed = {use.name for use in uses(graph)}
        left.update({name: info for name, info in tensors.items() if name in needed})
        rest = left if number == len(stages) else {name: left[name] for name in needed if name in left}
        verify(graph, rest, file=file, left_out=builder.left_out)
        for name in needed:
            left.pop(name, None)
        graphs.append(graph)
    return graphs
