"""Rotary embedding."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from edgellm.graph import Builder, Graph, Node, RopeSpec, Value
from edgellm.ops._spec import Array, Faults, Inputs, OpSpec, Positions, Run, Uses, WeightUse, integer, same_length
from edgellm.rope import cos_sin, frequencies


def rope(g: Builder, x: Value, spec: RopeSpec, heads: int) -> Value:
    """Every head of x rotated by its token's position."""
    return g.emit("rope", (x,), g.n(x), rope=spec, heads=heads, positions="true")


def at_sink_positions(node: Node) -> Node | None:
    """The same rotation by a query's position relative to the keys of sinks; None for other ops."""
    if node.op != "rope":
        return None
    return replace(node, attrs=MappingProxyType({**node.attrs, "positions": "sink"}))


def _check_rope(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    yield from same_length(node, inputs, graph)
    spec, heads = node.attrs["rope"], integer(node, "heads")
    if not isinstance(spec, RopeSpec) or node.n % heads:
        yield f"cannot split {node.n} into {heads} heads"
    elif spec.n_rot % 2 or not 0 < spec.n_rot <= node.n // heads:
        yield f"cannot rotate {spec.n_rot} of {node.n // heads} dims"
    elif spec.style == "axial" and (spec.n_rot % 4 or spec.n_rot != node.n // heads):
        yield f"cannot rotate halves of {spec.n_rot} of {node.n // heads} dims"
    elif any(len(each) not in (0, spec.n_rot // 2) for each in (spec.axes, spec.powers)):
        yield f"cannot rotate {spec.n_rot // 2} pairs by {len(spec.axes)} axes and {len(spec.powers)} powers"
    if node.attrs["positions"] not in ("true", "sink"):
        yield f"has no positions {node.attrs['positions']}"


def _rope_weights(node: Node, inputs: Inputs) -> Uses:
    spec = node.attrs["rope"]
    if not isinstance(spec, RopeSpec) or spec.factors is None:
        return ()
    return (WeightUse(spec.factors, (spec.n_factors or spec.n_rot // 2,), "vector", active=0.0),)  # read when tables are made


def _rope(run: Run, node: Node, x: Array) -> Array:
    """Nothing is ever evicted in the reference, so queries stand at the same place for sinks and for the window."""
    spec = node.attrs["rope"]
    by_axes = isinstance(spec, RopeSpec) and spec.axes and run.coordinates is not None
    return rotate(run, node, x, run.coordinates if by_axes and run.coordinates is not None else run.positions)


def rotate(run: Run, node: Node, x: Array, positions: Positions) -> Array:
    """Heads of x (T, n) turned as the rope node says, for tokens at `positions` (T,) or (T, axes)."""
    spec = node.attrs["rope"]
    assert isinstance(spec, RopeSpec)
    cos, sin = cos_sin(spec, positions, *frequencies(spec, None if spec.factors is None else run.weight(spec.factors)))
    heads = x.reshape(len(x), integer(node, "heads"), -1)
    return turn(heads, spec, cos[:, None], sin[:, None]).reshape(x.shape)


def turn(x: Array, spec: RopeSpec, cos: Array, sin: Array) -> Array:
    """x (..., head_dim) with its first n_rot dims rotated pair by pair; cos and sin broadcast to (..., n_rot/2)."""
    y, half = np.broadcast_to(x, (*np.broadcast_shapes(x.shape[:-1], cos.shape[:-1]), x.shape[-1])).copy(), spec.n_rot // 2
    if spec.style == "axial":
        quarter, plain = half // 2, replace(spec, n_rot=half, style="neox")
        y[..., :half] = turn(x[..., :half], plain, cos[..., :quarter], sin[..., :quarter])
        y[..., half:] = turn(x[..., half:], plain, cos[..., quarter:], sin[..., quarter:])
        return y
    a, b = slice(0, spec.n_rot, 2), slice(1, spec.n_rot, 2)
    if spec.style == "neox":
        a, b = slice(0, half), slice(half, spec.n_rot)
    y[..., a] = x[..., a] * cos - x[..., b] * sin
    y[..., b] = x[..., a] * sin + x[..., b] * cos
    return y


# --- angles -----------------------------------------------------------------------------------------------------------
def angles(g: Builder, spec: RopeSpec) -> Value:
    """Rows (T, n_rot) of pairs (0, 1), rotated. The product of one at j and of a row x, rotated, at i is the sum over pairs
    x_2k sin((i - j) w_k) + x_2k+1 cos((i - j) w_k): so that rows of sines and cosines of distances are attended to as keys are.
    """
    return g.emit("angles", (), spec.n_rot, rope=spec, heads=1, positions="true")


def pairs_of_one(spec: RopeSpec) -> Array:
    """(1, n_rot) pairs (0, 1)."""
    row, half = np.zeros((1, spec.n_rot), np.float32), spec.n_rot // 2
    row[:, slice(half, None) if spec.style == "neox" else slice(1, None, 2)] = 1
    return row


def angle_rows(node: Node, rows: int) -> Array:
    """The rows of the op."""
    spec = node.attrs["rope"]
    assert isinstance(spec, RopeSpec)
    return turn(pairs_of_one(spec), spec, *cos_sin(spec, np.arange(rows), *frequencies(spec)))


def _check_angles(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    spec = node.attrs["rope"]
    if not isinstance(spec, RopeSpec) or spec.style == "axial" or spec.n_rot != node.n or spec.n_rot % 2:
        yield f"cannot give {node.n} angles"


OPS = (
    OpSpec(
        "angles",
        lambda run, node: angle_rows(node, len(run.positions)),
        (0,),
        {"rope", "heads", "positions"},
        _check_angles,
        rows="T",
    ),
    OpSpec("rope", _rope, attrs={"rope", "heads", "positions"}, check=_check_rope, weights=_rope_weights),
)
