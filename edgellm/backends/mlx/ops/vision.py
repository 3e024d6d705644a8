"""How MLX evaluates the rows of images: pixels and positions that a step brings, the patch convolution, merged rows."""

from __future__ import annotations

from typing import cast

import mlx.core as mx
import numpy as np

from edgellm.backends.mlx.inputs import Array, Inputs, MlxWeights
from edgellm.backends.mlx.ops._table import op
from edgellm.backends.mlx.ops.dense import matmul, within_f16
from edgellm.graph import Node
from edgellm.ops._spec import Patches
from edgellm.ops.neighbours import BACK, COUNT, NOWHERE, distances, distances_in_time
from edgellm.ops.places import is_inside, mark_rows, marks_width, place_rows, relative_rows
from edgellm.ops.rope import angle_rows
from edgellm.ops.vision import grid_rows, query_rows


def _patches(inputs: Inputs) -> Patches:
    assert inputs.patches is not None
    return inputs.patches


@op("pixels")
def pixels(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return mx.array(_patches(inputs).pixels)


@op("grid_embed")
def grid_embed(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    table, *vectors = node.weights
    held = (weights.tables[table], *(np.array(weights.vectors[name]) for name in vectors))
    return mx.array(grid_rows(_patches(inputs), cast(str, node.attrs["resize"]), cast(str, node.attrs["class_at"]), *held))


@op("sized_queries")
def sized_queries(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    counts = cast(tuple[int, ...], node.attrs["counts"])
    return mx.array(query_rows(_patches(inputs), counts, *(weights.tables[name] for name in node.weights)))


@op("patch_conv")
def patch_conv(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    """A product: the kernel of an output channel is a row."""
    return matmul(weights, inputs, node, x)


@op("project")
def project(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    matrix, heads = weights.matrices[node.weights[0]], cast(int, node.attrs["heads"])
    if heads == 1:
        return within_f16(weights, node, matrix, x[0], matrix)
    own = matrix.arrays[0].reshape(node.n // heads, heads, -1).astype(mx.float32)
    return mx.einsum("thk,nhk->thn", x[0].reshape(len(x[0]), heads, -1), own).reshape(-1, node.n)


@op("merge_rows")
def merge_rows(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    firsts = mx.arange(len(x[0])) if inputs.output_rows is None else inputs.output_rows
    groups = x[0][firsts[:, None] + mx.arange(cast(int, node.attrs["count"]))]
    if node.attrs["by"] == "mean":
        return groups.mean(axis=1)
    return (groups.swapaxes(1, 2) if node.attrs["by"] == "channels" else groups).reshape(len(groups), -1)


@op("merged_neighbours")
@op("neighbours")
def neighbours(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return mx.array(distances(_patches(inputs), cast(int, node.attrs.get("merge", 0))))


@op("neighbours_in_time")
def neighbours_in_time(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return mx.array(distances_in_time(len(_patches(inputs).places), node.n, cast(int, node.attrs["before"])))


@op("angles")
def angles(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return mx.array(angle_rows(node, len(_patches(inputs).places)))


@op("depth_conv_halved")
@op("depth_conv")
def depth_conv(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    taps, rows = weights.vectors[node.weights[0]].reshape(node.n, -1), mx.arange(len(x[1]))
    if node.op == "depth_conv_halved" and inputs.output_rows is not None:
        rows = inputs.output_rows
    total = mx.zeros((len(rows), node.n))
    for tap in range(taps.shape[1]):
        away = x[0][rows, tap]
        there = away < NOWHERE
        other = x[1][rows + mx.where(there, away, 0).astype(mx.int32)]
        total = total + mx.where(there[:, None], other, 0) * taps[:, tap]
    return total


@op("image_mean")
def image_mean(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    counts = x[0][:, COUNT]
    mine = (counts > 0)[:, None]
    first = mx.where(counts > 0, mx.arange(len(counts)) - x[0][:, BACK].astype(mx.int32), 0)
    sums = mx.zeros(x[1].shape).at[first].add(mx.where(mine, x[1], 0))
    return mx.where(mine, sums[first] / mx.maximum(counts, 1)[:, None], 0)


@op("inside")
def inside(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    return mx.array(is_inside(_patches(inputs)))


@op("place_marks")
@op("places")
def places(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    rows = place_rows if node.op == "places" else mark_rows
    return mx.array(rows(_patches(inputs), cast(tuple[int, ...], node.attrs["sides"]), cast(bool, node.attrs["window"])))


@op("place_scores")
def place_scores(weights: MlxWeights, inputs: Inputs, node: Node, x: list[Array]) -> Array:
    """Products with all distances, of which each row takes those that it sees."""
    (q, at), heads, sides = x, cast(int, node.attrs["heads"]), cast(tuple[int, ...], node.attrs["sides"])
    q, side, columns = q.reshape(len(q), heads, -1) / cast(float, node.attrs["scale"]), at[:, 2:3], mx.arange(max(sides))
    found = []
    for axis, name in enumerate(node.weights):
        products = q @ mx.array(relative_rows(weights.tables[name], sides)).T
        rows = at[:, 3:4] + at[:, axis : axis + 1] + side - 1 - columns
        there = (columns < side)[:, None]
        picked = mx.where(columns < side, rows, 0).astype(mx.int32)[:, None]
        shape = (len(q), heads, len(columns))
        found.append(mx.where(there, mx.take_along_axis(products, mx.broadcast_to(picked, shape), axis=2), 0))
    rest = mx.zeros((len(q), heads, marks_width(sides) - 2 * max(sides)))
    rest[..., -1] = 1
    return mx.concatenate([*found, rest], axis=2).reshape(len(q), -1)
