"""Rows of images and clips: pixels or features that a step brings, positions, neighbours merged into one row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from edgellm.graph import Builder, Graph, Node, Value
from edgellm.ops._spec import Array, OpSpec, Patches, Run, WeightUse, integer, same_length, vectors

CHANNELS = 3
Resize = Literal["corners", "antialias", "bilinear", "bicubic", "smooth_bicubic", "axes", "buckets", "waves", "rows"]
ClassPlace = Literal["first", "last"]
WAVE_BASE = 10000.0  # of positions that are computed
MergeBy = Literal["concat", "channels", "mean"]
CLASS = "v.class_embd"


# --- patches ----------------------------------------------------------------------------------------------------------
def pixels(g: Builder, side: int) -> Value:
    """The pixels of each patch of `side` x `side` that the step brings: (T, 3 * side * side), a colour after the other."""
    return g.emit("pixels", (), CHANNELS * side * side)


def features(g: Builder, n: int) -> Value:
    """The `n` values of each row of a clip that the step brings: (T, n)."""
    return g.emit("pixels", (), n)


def patch_conv(g: Builder, x: Value, weight: str, n: int, bias: str | None = None, channels: int = CHANNELS) -> Value:
    """The convolution of squares, whose channels follow each other in rows of x: their product with the kernel `weight`
    (n, channels, side, side). Both names are whole.
    """
    return g.emit("patch_conv", (x,), n, (weight,) if bias is None else (weight, bias), channels=channels)


def _patches(run: Run) -> Patches:
    assert run.patches is not None, "a graph with images was run without any"
    return run.patches


def _check_conv(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    channels = integer(node, "channels")
    if channels * _side(inputs[0].n, channels) ** 2 != inputs[0].n:
        yield f"cannot read {inputs[0].n} values as a square of {channels} channels"


def _side(n: int, channels: int = CHANNELS) -> int:
    return math.isqrt(n // channels)


def _conv_weights(node: Node, inputs: Sequence[Node]) -> tuple[WeightUse, ...]:
    channels = integer(node, "channels")
    side = _side(inputs[0].n, channels)
    return (WeightUse(node.weights[0], (node.n, channels, side, side), "matrix"), *vectors(node.weights[1:], node.n))


def _conv(run: Run, node: Node, x: Array) -> Array:
    kernel = run.weight(node.weights[0])
    y: Array = x @ kernel.reshape(len(kernel), -1).T
    return y + run.weight(node.weights[1]) if len(node.weights) == 2 else y


# --- grid_embed -------------------------------------------------------------------------------------------------------
def grid_embed(g: Builder, name: str, rows: int, n: int, resize: Resize, *, class_at: ClassPlace | None = None) -> Value:
    """Rows of a table of positions (side * side, n), which is resized to the grid of each patch's image.

    "corners": bilinearly, so that corners of both grids coincide; "bilinear" and "bicubic": so that edges do, as PyTorch resizes;
    "antialias" and "smooth_bicubic": as Pillow does, where a smaller grid averages over the larger one. "axes": the table
    (2, rows, n) has rows for columns, then for rows of patches, and the two are added. "buckets": each place has the row of the
    part of the table that it lies in. "rows": a clip's place is the number of its row.

    `class_at`: the table has a row more, at its beginning or end, for the row at the place (-1, -1): that of the class token, which
    gets the vector v.class_embd instead of pixels. What the convolution adds to no pixels, its bias, is taken from it again.
    """
    bias = ("v.patch_embd.bias",) if "v.patch_embd.bias" in g.tensors else ()
    more = () if class_at is None else (CLASS, *bias)
    return g.emit("grid_embed", (), n, (f"{name}.weight", *more), rows=rows, resize=resize, class_at=class_at or "")


def query_embed(g: Builder, table: str, rows: int, n: int) -> Value:
    """For queries the rows of `table` (rows, n), given by its full name; for patches the sines and cosines of column and row."""
    return g.emit("grid_embed", (), n, (table,), rows=rows, resize="waves", class_at="")


def sized_queries(g: Builder, tables: tuple[str, ...], counts: tuple[int, ...], n: int) -> Value:
    """For queries the rows of the table, given by its full name, that has as many as their image's grid; zeros for patches."""
    return g.emit("sized_queries", (), n, tables, counts=counts)


def query_rows(patches: Patches, counts: Sequence[int], *tables: Array) -> Array:
    """The rows (T, n) of `sized_queries`."""
    rows, queries = np.zeros((len(patches.places), tables[0].shape[1]), np.float32), patches.places[:, 0] < 0
    for count, table in zip(counts, tables, strict=True):
        mine = queries & (patches.grids.prod(axis=1) == count)
        rows[mine] = table[-1 - patches.places[mine, 1]]
    return rows


def _check_queries(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    counts = node.attrs["counts"]
    if not isinstance(counts, tuple) or len(counts) != len(node.weights):
        yield f"has {len(node.weights)} tables for {counts} queries"


def _query_weights(node: Node, inputs: Sequence[Node]) -> tuple[WeightUse, ...]:
    counts = node.attrs["counts"]
    assert isinstance(counts, tuple)
    return tuple(WeightUse(name, (n, node.n), "table", active=0.0) for name, n in zip(node.weights, counts, strict=True))


def _queries(run: Run, node: Node) -> Array:
    counts = node.attrs["counts"]
    assert isinstance(counts, tuple)
    return query_rows(_patches(run), counts, *map(run.weight, node.weights))


@np.errstate(all="ignore")  # damaged tables give rows that are NaN, which is an error of its own
def grid_rows(patches: Patches, resize: str, class_at: str, table: Array, *vectors: Array) -> Array:
    """The rows (T, n) of `grid_embed`. `vectors`: that of the class token, and the convolution's bias."""
    places, table = patches.places, np.asarray(table, np.float32)
    if resize == "axes":
        across, down = (table[axis][np.minimum(places[:, 1 - axis], table.shape[1] - 1)] for axis in (0, 1))
        added: Array = across + down
        return added
    if resize == "waves":
        return _waves(places, table)
    if resize == "rows":
        return table[np.minimum(places[:, 0], len(table) - 1)]
    rows = np.zeros((len(places), table.shape[-1]), np.float32)
    if class_at:
        own, table = (table[0], table[1:]) if class_at == "first" else (table[-1], table[:-1])
        rows[places[:, 0] < 0] = own + vectors[0] - (vectors[1] if len(vectors) > 1 else np.float32(0))
    side = math.isqrt(len(table))
    square = table.reshape(side, side, -1)
    for grid in sorted({(int(h), int(w)) for h, w in patches.grids.tolist()}):
        mine = (patches.grids == grid).all(axis=1) & (places[:, 0] >= 0)
        down, across = (weights_of(n, side, resize) for n in grid)
        resized = np.einsum("yi,xj,ijn->yxn", down, across, square, optimize=True)
        rows[mine] = resized[places[mine, 0], places[mine, 1]]
    return rows


def _waves(places: npt.NDArray[np.int64], table: Array) -> Array:
    """As MiniCPM-V's resampler has them (its get_2d_sincos_pos_embed)."""
    quarter = table.shape[-1] // 4
    turns = np.float32(1) / np.float32(WAVE_BASE) ** (np.arange(quarter, dtype=np.float32) / np.float32(quarter))
    across, down = (places[:, axis, None].astype(np.float32) * turns for axis in (1, 0))
    rows: Array = np.concatenate([np.sin(across), np.cos(across), np.sin(down), np.cos(down)], axis=1)
    queries = places[:, 0] < 0
    rows[queries] = table[-1 - places[queries, 1]]
    return rows


def weights_of(n: int, side: int, resize: str) -> Array:
    """(n, side): the parts that `side` values have in each of the `n` that they are resized to."""
    if n == side:
        return np.eye(n, dtype=np.float32)
    if resize == "buckets":
        return np.eye(side, dtype=np.float32)[np.arange(n) * side // n]
    if resize == "corners":
        at = np.linspace(0, side - 1, n, dtype=np.float32).astype(np.float64)
    else:
        at = ((np.arange(n) + 0.5) * (side / n) - 0.5).astype(np.float64)
    if resize == "bicubic":
        return _clamped_cubic(at, side)
    support = max(side / n, 1.0) if resize in ("antialias", "smooth_bicubic") else 1.0
    if resize == "bilinear":
        at = np.clip(at, 0.0, side - 1.0)
    away = np.abs(at[:, None] - np.arange(side)) / support
    parts: npt.NDArray[np.float64] = _cubic(away, -0.5) if resize == "smooth_bicubic" else np.maximum(1.0 - away, 0.0)
    normal: Array = (parts / parts.sum(axis=1, keepdims=True)).astype(np.float32)
    return normal


def _clamped_cubic(at: npt.NDArray[np.float64], side: int) -> Array:
    """PyTorch's bicubic weights; values beyond the edges are those at them."""
    found, first = np.zeros((len(at), side), np.float32), np.floor(at).astype(int)
    for tap in (-1, 0, 1, 2):
        np.add.at(found, (np.arange(len(at)), np.clip(first + tap, 0, side - 1)), _cubic(np.abs(at - first - tap), -0.75))
    return found


def _cubic(x: npt.NDArray[np.float64], a: float) -> npt.NDArray[np.float64]:
    """Keys' cubic at distances x: with a = -0.75 as PyTorch has it, with -0.5 as Pillow has it."""
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _check_grid(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    rows, resize = integer(node, "rows"), node.attrs["resize"]
    if resize not in get_args(Resize) or (resize not in ("axes", "waves", "rows") and math.isqrt(rows) ** 2 != rows):
        yield f"cannot resize {rows} rows by {resize}"
    if resize == "waves" and node.n % 4:
        yield f"cannot have sines and cosines of both coordinates in {node.n} values"
    if node.attrs["class_at"] not in ("", "first", "last") or bool(node.attrs["class_at"]) != (len(node.weights) > 1):
        yield f"cannot have a class token at '{node.attrs['class_at']}' of {len(node.weights)} weights"


def _grid_weights(node: Node, inputs: Sequence[Node]) -> tuple[WeightUse, ...]:
    rows = integer(node, "rows") + bool(node.attrs["class_at"])
    shape = (2, rows, node.n) if node.attrs["resize"] == "axes" else (rows, node.n)
    return (WeightUse(node.weights[0], shape, "table", active=0.0), *vectors(node.weights[1:], node.n))


def _grid(run: Run, node: Node) -> Array:
    return grid_rows(_patches(run), str(node.attrs["resize"]), str(node.attrs["class_at"]), *map(run.weight, node.weights))


# --- merge_rows -------------------------------------------------------------------------------------------------------
def merge_rows(g: Builder, x: Value, count: int, by: MergeBy = "concat") -> Value:
    """`count` rows that follow each other as one of those that leave the encoder.

    "concat": one after the other; "channels": the first value of each, then the second of each; "mean": their mean.
    """
    return g.emit("merge_rows", (x,), g.n(x) if by == "mean" else count * g.n(x), row_kind="R", count=count, by=by)


def _check_merge(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    count = integer(node, "count")
    if node.n != inputs[0].n * (1 if node.attrs["by"] == "mean" else count):
        yield f"gives {node.n} from {count} rows of {inputs[0].n}"
    if node.attrs["by"] not in get_args(MergeBy) or inputs[0].rows != "T":
        yield f"cannot merge rows {inputs[0].rows} by {node.attrs['by']}"


def _merge(run: Run, node: Node, x: Array) -> Array:
    groups = x[_patches(run).outputs[:, None] + np.arange(integer(node, "count"))]
    if node.attrs["by"] == "mean":
        y: Array = groups.mean(axis=1)
        return y
    ordered: Array = groups.swapaxes(1, 2) if node.attrs["by"] == "channels" else groups
    return ordered.reshape(len(groups), -1)


# --- project ----------------------------------------------------------------------------------------------------------
def project(g: Builder, x: Value, name: str, n: int, heads: int = 1) -> Value:
    """x @ W, with W (row length of x, n) as Gemma 3's files have it; of `heads` pieces of a row each by its own rows of W, side by
    side: (T, heads * n).
    """
    return g.emit("project", (x,), heads * n, (f"{name}.weight",), heads=heads)


def _check_project(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    heads = integer(node, "heads")
    if node.n % heads or inputs[0].n % heads:
        yield f"cannot split {inputs[0].n} and {node.n} into {heads} heads"


def _project_weights(node: Node, inputs: Sequence[Node]) -> tuple[WeightUse, ...]:
    return (WeightUse(node.weights[0], (inputs[0].n, node.n // integer(node, "heads")), "transposed"),)


def _any(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    """Any length is right."""
    yield from ()


def _project(run: Run, node: Node, x: Array) -> Array:
    heads = integer(node, "heads")
    weight = run.weight(node.weights[0]).reshape(heads, -1, node.n // heads)
    y: Array = np.einsum("thk,hkn->thn", x.reshape(len(x), heads, -1), weight, optimize=True).reshape(len(x), -1)
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
    OpSpec("inject", _inject, attrs={"level"}, check=_check_inject),
    OpSpec("project", _project, attrs={"heads"}, check=_check_project, weights=_project_weights, weight_counts=(1,)),
    OpSpec("pixels", lambda run, node: _patches(run).pixels, (0,), check=_any, rows="T"),
    OpSpec("patch_conv", _conv, attrs={"channels"}, check=_check_conv, weights=_conv_weights, weight_counts=(1, 2)),
    OpSpec("grid_embed", _grid, (0,), {"rows", "resize", "class_at"}, _check_grid, _grid_weights, (1, 2, 3), rows="T"),
    OpSpec("sized_queries", _queries, (0,), {"counts"}, _check_queries, _query_weights, (1, 2), rows="T"),
    OpSpec("merge_rows", _merge, attrs={"count", "by"}, check=_check_merge, rows="R"),
)
