"""Mixtures of experts: the choice of experts, rows in their order, their products, and shared experts' gates."""

from __future__ import annotations

from typing import cast

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.barriers import REPLICATED
from edgellm.backends.cpu.buffers import Kernel, Value
from edgellm.backends.cpu.ops._table import count_word, emitter, float_of, integer, matmul_of, scratch_of, traits_of
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.record import Record, Signature
from edgellm.backends.cpu.traits import q8_row_bytes, scratch_bytes
from edgellm.formats.ggml_types import row_bytes
from edgellm.graph import Node

TOPK = Signature("x x_stride out out_stride chosen chosen_stride bias n k normalise scale groups groups_used count")
BUCKETS = Signature("chosen chosen_stride out experts k count")
EXPERT_ROWS = Signature("x x_stride slot_bytes k out row_bytes slots buckets experts count")  # slot_bytes 0: all have the same
EXPERTS = Signature(
    "kernel weights row_bytes expert_bytes n k x x_row_bytes x_slots out out_stride bias bias_bytes slots chosen "
    "buckets experts gates gates_stride count scratch work work_floats unit"
)
SLOT_SCALE = Signature("x x_stride weights weights_stride chosen chosen_stride out out_stride n slots count")
GATED_BY = Signature("y y_stride x x_stride out out_stride weight n k count")
CHOSEN, SORTED = "topk:chosen", "experts:buckets"  # what is derived from a choice: lists of experts, and of their tokens


@emitter("topk")
def topk(plan: PlanBuilder, index: int, node: Node) -> None:
    k = integer(node, "k")
    x, out = plan.values[node.inputs[0]], plan.output(index, replicated=True)
    chosen = plan.derive(index, CHOSEN, 4 * k, replicated=out.replicated)
    buckets = plan.derive(index, SORTED, k * abi.PAIR + -(-node.n * abi.BUCKET // plan.rows(index)), replicated=out.replicated)
    pieces = REPLICATED if out.replicated else None
    plan.add(
        Record(
            f"topk:{node.attrs['gating']}",
            TOPK(
                x=x,
                out=out,
                chosen=chosen,
                bias=plan.vector(node.weights[0]) if node.weights else 0,
                n=node.n,
                k=k,
                normalise=int(cast(bool, node.attrs["normalise"])),
                scale=float_of(node, "scale"),
                groups=integer(node, "groups"),
                groups_used=integer(node, "groups_used"),
                count=count_word(node),
            ),
            reads_all=(x,),
            writes=(out, chosen),
            pieces=pieces,
        )
    )
    arguments = BUCKETS(chosen=chosen, out=buckets, experts=node.n, k=k, count=count_word(node))
    plan.add(Record(SORTED, arguments, reads_all=(chosen,), writes=(buckets,), pieces=pieces))


def _rows_of_each(node: Node) -> tuple[int, int]:
    return integer(node, "start"), node.n // integer(node, "k")


@emitter("expert_matmul", interleaved=_rows_of_each)
def expert_matmul(plan: PlanBuilder, index: int, node: Node) -> None:
    start, rows = _rows_of_each(node)
    _experts(plan, index, node, "experts:rows", rows=rows, start=start, slot_columns=0)


@emitter("expert_slots", interleaved=_rows_of_each)
def expert_slots(plan: PlanBuilder, index: int, node: Node) -> None:
    start, rows = _rows_of_each(node)
    _experts(plan, index, node, "experts:rows", rows=rows, start=start, slot_columns=_slot_columns(plan, node))


@emitter("expert_sum", interleaved=lambda node: (0, node.n))
def expert_sum(plan: PlanBuilder, index: int, node: Node) -> None:
    _experts(plan, index, node, "experts:sum", rows=node.n, start=0, slot_columns=_slot_columns(plan, node))


def _slot_columns(plan: PlanBuilder, node: Node) -> int:
    return plan.graph.nodes[node.inputs[0]].n // integer(node, "k")


def _experts(plan: PlanBuilder, index: int, node: Node, kernel: str, *, rows: int, start: int, slot_columns: int) -> None:
    """Products with rows start..start + rows of each expert. `slot_columns`: of a slot's part of the input, 0 where all have the
    same.
    """
    weight, choice, k = plan.weights[node.weights[0]], node.inputs[1], integer(node, "k")
    traits, columns, stored_rows = traits_of(weight), weight.shape[-1], weight.shape[-2]
    x = _expert_rows(plan, node, columns, traits.quantise, slot_columns)
    experts, gates, out = plan.values[choice].n, plan.values[node.inputs[-1]], plan.output(index)
    chosen, buckets = (cast(Value, plan.derived(choice, kind)) for kind in (CHOSEN, SORTED))
    one_row, unit = row_bytes(weight.type, columns), weight.interleaved or 1
    floats = max(abi.EXPERT_PIECE * plan.rows(index), rows)
    bias = plan.vector(node.weights[1]) if len(node.weights) > 1 else 0
    plan.add(
        Record(
            kernel,
            EXPERTS(
                kernel=Kernel(matmul_of(weight)),
                unit=unit,
                weights=weight.address + start * one_row,
                row_bytes=one_row,
                expert_bytes=stored_rows * one_row,
                n=rows,
                k=columns,
                x=x,
                x_row_bytes=_activation_bytes(columns, traits.quantise),
                x_slots=int(slot_columns > 0),
                out=out,
                bias=bias and bias + start * 4,
                bias_bytes=stored_rows * 4,
                slots=k,
                chosen=chosen,
                buckets=buckets,
                experts=experts,
                gates=gates,
                count=count_word(node),
                scratch=scratch_of(plan, scratch_bytes(weight.type.name, columns)),
                work=scratch_of(plan, abi.EXPERT_WORK_HEAD + -(-floats * 4 // 64) * 64),
                work_floats=floats,
            ),
            reads_all=(x, chosen, buckets, gates),
            writes=(out,),
            pieces=node.n // unit,
            weight_rows=rows,
            weight_bytes=k * rows * one_row,
        )
    )


def _activation_bytes(columns: int, quantise: str | None) -> int:
    return q8_row_bytes(columns) if quantise else columns * 4


def _expert_rows(plan: PlanBuilder, node: Node, columns: int, quantise: str | None, slot_columns: int) -> Value:
    """The rows of a node's input in the order of experts, in the form that their products want; made once for all of them."""
    (source, choice), k = node.inputs[:2], integer(node, "k")
    form = quantise.partition(":")[2] if quantise else "f32"
    ready = plan.derived(source, f"{form} for {choice}")
    if ready is not None:
        return ready
    x, buckets = plan.values[source], cast(Value, plan.derived(choice, SORTED))
    one_row = _activation_bytes(columns, quantise)
    out = plan.derive(source, f"{form} for {choice}", k * one_row, replicated=True)
    arguments = EXPERT_ROWS(
        x=x,
        slot_bytes=slot_columns * 4,
        k=columns,
        out=out,
        row_bytes=one_row,
        slots=k,
        buckets=buckets,
        experts=plan.values[choice].n,
        count=count_word(node),
    )
    plan.add(Record(f"expert_rows:{form}", arguments, reads_all=(x, buckets), writes=(out,), pieces=REPLICATED))
    return out


@emitter("slot_scale")
def slot_scale(plan: PlanBuilder, index: int, node: Node) -> None:
    (source, choice), k = node.inputs, integer(node, "k")
    x, weights, chosen = plan.values[source], plan.values[choice], cast(Value, plan.derived(choice, CHOSEN))
    out = plan.output(index)
    at, stride = (plan.vector(node.weights[0]), 0) if node.weights else (weights.at, weights.stride)
    plan.add(
        Record(
            "slot_scale:rows",
            SLOT_SCALE(
                x=x, weights=at, weights_stride=stride, chosen=chosen, out=out, n=node.n // k, slots=k, count=count_word(node)
            ),
            reads=(x,),
            reads_all=(weights, chosen),
            writes=(out,),
            pieces=node.n,
            by_rows=node.rows == "T",
        )
    )


@emitter("gated_by")
def gated_by(plan: PlanBuilder, index: int, node: Node) -> None:
    y, x = (plan.values[value] for value in node.inputs)
    out = plan.output(index, replicated=True)
    plan.add(
        Record(
            "gated_by:rows",
            GATED_BY(y=y, x=x, out=out, weight=plan.vector(node.weights[0]), n=node.n, k=x.n, count=count_word(node)),
            reads=(y, x),
            writes=(out,),
            pieces=REPLICATED if out.replicated else None,
            by_rows=node.rows == "T",
        )
    )
