"""Patches and those beside them on the grid of their image, rows of a clip and those beside them: convolutions of each channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgellm.graph import Builder, Node, Value
from edgellm.ops._spec import Array, Faults, Inputs, OpSpec, Patches, Run, Uses, integer, vectors

TAPS = tuple((y, x) for y in (-1, 0, 1) for x in (-1, 0, 1))
BACK, COUNT, WIDTH = 9, 10, 11  # columns behind the taps, and all columns
NOWHERE = float(1 << 23)  # beyond the edge; f32 holds all whole numbers up to it


# --- neighbours -------------------------------------------------------------------------------------------------------
def neighbours(g: Builder) -> Value:
    """(T, 11), which the step brings: how many rows away each of a patch's 3 x 3 neighbours is, NOWHERE beyond the image's edge;
    how many rows back the first patch of its image is, and how many patches that has: 0 for rows that are no patches.
    """
    return g.emit("neighbours", (), WIDTH)


def merged_neighbours(g: Builder, merge: int) -> Value:
    """The same (R, 11) of the rows that squares of `merge` x `merge` patches become."""
    return g.emit("merged_neighbours", (), WIDTH, row_kind="R", merge=merge)


def distances(patches: Patches, merge: int = 0) -> Array:
    """The rows of both ops. `merge` 0: of all patches."""
    image = np.cumsum((patches.places == 0).all(axis=1)) - 1
    rows = patches.outputs if merge else np.flatnonzero(patches.places[:, 0] >= 0)
    places, image = patches.places[rows] // max(merge, 1), image[rows]
    own = np.arange(len(rows)) if merge else rows
    found = np.zeros((len(rows) if merge else len(patches.places), WIDTH), np.float32)
    found[:, :BACK] = NOWHERE
    if not len(rows):
        return found
    tall, wide = places.max(axis=0) + 3
    table = np.full((int(image.max()) + 1, tall, wide), -1, np.int64)
    table[image, places[:, 0] + 1, places[:, 1] + 1] = own
    for tap, (y, x) in enumerate(TAPS):
        other = table[image, places[:, 0] + 1 + y, places[:, 1] + 1 + x]
        found[own, tap] = np.where(other < 0, NOWHERE, other - own)
    first = table[image, 1, 1]
    found[own, BACK], found[own, COUNT] = own - first, np.bincount(image)[image]
    return found


def _check_neighbours(node: Node, inputs: Inputs, graph: object) -> Faults:
    if node.n != WIDTH:
        yield f"has {node.n} columns in place of {WIDTH}"


def _patches(run: Run) -> Patches:
    assert run.patches is not None, "a graph with images was run without any"
    return run.patches


def neighbours_in_time(g: Builder, taps: int, before: int) -> Value:
    """(T, taps), which the step brings: how many rows away each of a row's neighbours in a clip is, `before` of which come before
    it; NOWHERE beyond the clip's ends.
    """
    return g.emit("neighbours_in_time", (), taps, before=before)


def distances_in_time(rows: int, taps: int, before: int) -> Array:
    """The rows of that op. A step has one clip."""
    away = np.arange(taps) - before
    there = np.arange(rows)[:, None] + away
    found: Array = np.where((there >= 0) & (there < rows), away, NOWHERE).astype(np.float32)
    return found


def _check_time(node: Node, inputs: Inputs, graph: object) -> Faults:
    if integer(node, "before", least=0) >= node.n:
        yield f"has {node.n} neighbours, more than those before"


# --- depth_conv -------------------------------------------------------------------------------------------------------
def depth_conv(g: Builder, x: Value, beside: Value, weight: str, *, halved: bool = False) -> Value:
    """A convolution of each channel for itself, with zeros beyond edges; `weight` is the full name of its kernel: (n, 1, 3, 3), or
    (n, taps) in time.

    `halved`: of every second patch in both directions, which are the first ones of merged squares.
    """
    if halved:
        return g.emit("depth_conv_halved", (beside, x), g.n(x), (weight,), row_kind="R")
    return g.emit("depth_conv", (beside, x), g.n(x), (weight,))


def _check_conv(node: Node, inputs: Inputs, graph: object) -> Faults:
    if inputs[1].n != node.n or (inputs[0].op != "neighbours_in_time" and inputs[0].n != WIDTH):
        yield f"gives {node.n} from inputs of {[x.n for x in inputs]}"


def _conv_weights(node: Node, inputs: Inputs) -> Uses:
    return vectors(node.weights, node.n, *((inputs[0].n,) if inputs[0].op == "neighbours_in_time" else (1, 3, 3)))


def _conv(run: Run, node: Node, beside: Array, x: Array, rows: Sequence[int] | None = None) -> Array:
    kernel, at = run.weight(node.weights[0]).reshape(node.n, -1), np.arange(len(x)) if rows is None else np.asarray(rows)
    total = np.zeros((len(at), node.n), np.float32)
    for tap in range(kernel.shape[1]):
        away = beside[at, tap]
        there = away < NOWHERE
        total[there] += x[at[there] + away[there].astype(np.int64)] * kernel[:, tap]
    return total


def _conv_halved(run: Run, node: Node, beside: Array, x: Array) -> Array:
    return _conv(run, node, beside, x, _patches(run).outputs.tolist())


# --- image_mean -------------------------------------------------------------------------------------------------------
def image_mean(g: Builder, x: Value, beside: Value) -> Value:
    """For each patch the mean over all patches of its image; zeros for rows that are no patches."""
    return g.emit("image_mean", (beside, x), g.n(x))


def _mean(run: Run, node: Node, beside: Array, x: Array) -> Array:
    y = np.zeros_like(x)
    for first in np.flatnonzero((beside[:, BACK] == 0) & (beside[:, COUNT] > 0)):
        n = int(beside[first, COUNT])
        y[first : first + n] = x[first : first + n].mean(axis=0)
    return y


OPS = (
    OpSpec("neighbours", lambda run, node: distances(_patches(run)), (0,), check=_check_neighbours, rows="T"),
    OpSpec(
        "merged_neighbours",
        lambda run, node: distances(_patches(run), integer(node, "merge")),
        (0,),
        {"merge"},
        check=_check_neighbours,
        rows="R",
    ),
    OpSpec(
        "neighbours_in_time",
        lambda run, node: distances_in_time(len(_patches(run).places), node.n, integer(node, "before", least=0)),
        (0,),
        {"before"},
        check=_check_time,
        rows="T",
    ),
    OpSpec("depth_conv", _conv, (2,), check=_check_conv, weights=_conv_weights, weight_counts=(1,)),
    OpSpec("depth_conv_halved", _conv_halved, (2,), check=_check_conv, weights=_conv_weights, weight_counts=(1,), rows="R"),
    OpSpec("image_mean", _mean, (2,), check=_check_conv),
)
