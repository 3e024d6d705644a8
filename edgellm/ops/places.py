"""Relative positions of patches by row and by column (ViTDet, SAM): scores of a query for rows and columns, which keys pick."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgellm.graph import Builder, Node, Value
from edgellm.ops._spec import Array, Faults, Inputs, OpSpec, Patches, Positions, Run, Uses, WeightUse, integer
from edgellm.ops.vision import weights_of

PLACE = 4  # columns of `places`
NEVER = -1e9  # the score of rows that are no patches, for those of the whole image


# --- what a step brings -----------------------------------------------------------------------------------------------
def inside(g: Builder) -> Value:
    """(T, 1): 1 for patches, 0 for the rows that fill windows up."""
    return g.emit("inside", (), 1)


def places(g: Builder, sides: tuple[int, ...], window: bool) -> Value:
    """(T, 4): a patch's row and column on the grid of its image, or in its window of `sides[0]` patches; that grid's side, which is
    one of `sides`; and the first row of that side in the tables of `place_scores`.
    """
    return g.emit("places", (), PLACE, sides=sides, window=window)


def place_marks(g: Builder, sides: tuple[int, ...], window: bool) -> Value:
    """(T, n): 1 at a key's row and, behind the rows, at its column, which pick from a query's `place_scores`. Where a query sees
    all of its image, NEVER at the last one for rows that are no patches.
    """
    return g.emit("place_marks", (), marks_width(sides), sides=sides, window=window)


def marks_width(sides: Sequence[int]) -> int:
    """Rows, columns and one more, in whole vectors of 8."""
    return -(-(2 * max(sides) + 1) // 8) * 8


def is_inside(patches: Patches) -> Array:
    return (patches.places[:, :1] >= 0).astype(np.float32)


def place_rows(patches: Patches, sides: Sequence[int], window: bool) -> Array:
    """The rows of `places`."""
    found = np.zeros((len(patches.places), PLACE), np.float32)
    found[:, :2], found[:, 2] = _at(patches, sides, window), sides[0] if window else patches.grids[:, 0]
    if not window:
        found[:, 3] = _firsts(sides)[np.searchsorted(-np.array(sides), -patches.grids[:, 0])]
    return found


def mark_rows(patches: Patches, sides: Sequence[int], window: bool) -> Array:
    """The rows of `place_marks`."""
    found, rows, side = np.zeros((len(patches.places), marks_width(sides)), np.float32), np.arange(len(patches.places)), max(sides)
    down, across = _at(patches, sides, window).T
    found[rows, down] = found[rows, side + across] = 1
    if not window:
        found[:, -1] = np.where(patches.places[:, 0] < 0, np.float32(NEVER), np.float32(0))
    return found


def _at(patches: Patches, sides: Sequence[int], window: bool) -> Positions:
    """Rows and columns; (-1 - row, -1 - column) is the place of a row that fills a window up."""
    own = patches.places[:, :1] >= 0
    if window:
        return np.where(own, patches.places, -1 - patches.places) % sides[0]
    return np.where(own, patches.places, 0)


def _check_brought(node: Node, inputs: Inputs, graph: object) -> Faults:
    sides, n = node.attrs["sides"], PLACE if node.op == "places" else 0
    if not isinstance(sides, tuple) or not sides or list(sides) != sorted(set(sides), reverse=True) or sides[-1] < 1:
        yield f"cannot have grids of {sides} patches on a side"
    elif node.n != (n or marks_width(sides)):
        yield f"has {node.n} columns"


def _check_inside(node: Node, inputs: Inputs, graph: object) -> Faults:
    if node.n != 1:
        yield f"has {node.n} columns in place of 1"


def _sides(node: Node) -> tuple[tuple[int, ...], bool]:
    sides = node.attrs["sides"]
    assert isinstance(sides, tuple)
    return sides, bool(node.attrs["window"])


def _places(run: Run, node: Node) -> Array:
    return place_rows(_patches(run), *_sides(node))


def _marks(run: Run, node: Node) -> Array:
    return mark_rows(_patches(run), *_sides(node))


def _patches(run: Run) -> Patches:
    assert run.patches is not None, "a graph with images was run without any"
    return run.patches


# --- place_scores -----------------------------------------------------------------------------------------------------
def place_scores(g: Builder, q: Value, at: Value, name: str, heads: int, scale: float, sides: tuple[int, ...]) -> Value:
    """For each head of q (T, heads * d), at a place of `at`, its products with the relative positions of each row and each column
    of the grid, divided by `scale`, which attention multiplies them by, and a 1 at the end: (T, heads * marks_width).

    The weights `name`_h and `name`_w (2 * side - 1, d) are for keys from the furthest behind a query to the furthest before it, and
    are resized to the grids of other sides.
    """
    tables = (f"{name}_h.weight", f"{name}_w.weight")
    return g.emit("place_scores", (q, at), heads * marks_width(sides), tables, heads=heads, scale=scale, sides=sides)


def relative_rows(table: Array, sides: Sequence[int]) -> Array:
    """The rows (2 * side - 1, d) of each side, one after the other."""
    return np.concatenate([weights_of(2 * side - 1, len(table), "bilinear") @ table for side in sides]).astype(np.float32)


def _firsts(sides: Sequence[int]) -> Positions:
    return np.cumsum([0, *(2 * side - 1 for side in sides[:-1])])


def _check_scores(node: Node, inputs: Inputs, graph: object) -> Faults:
    heads, sides = integer(node, "heads"), node.attrs["sides"]
    if inputs[1].op != "places" or inputs[1].attrs["sides"] != sides or not isinstance(sides, tuple):
        yield f"has no places of {sides}"
    elif inputs[0].n % heads or node.n != heads * marks_width(sides):
        yield f"cannot give {node.n} from {heads} heads of {inputs[0].n}"


def _score_weights(node: Node, inputs: Inputs) -> Uses:
    sides = node.attrs["sides"]
    assert isinstance(sides, tuple)
    shape = (2 * sides[0] - 1, inputs[0].n // integer(node, "heads"))
    return tuple(WeightUse(name, shape, "table", active=0.0) for name in node.weights)


def _scores(run: Run, node: Node, q: Array, at: Array) -> Array:
    heads, sides, scale = integer(node, "heads"), node.attrs["sides"], node.attrs["scale"]
    assert isinstance(sides, tuple) and isinstance(scale, float)
    x, largest = q.reshape(len(q), heads, -1) * np.float32(1 / scale), max(sides)
    found = np.zeros((len(q), heads, marks_width(sides)), np.float32)
    for axis, name in enumerate(node.weights):
        products = x @ relative_rows(run.weight(name), sides).T  # (T, heads, distances of all sides)
        for side in {int(each) for each in at[:, 2]}:
            mine = np.flatnonzero(at[:, 2] == side)
            rows = (at[mine, 3] + at[mine, axis]).astype(np.int64)[:, None] + np.arange(side - 1, -1, -1)
            columns = slice(axis * largest, axis * largest + side)
            found[mine, :, columns] = np.take_along_axis(products[mine], rows[:, None], axis=2)
    found[..., -1] = 1
    return found.reshape(len(q), -1)


OPS = (
    OpSpec("inside", lambda run, node: is_inside(_patches(run)), (0,), check=_check_inside, rows="T"),
    OpSpec("places", _places, (0,), {"sides", "window"}, _check_brought, rows="T"),
    OpSpec("place_marks", _marks, (0,), {"sides", "window"}, _check_brought, rows="T"),
    OpSpec("place_scores", _scores, (2,), {"heads", "scale", "sides"}, _check_scores, _score_weights, (2,)),
)
