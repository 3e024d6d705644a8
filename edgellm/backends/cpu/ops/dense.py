"""Embeddings, norms, and products with weight matrices and adapters."""

from __future__ import annotations

from typing import cast

import numpy as np

from edgellm.backends.cpu.barriers import REPLICATED
from edgellm.backends.cpu.buffers import Value
from edgellm.backends.cpu.ops._table import count_word, emitter, float_of, matmul_of, scratch_of, traits_of
from edgellm.backends.cpu.ops.elementwise import ELEMENTWISE
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.record import Record, Signature
from edgellm.backends.cpu.traits import BLOCK, q8_row_bytes, scratch_bytes
from edgellm.formats.ggml_types import row_bytes
from edgellm.graph import Node
from edgellm.ops.dense import GATES_OF_PRODUCTS

EMBED = Signature("table row_bytes n ids out out_stride")
NORM = Signature("x x_stride out out_stride scale scale_stride bias n groups eps count")
# `act`: 0 where the residual is added; else, with quantised weights only, that is a gate, whose activation multiplies the sum. It
# is 1 + its place in GATES_OF_PRODUCTS.
# `full_tiles`: 1 where rows of activations have no memory after them for the rest of a tile; see traits.py.
MATMUL = Signature("weights row_bytes n k x x_stride out out_stride bias residual residual_stride act count scratch full_tiles")
QUANTISE = Signature("x x_stride k out out_stride count")
LOW_RANK = Signature("weights row_bytes n ranks low low_stride base base_stride out out_stride count")


@emitter("embed", interleaved=lambda node: ())  # single rows
def embed(plan: PlanBuilder, index: int, node: Node) -> None:
    weight, out = plan.weights[node.weights[0]], plan.output(index)
    ids = plan.step.ids(cast(str, node.attrs["source"])).ctypes.data
    kernel = f"embed_interleaved:{weight.type.name}" if weight.interleaved else traits_of(weight).embed
    arguments = EMBED(table=weight.address, row_bytes=row_bytes(weight.type, node.n), n=node.n, ids=ids, out=out)
    plan.add(Record(kernel, arguments, writes=(out,)))


@emitter("rms_norm", "layer_norm")
def norm(plan: PlanBuilder, index: int, node: Node) -> None:
    groups = cast(int, node.attrs.get("groups", 1))
    x, out = plan.values[node.inputs[0]], plan.output(index, replicated=groups == 1)
    scale, bias = [*(plan.vector(name) for name in node.weights), 0, 0][:2]
    if node.attrs.get("own") == "one":
        scale = plan.keep(np.repeat(plan.weights[node.weights[0]].array().astype(np.float32), node.n // groups))
    weight_for_each = groups > 1 and (node.op == "layer_norm" or node.attrs["own"]) and node.weights
    plan.add(
        Record(
            f"norm:{node.op}",
            NORM(
                x=x,
                out=out,
                scale=scale,
                scale_stride=node.n // groups * 4 if weight_for_each else 0,
                bias=bias,
                n=node.n // groups,
                groups=groups,
                eps=float_of(node, "eps"),
                count=count_word(node),
            ),
            reads=(x,),
            writes=(out,),
            pieces=REPLICATED if out.replicated else groups,
            by_rows=node.rows == "T",
        )
    )


@emitter("matmul", "matmul_glu", interleaved=lambda node: (0, node.n))
def matmul(plan: PlanBuilder, index: int, node: Node) -> None:
    weight = plan.weights[node.weights[0]]
    traits, kernel = traits_of(weight), matmul_of(weight)
    x = plan.values[node.inputs[0]]
    columns = x.n
    if traits.quantise:
        x = _quantised(plan, node.inputs[0], columns, traits.quantise)
    residual, act, gate = plan.values[node.inputs[1]] if len(node.inputs) > 1 else None, 0, None
    if "act" in node.attrs and traits.quantise:
        act = 1 + GATES_OF_PRODUCTS.index(cast(str, node.attrs["act"]))  # of the gate in the residual's place
    elif "act" in node.attrs:  # afterwards: single tokens of F16 took 3 % longer where it was applied at once
        residual, gate = None, residual
    out = (plan.in_place(index, node.inputs[1]) if act else None) or plan.output(index)
    one_row = row_bytes(weight.type, columns)
    plan.add(
        Record(
            kernel,
            MATMUL(
                weights=weight.address,
                row_bytes=one_row,
                n=node.n,
                k=columns,
                x=x,
                out=out,
                bias=plan.vector(node.weights[1]) if len(node.weights) > 1 else 0,
                residual=residual,
                act=act,
                count=count_word(node),
                scratch=scratch_of(plan, scratch_bytes(weight.type.name, columns)),
                full_tiles=0,
            ),
            reads=(residual,) if residual else (),
            reads_all=(x,),
            writes=(out,),
            pieces=node.n // (weight.interleaved or 1),
            by_columns=kernel.partition(":")[0],
            weight_rows=node.n,
            weight_bytes=node.n * one_row,
            weights=weight.address,
        )
    )
    if gate:
        plan.add(
            Record(
                f"elementwise:glu_{node.attrs['act']}",
                ELEMENTWISE(a=gate, b=out, out=out, n=node.n, value=0, count=count_word(node)),
                reads=(gate, out),
                writes=(out,),
                pieces=node.n,
                by_rows=node.rows == "T",
            )
        )


def _quantised(plan: PlanBuilder, source: int, columns: int, kernel: str) -> Value:
    """The quantised copy of a node's rows that this kernel makes; made once, however many matmuls read it.

    Each thread quantises all of a single row, unless it has just computed its own part of that row.
    """
    ready = plan.derived(source, kernel)
    if ready is not None:
        return ready
    x, node = plan.values[source], plan.graph.nodes[source]
    replicated = x.replicated or not plan.produced_locally(x, columns // BLOCK)
    out = plan.derive(source, kernel, q8_row_bytes(columns), replicated=replicated)
    plan.add(
        Record(
            kernel,
            QUANTISE(x=x, k=columns, out=out, count=count_word(node)),
            reads=(x,),
            writes=(out,),
            pieces=REPLICATED if replicated else columns // BLOCK,
            by_rows=node.rows == "T",
        )
    )
    return out


@emitter("low_rank_add")
def low_rank_add(plan: PlanBuilder, index: int, node: Node) -> None:
    weight = plan.weights[node.weights[0]]
    low, base = (plan.values[value] for value in node.inputs)
    out = plan.in_place(index, node.inputs[1]) or plan.output(index)
    one_row = row_bytes(weight.type, node.n)
    plan.add(
        Record(
            f"low_rank:{weight.type.name}",
            LOW_RANK(
                weights=weight.address,
                row_bytes=one_row,
                n=node.n,
                ranks=low.n,
                low=low,
                base=base,
                out=out,
                count=count_word(node),
            ),
            reads=(base,),
            reads_all=(low,),
            writes=(out,),
            pieces=node.n,
            weight_bytes=low.n * one_row,
        )
    )
