"""Rows of images: patches of pixels, positions on a grid, neighbours merged into one row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt

from edgellm.graph import Builder, Graph, Node, Value
from edgellm.ops._spec import Array, OpSpec, Patches, Run, WeightUse, integer, same_length

CHANNELS = 3
Resize = Literal["corners", "antialias"]


# --- patches ----------------------------------------------------------------------------------------------------------
def pixels(g: Builder, side: int) -> Value:
    """The pixels of each patch of `side` x `side` that the step brings: (T, 3 * side * side), a colour after the other."""
    return g.emit("pixels", (), CHANNELS * side * side)


def patch_conv(g: Builder, x: Value, weight: str, n: int, bias: str | None = None) -> Value:
    """The patch convolution of pixels: their product with the kernel `weight` (n, 3, side, side). Both names are whole."""
    return g.emit("patch_conv", (x,), n, (weight,) if bias is None else (weight, bias))


def _patches(run: Run) -> Patches:
    assert run.patches is not None, "a graph with images was run without any"
    return run.patches


def _check_pixels(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    if CHANNELS * _side(node.n) ** 2 != node.n:
        yield f"cannot be square patches of {CHANNELS} colours with {node.n} values"


def _check_conv(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    if CHANNELS * _side(inputs[0].n) ** 2 != inputs[0].n:
        yield f"cannot read {inputs[0].n} values as a patch of {CHANNELS} colours"


def _side(n: int) -> int:
    return math.isqrt(n // CHANNELS)


def _conv_weights(node: Node, inputs: Sequence[Node]) -> tuple[WeightUse, ...]:
    side = _side(inputs[0].n)
    bias = (WeightUse(name, (node.n,), "vector") for name in node.weights[1:])
    return (WeightUse(node.weights[0], (node.n, CHANNELS, side, side), "matrix"), *bias)


def _conv(run: Run, node: Node, x: Array) -> Array:
    kernel = run.weight(node.weights[0])
    y: Array = x @ kernel.reshape(len(kernel), -1).T
    return y + run.weight(node.weights[1]) if len(node.weights) == 2 else y


# --- grid_embed -------------------------------------------------------------------------------------------------------
def grid_embed(g: Builder, name: str, rows: int, n: int, resize: Resize) -> Value:
    """Rows of a table of positions (side * side, n), which is resized bilinearly to the grid of each patch's image.

    "corners": corners of both grids coincide; "antialias": as Pillow resizes, where a smaller grid averages over the larger one.
    """
    return g.emit("grid_embed", (), n, (f"{name}.weight",), rows=rows, resize=resize)


@np.errstate(all="ignore")  # damaged tables give rows that are NaN, which is an error of its own
def grid_rows(table: Array, patches: Patches, resize: str) -> Array:
    """The rows (T, n) of `grid_embed`."""
    side = math.isqrt(len(table))
    square = np.asarray(table, np.float32).reshape(side, side, -1)
    rows = np.empty((len(patches.places), square.shape[2]), np.float32)
    for grid in sorted({(int(h), int(w)) for h, w in patches.grids.tolist()}):
        mine = (patches.grids == grid).all(axis=1)
        down, across = (weights_of(n, side, resize) for n in grid)
        resized = np.einsum("yi,xj,ijn->yxn", down, across, square, optimize=True)
        rows[mine] = resized[patches.places[mine, 0], patches.places[mine, 1]]
    return rows


def weights_of(n: int, side: int, resize: str) -> Array:
    """(n, side): the parts that `side` values have in each of the `n` that they are resized to."""
    if n == side:
        return np.eye(n, dtype=np.float32)
    if resize == "corners":
        at = np.linspace(0, side - 1, n, dtype=np.float32).astype(np.float64)
        distance, support = np.abs(at[:, None] - np.arange(side)), 1.0
    else:
        support = max(side / n, 1.0)
        distance = np.abs((np.arange(n)[:, None] + 0.5) * (side / n) - (np.arange(side) + 0.5))
    parts: npt.NDArray[np.float64] = np.maximum(1.0 - distance / support, 0.0)
    normal: Array = (parts / parts.sum(axis=1, keepdims=True)).astype(np.float32)
    return normal


def _check_grid(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    rows = integer(node, "rows")
    if math.isqrt(rows) ** 2 != rows or node.attrs["resize"] not in ("corners", "antialias"):
        yield f"cannot resize {rows} rows by {node.attrs['resize']}"


def _grid_weights(node: Node, inputs: Sequence[Node]) -> tuple[WeightUse, ...]:
    return (WeightUse(node.weights[0], (integer(node, "rows"), node.n), "table", active=0.0),)


def _grid(run: Run, node: Node) -> Array:
    return grid_rows(run.weight(node.weights[0]), _patches(run), str(node.attrs["resize"]))


# --- merge_rows -------------------------------------------------------------------------------------------------------
def merge_rows(g: Builder, x: Value, count: int, by: Literal["concat", "channels", "mean"] = "concat") -> Value:
    """`count` rows that follow each other as one of those that leave the encoder.

    "concat": one after the other; "channels": the first value of each, then the second of each; "mean": their mean.
    """
    return g.emit("merge_rows", (x,), g.n(x) if by == "mean" else count * g.n(x), row_kind="R", count=count, by=by)


def _check_merge(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    count = integer(node, "count")
    if node.n != inputs[0].n * (1 if node.attrs["by"] == "mean" else count):
        yield f"gives {node.n} from {count} rows of {inputs[0].n}"
    if node.attrs["by"] not in ("concat", "channels", "mean") or inputs[0].rows != "T":
        yield f"cannot merge rows {inputs[0].rows} by {node.attrs['by']}"


def _merge(run: Run, node: Node, x: Array) -> Array:
    groups = x[_patches(run).outputs[:, None] + np.arange(integer(node, "count"))]
    if node.attrs["by"] == "mean":
        y: Array = groups.mean(axis=1)
        return y
    ordered: Array = groups.swapaxes(1, 2) if node.attrs["by"] == "channels" else groups
    return ordered.reshape(len(groups), -1)


# --- project ----------------------------------------------------------------------------------------------------------
def project(g: Builder, x: Value, name: str, n: int) -> Value:
    """x @ W, with W (row length of x, n) as Gemma 3's files have it."""
    return g.emit("project", (x,), n, (f"{name}.weight",))


def _project_weights(node: Node, inputs: Sequence[Node]) -> tuple[WeightUse, ...]:
    return (WeightUse(node.weights[0], (inputs[0].n, node.n), "matrix"),)


def _any(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    """Its weight fits any length."""
    yield from ()


def _project(run: Run, node: Node, x: Array) -> Array:
    y: Array = x @ run.weight(node.weights[0])
    return y


# --- inject -----------------------------------------------------------------------------------------------------------
def inject(x: Value, n: int, level: int) -> Node:
    """x (T, n) with the vectors that the step gives for some tokens: in their place at level 0, added to them at others."""
    return Node("inject", (x,), "T", n, attrs=MappingProxyType({"level": level}))


def _check_inject(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    yield from same_length(node, inputs, graph)
    integer(node, "level", least=0)


def _inject(run: Run, node: Node, x: Array) -> Array:
    y, level = x.copy(), integer(node, "level", least=0)
    if run.given is not None:
        mine = run.given.which >= 0
        rows = run.given.rows[run.given.which[mine], level * node.n : (level + 1) * node.n]
        y[mine] = rows if level == 0 else y[mine] + rows
    return y


OPS = (
    OpSpec("inject", _inject, attrs=frozenset({"level"}), check=_check_inject),
    OpSpec("project", _project, check=_any, weights=_project_weights, weight_counts=(1,)),
    OpSpec("pixels", lambda run, node: _patches(run).pixels, (0,), check=_check_pixels, rows="T"),
    OpSpec("patch_conv", _conv, check=_check_conv, weights=_conv_weights, weight_counts=(1, 2)),
    OpSpec("grid_embed", _grid, (0,), frozenset({"rows", "resize"}), _check_grid, _grid_weights, (1,), rows="T"),
    OpSpec("merge_rows", _merge, attrs=frozenset({"count", "by"}), check=_check_merge, rows="R"),
)
