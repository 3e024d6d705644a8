"""Rows and columns picked out of others, and rows pooled into one."""

from __future__ import annotations

from edgellm.backends.cpu.barriers import REPLICATED
from edgellm.backends.cpu.ops._table import emitter, integer
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.record import Record, Signature
from edgellm.graph import Node

SELECT = Signature("x x_stride out out_stride wanted n")
POOL = Signature("x x_stride out out_stride segments n")


@emitter("slice")
def take_columns(plan: PlanBuilder, index: int, node: Node) -> None:
    plan.view(index, node.inputs[0], integer(node, "start"))


@emitter("select")
def select(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out = plan.values[node.inputs[0]], plan.output(index, replicated=True)
    arguments = SELECT(x=x, out=out, wanted=plan.step.output_rows.ctypes.data, n=node.n)
    plan.add(Record("select:rows", arguments, reads_all=(x,), writes=(out,), pieces=REPLICATED if out.replicated else None))


@emitter("pool")
def pool(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out = plan.values[node.inputs[0]], plan.output(index)
    arguments = POOL(x=x, out=out, segments=plan.step.segments.ctypes.data, n=node.n)
    plan.add(Record(f"pool:{node.attrs['rows']}", arguments, reads_all=(x,), writes=(out,)))
