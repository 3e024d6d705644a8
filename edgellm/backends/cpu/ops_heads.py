"""How ops that go head by head become records."""

from __future__ import annotations

from typing import cast

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.buffers import Kernel, PerThread, Value
from edgellm.backends.cpu.emitters import count_word, emitter, traits_of
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.traits import BLOCK, q8_row_bytes, scratch_bytes
from edgellm.backends.cpu.words_heads import HEAD_PRODUCTS, HEAD_ROWS, HEAD_SCALE, JOIN
from edgellm.errors import Unsupported
from edgellm.formats.ggml_types import row_bytes
from edgellm.graph import Node


@emitter("head_matmul")
def head_matmul(plan: PlanBuilder, index: int, node: Node) -> None:
    weight, heads = plan.weights[node.weights[0]], cast(int, node.attrs["heads"])
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
    out, one_row = plan.output(index), row_bytes(weight.type, columns)
    scratch, work = scratch_bytes(weight.type.name, columns), abi.RECORD_WORDS * 8
    plan.add(
        "heads:products",
        HEAD_PRODUCTS(
            kernel=Kernel(traits.matmul),
            weights=weight.address,
            row_bytes=one_row,
            head_bytes=n * one_row,
            n=n,
            k=columns,
            x=x.at,
            x_stride=x_stride,
            x_head_bytes=x_head_bytes,
            out=out.at,
            out_stride=out.stride,
            heads=heads,
            count=count_word(node),
            scratch=PerThread(plan.scratch(plan.most_threads * scratch), scratch, always=True) if scratch else 0,
            work=PerThread(plan.scratch(plan.most_threads * work), work, always=True),
        ),
        reads=(x,),
        writes=(out,),
        pieces=heads,
        weight_bytes=heads * n * one_row,
        weight_rows=heads * n,
    )


def _quantised(plan: PlanBuilder, node: Node, heads: int, columns: int, kernel: str) -> Value:
    """The rows of every head's pieces, one head after the other, in the form that products want."""
    source, form = node.inputs[0], kernel.partition(":")[2]
    ready = plan.derived(source, f"{form} of {heads} heads")
    if ready is not None:
        return ready
    x, one_row = plan.values[source], q8_row_bytes(columns)
    out = plan.derive(source, f"{form} of {heads} heads", heads * one_row, replicated=False)
    plan.add(
        f"heads:{form}",
        HEAD_ROWS(
            x=x.at,
            x_stride=x.stride,
            k=columns,
            out=out.at,
            row_bytes=one_row,
            head_bytes=one_row * plan.rows_of_tiles(source),
            heads=heads,
            count=count_word(node),
        ),
        reads=(x,),
        writes=(out,),
        pieces=heads,
        by_rows=node.rows == "T",
    )
    return out


@emitter("head_scale")
def head_scale(plan: PlanBuilder, index: int, node: Node) -> None:
    x, factors = (plan.values[value] for value in node.inputs)
    out = plan.output(index)
    plan.add(
        "heads:scale",
        HEAD_SCALE(
            x=x.at,
            x_stride=x.stride,
            factors=factors.at,
            factors_stride=factors.stride,
            out=out.at,
            out_stride=out.stride,
            heads=factors.n,
            n=x.n // factors.n,
            count=count_word(node),
        ),
        reads=(x, factors),
        writes=(out,),
        pieces=factors.n,
        by_rows=node.rows == "T",
    )


@emitter("join")
def join(plan: PlanBuilder, index: int, node: Node) -> None:
    a, b = (plan.values[value] for value in node.inputs)
    heads, shared, out = cast(int, node.attrs["heads"]), cast(bool, node.attrs["shared"]), plan.output(index)
    n_b = b.n if shared else b.n // heads
    plan.add(
        "heads:join",
        JOIN(
            a=a.at,
            a_stride=a.stride,
            b=b.at,
            b_stride=b.stride,
            out=out.at,
            out_stride=out.stride,
            heads=heads,
            n_a=a.n // heads,
            n_b=n_b,
            b_step=0 if shared else n_b * 4,
            count=count_word(node),
        ),
        reads=(a,) if shared else (a, b),
        whole=(b,) if shared else (),
        writes=(out,),
        pieces=heads,
        by_rows=node.rows == "T" and not shared,
    )
