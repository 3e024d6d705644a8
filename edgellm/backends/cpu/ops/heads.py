"""Ops that work head by head: products with a matrix for each head, scales, columns joined or picked in each head."""

from __future__ import annotations

from typing import cast

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.buffers import Kernel, Value
from edgellm.backends.cpu.ops._table import count_word, emitter, integer, scratch_of, traits_of
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.record import Record, Signature
from edgellm.backends.cpu.traits import BLOCK, TRAITS, q8_row_bytes, scratch_bytes
from edgellm.errors import Unsupported
from edgellm.formats.ggml_types import GGMLType, row_bytes
from edgellm.graph import Node

HEAD_ROWS = Signature("x x_stride k out row_bytes head_bytes heads count")
HEAD_PRODUCTS = Signature("kernel weights row_bytes head_bytes n k x x_stride x_head_bytes out out_stride heads count scratch work")
HEAD_SCALE = Signature("x x_stride factors factors_stride out out_stride heads n count")
# b_step: bytes from head to head, 0 where they share b.
JOIN = Signature("a a_stride b b_stride out out_stride heads n_a n_b b_step count")
COLUMNS = Signature("x x_stride out out_stride pieces width first n count")


@emitter("head_matmul")
def head_matmul(plan: PlanBuilder, index: int, node: Node) -> None:
    weight, heads = plan.weights[node.weights[0]], integer(node, "heads")
    traits, (_, n, columns) = traits_of(weight), weight.shape
    x, x_head_bytes = plan.values[node.inputs[0]], columns * 4
    x_stride = x.stride
    if traits.quantise:
        if columns % BLOCK:
            raise Unsupported(
                f"has rows of {columns} for each head, which must be a multiple of {BLOCK}", file=weight.file, field=weight.name
            )
        x, x_stride = _quantised(plan, node, heads, columns, traits.quantise), q8_row_bytes(columns)
        x_head_bytes = x_stride * plan.rows_of_tiles(index)
    head_products(plan, index, node, weight.type, weight.address, (heads, n, columns), x, x_stride, x_head_bytes)


def head_products(
    plan: PlanBuilder,
    index: int,
    node: Node,
    kind: GGMLType,
    address: int,
    shape: tuple[int, int, int],
    x: Value,
    x_stride: int,
    x_head_bytes: int,
) -> None:
    """The products of each head's piece of x with its matrix, of `shape` (heads, n, columns) and at `address`."""
    (heads, n, columns), traits = shape, TRAITS[kind.name]
    out, one_row = plan.output(index), row_bytes(kind, columns)
    plan.add(
        Record(
            "heads:products",
            HEAD_PRODUCTS(
                kernel=Kernel(traits.matmul),
                weights=address,
                row_bytes=one_row,
                head_bytes=n * one_row,
                n=n,
                k=columns,
                x=x,
                x_stride=x_stride,
                x_head_bytes=x_head_bytes,
                out=out,
                heads=heads,
                count=count_word(node),
                scratch=scratch_of(plan, scratch_bytes(kind.name, columns)),
                work=scratch_of(plan, abi.RECORD_WORDS * 8),
            ),
            reads=(x,),
            writes=(out,),
            pieces=heads,
            weight_bytes=heads * n * one_row,
            weight_rows=heads * n,
        )
    )


def _quantised(plan: PlanBuilder, node: Node, heads: int, columns: int, kernel: str) -> Value:
    """The rows of every head's pieces, one head after the other, in the form that products want."""
    source, form = node.inputs[0], kernel.partition(":")[2]
    ready = plan.derived(source, f"{form} of {heads} heads")
    if ready is not None:
        return ready
    x, one_row = plan.values[source], q8_row_bytes(columns)
    out = plan.derive(source, f"{form} of {heads} heads", heads * one_row, replicated=False)
    head_bytes = one_row * plan.rows_of_tiles(source)
    plan.add(
        Record(
            f"heads:{form}",
            HEAD_ROWS(x=x, k=columns, out=out, row_bytes=one_row, head_bytes=head_bytes, heads=heads, count=count_word(node)),
            reads=(x,),
            writes=(out,),
            pieces=heads,
            by_rows=node.rows == "T",
        )
    )
    return out


@emitter("head_scale")
def head_scale(plan: PlanBuilder, index: int, node: Node) -> None:
    x, factors = (plan.values[value] for value in node.inputs)
    out = plan.output(index)
    plan.add(
        Record(
            "heads:scale",
            HEAD_SCALE(x=x, factors=factors, out=out, heads=factors.n, n=x.n // factors.n, count=count_word(node)),
            reads=(x, factors),
            writes=(out,),
            pieces=factors.n,
            by_rows=node.rows == "T",
        )
    )


@emitter("join")
def join(plan: PlanBuilder, index: int, node: Node) -> None:
    a, b = (plan.values[value] for value in node.inputs)
    heads, shared, out = integer(node, "heads"), cast(bool, node.attrs["shared"]), plan.output(index)
    n_b = b.n if shared else b.n // heads
    plan.add(
        Record(
            "heads:join",
            JOIN(
                a=a, b=b, out=out, heads=heads, n_a=a.n // heads, n_b=n_b, b_step=0 if shared else n_b * 4, count=count_word(node)
            ),
            reads=(a,) if shared else (a, b),
            reads_all=(b,) if shared else (),
            writes=(out,),
            pieces=heads,
            by_rows=node.rows == "T" and not shared,
        )
    )


@emitter("head_columns")
def head_columns(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out, pieces = plan.values[node.inputs[0]], plan.output(index), integer(node, "heads")
    first, n = integer(node, "start"), node.n // pieces
    plan.add(
        Record(
            "columns:copy",
            COLUMNS(x=x, out=out, pieces=pieces, width=x.n // pieces, first=first, n=n, count=count_word(node)),
            reads=(x,),
            writes=(out,),
            pieces=pieces,
            by_rows=node.rows == "T",
        )
    )
