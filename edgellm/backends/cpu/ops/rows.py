"""Rows and columns picked out of others, rows pooled into one, and ops whose rows follow from the same rows of others."""

from __future__ import annotations

from edgellm.backends.cpu.barriers import REPLICATED
from edgellm.backends.cpu.buffers import Argument, Value
from edgellm.backends.cpu.ops._table import count_word, emitter, float_word, integer
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.record import Record, Signature, row_signature
from edgellm.graph import Node
from edgellm.ops import OPS

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


@emitter(*(name for name, spec in OPS.items() if spec.by_rows))
def by_rows(plan: PlanBuilder, index: int, node: Node) -> None:
    spec, out = OPS[node.op], plan.output(index, replicated=True)
    inputs = [plan.values[value] for value in node.inputs]
    words: dict[str, Argument | Value | None] = {"out": out, "n": node.n, "count": count_word(node)}
    for i in range(max(spec.inputs)):
        words |= {f"x{i}": inputs[i], f"n{i}": inputs[i].n} if i < len(inputs) else {f"x{i}": None, f"n{i}": 0}
    for name, value in node.attrs.items():
        assert isinstance(value, int | float), name
        words[name] = float_word(value) if isinstance(value, float) else value
    plan.add(
        Record(
            f"{spec.reference.__module__.rpartition('.')[2]}:{node.op}",
            row_signature(max(spec.inputs), *spec.attrs)(**words),
            tuple(inputs),
            writes=(out,),
            pieces=REPLICATED if out.replicated else None,
            by_rows=node.rows == "T",
        )
    )
