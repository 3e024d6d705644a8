"""Ops of image encoders: pixels and positions that a step brings, the patch convolution, merged rows."""

from __future__ import annotations

from typing import cast

import numpy as np

from edgellm.backends.cpu.ops._table import count_word, emitter, float_word, integer, scratch_of, traits_of
from edgellm.backends.cpu.ops.dense import MATMUL, matmul
from edgellm.backends.cpu.ops.heads import head_products
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.record import Record, Signature
from edgellm.backends.cpu.traits import TRAITS, scratch_bytes
from edgellm.errors import Unsupported
from edgellm.formats.ggml_types import TYPES_BY_NAME, row_bytes
from edgellm.graph import Node
from edgellm.ops.neighbours import distances, distances_in_time
from edgellm.ops.places import is_inside, mark_rows, marks_width, place_rows, relative_rows
from edgellm.ops.rope import angle_rows
from edgellm.ops.vision import grid_rows, query_rows

# `which`: i32, the vector that a row is, or -1; `rows`: the address of the first vector, and bytes from one to the next.
INJECT = Signature("x x_stride out out_stride which rows n")
# `first`: i32, the first of the `rows` rows that become one; `n`: their length.
MERGE = Signature("x x_stride out out_stride first rows n")
# `first`: i32, the row of x that a row is at, or 0 where it is at its own; `taps` (n_taps, n): f32; `count`: of the rows that are
# given.
NEIGHBOURS = Signature("beside beside_stride x x_stride out out_stride first taps n_taps n count")
# `at`: of `places`; `tables`: f32, the rows (dim) of relative positions for rows of patches, those for columns `table_bytes` behind
# them; `side`: the largest one; `width`: what each head becomes.
PLACES = Signature("x x_stride at at_stride out out_stride tables table_bytes heads dim side width scale count")


@emitter("pixels")
def pixels(plan: PlanBuilder, index: int, node: Node) -> None:
    plan.brought(index, lambda patches: patches.pixels)


@emitter("grid_embed")
def grid_embed(plan: PlanBuilder, index: int, node: Node) -> None:
    tables = [plan.weights[name].array().astype(np.float32) for name in node.weights]
    resize, class_at = cast(str, node.attrs["resize"]), cast(str, node.attrs["class_at"])
    plan.brought(index, lambda patches: grid_rows(patches, resize, class_at, *tables))


@emitter("sized_queries")
def sized_queries(plan: PlanBuilder, index: int, node: Node) -> None:
    tables = [plan.weights[name].array().astype(np.float32) for name in node.weights]
    counts = cast(tuple[int, ...], node.attrs["counts"])
    plan.brought(index, lambda patches: query_rows(patches, counts, *tables))


@emitter("patch_conv")
def patch_conv(plan: PlanBuilder, index: int, node: Node) -> None:
    """A product: the kernel of an output channel is a row."""
    weight = plan.weights[node.weights[0]]
    if traits_of(weight).quantise:
        raise Unsupported(
            f"is a patch convolution in {weight.type.name}; it must be F32, F16 or BF16", file=weight.file, field=weight.name
        )
    matmul(plan, index, node)


@emitter("project")
def project(plan: PlanBuilder, index: int, node: Node) -> None:
    """A product with a copy of the weight that has a row for each output."""
    x, kind, heads = plan.values[node.inputs[0]], TYPES_BY_NAME["F32"], integer(node, "heads")
    own = plan.weights[node.weights[0]].array().reshape(heads, x.n // heads, node.n // heads)
    weights = plan.keep(np.ascontiguousarray(own.swapaxes(1, 2), np.float32))
    if heads > 1:
        head_products(plan, index, node, kind, weights, (heads, node.n // heads, x.n // heads), x, x.stride, x.n // heads * 4)
        return
    out, one_row, kernel = plan.output(index), row_bytes(kind, x.n), TRAITS[kind.name].matmul
    plan.add(
        Record(
            kernel,
            MATMUL(
                weights=weights,
                row_bytes=one_row,
                n=node.n,
                k=x.n,
                x=x,
                out=out,
                bias=0,
                residual=None,
                act=0,
                count=count_word(node),
                scratch=scratch_of(plan, scratch_bytes(kind.name, x.n)),
                full_tiles=0,
            ),
            reads_all=(x,),
            writes=(out,),
            pieces=node.n,
            by_columns=kernel.partition(":")[0],
            weight_rows=node.n,
            weight_bytes=node.n * one_row,
            weights=weights,
        )
    )


@emitter("inject")
def inject(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out, level = plan.values[node.inputs[0]], plan.output(index), integer(node, "level")
    which, rows = plan.step.vectors(node.n, level)
    arguments = INJECT(x=x, out=out, which=which.ctypes.data, rows=rows.ctypes.data, n=node.n)
    plan.add(Record("inject:add" if level else "inject:replace", arguments, reads_all=(x,), writes=(out,)))


@emitter("merge_rows")
def merge_rows(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out = plan.values[node.inputs[0]], plan.output(index)
    arguments = MERGE(x=x, out=out, first=plan.step.output_rows.ctypes.data, rows=integer(node, "count"), n=x.n)
    plan.add(Record(f"merge:{node.attrs['by']}", arguments, reads_all=(x,), writes=(out,)))


@emitter("angles")
def angles(plan: PlanBuilder, index: int, node: Node) -> None:
    plan.brought(index, lambda patches: angle_rows(node, len(patches.places)))


@emitter("neighbours_in_time")
def neighbours_in_time(plan: PlanBuilder, index: int, node: Node) -> None:
    before = integer(node, "before")
    plan.brought(index, lambda patches: distances_in_time(len(patches.places), node.n, before))


@emitter("neighbours", "merged_neighbours")
def neighbours(plan: PlanBuilder, index: int, node: Node) -> None:
    merge = integer(node, "merge") if node.attrs else 0
    plan.brought(index, lambda patches: distances(patches, merge))


@emitter("depth_conv", "depth_conv_halved", "image_mean")
def beside(plan: PlanBuilder, index: int, node: Node) -> None:
    distance, x = (plan.values[value] for value in node.inputs)
    out = plan.output(index)
    halved = node.rows != plan.graph.nodes[node.inputs[1]].rows
    taps = plan.weights[node.weights[0]].array().reshape(node.n, -1).T if node.weights else None
    arguments = NEIGHBOURS(
        beside=distance,
        x=x,
        out=out,
        first=plan.step.output_rows.ctypes.data if halved else 0,
        taps=0 if taps is None else plan.keep(np.ascontiguousarray(taps, np.float32)),
        n_taps=0 if taps is None else len(taps),
        n=node.n,
        count=count_word(node),
    )
    plan.add(Record(f"neighbours:{'conv' if node.weights else 'mean'}", arguments, reads_all=(distance, x), writes=(out,)))


@emitter("inside")
def inside(plan: PlanBuilder, index: int, node: Node) -> None:
    plan.brought(index, is_inside)


@emitter("places", "place_marks")
def places(plan: PlanBuilder, index: int, node: Node) -> None:
    rows = place_rows if node.op == "places" else mark_rows
    sides, window = cast(tuple[int, ...], node.attrs["sides"]), cast(bool, node.attrs["window"])
    plan.brought(index, lambda patches: rows(patches, sides, window))


@emitter("place_scores")
def place_scores(plan: PlanBuilder, index: int, node: Node) -> None:
    x, at = (plan.values[value] for value in node.inputs)
    out, heads, sides = plan.output(index), integer(node, "heads"), cast(tuple[int, ...], node.attrs["sides"])
    tables = np.stack([relative_rows(plan.weights[name].array(), sides) for name in node.weights])
    arguments = PLACES(
        x=x,
        at=at,
        out=out,
        tables=plan.keep(np.ascontiguousarray(tables, np.float32)),
        table_bytes=tables[0].size * 4,
        heads=heads,
        dim=x.n // heads,
        side=max(sides),
        width=marks_width(sides),
        scale=float_word(1 / cast(float, node.attrs["scale"])),
        count=count_word(node),
    )
    plan.add(Record("places", arguments, reads_all=(x, at), writes=(out,)))
