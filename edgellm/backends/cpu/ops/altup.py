"""Ops of Gemma 3n: mixed streams, rows rescaled to the magnitude of others, sparse activations."""

from __future__ import annotations

from edgellm.backends.cpu.barriers import REPLICATED
from edgellm.backends.cpu.buffers import Argument, Value
from edgellm.backends.cpu.ops._table import count_word, emitter, float_of, integer
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.record import Record, Signature
from edgellm.graph import Node

MIX = Signature("base base_stride x x_stride coefficients coefficients_stride out out_stride parts added n offset first count")
RESCALE = Signature("x x_stride like like_stride n_like out out_stride n groups floor count")
SPARSE_RELU = Signature("x x_stride out out_stride n deviations count")


@emitter("mix")
def mix(plan: PlanBuilder, index: int, node: Node) -> None:
    base, x, *rest = inputs = [plan.values[value] for value in node.inputs]
    out, parts = plan.output(index, replicated=True), integer(node, "parts")
    arguments = MIX(
        base=base,
        x=x,
        coefficients=rest[0] if rest else None,
        out=out,
        parts=parts,
        added=x.n * parts // node.n,
        n=node.n // parts,
        offset=float_of(node, "offset"),
        first=integer(node, "first"),
        count=count_word(node),
    )
    _add(plan, node, arguments, inputs, out)


@emitter("rescale")
def rescale(plan: PlanBuilder, index: int, node: Node) -> None:
    x, like = inputs = [plan.values[value] for value in node.inputs]
    out, groups, count = plan.output(index, replicated=True), integer(node, "groups"), count_word(node)
    arguments = RESCALE(
        x=x, like=like, n_like=like.n, out=out, n=node.n // groups, groups=groups, floor=float_of(node, "floor"), count=count
    )
    _add(plan, node, arguments, inputs, out)


@emitter("sparse_relu")
def sparse_relu(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out = plan.values[node.inputs[0]], plan.output(index, replicated=True)
    _add(plan, node, SPARSE_RELU(x=x, out=out, n=node.n, deviations=float_of(node, "deviations"), count=count_word(node)), [x], out)


def _add(plan: PlanBuilder, node: Node, arguments: tuple[Argument, ...], reads: list[Value], out: Value) -> None:
    pieces = REPLICATED if out.replicated else None
    plan.add(Record(f"altup:{node.op}", arguments, tuple(reads), writes=(out,), pieces=pieces, by_rows=node.rows == "T"))
