"""How the ops of a mixture of experts become records: the choice of experts, rows in their order, and their products."""

from __future__ import annotations

from typing import cast

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.barriers import REPLICATED
from edgellm.backends.cpu.buffers import Kernel, PerThread, Value
from edgellm.backends.cpu.emitters import count_word, emitter, float_word, matmul_of, traits_of
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.traits import q8_row_bytes, scratch_bytes
from edgellm.backends.cpu.words import BUCKETS, EXPERT_ROWS, EXPERTS, GATED_BY, TOPK
from edgellm.backends.cpu.words_moe import SLOT_SCALE
from edgellm.formats.ggml_types import row_bytes
from edgellm.graph import Node

CHOSEN, SORTED = "topk:chosen", "experts:buckets"  # what is derived from a choice: lists of experts, and of their tokens


@emitter("topk")
def topk(plan: PlanBuilder, index: int, node: Node) -> None:
    attrs, k = node.attrs, cast(int, node.attrs["k"])
    x, out = plan.values[node.inputs[0]], plan.output(index, replicated=True)
    chosen = plan.derive(index, CHOSEN, 4 * k, replicated=out.replicated)
    buckets = plan.derive(index, SORTED, k * abi.PAIR + -(-node.n * abi.BUCKET // plan.rows(index)), replicated=out.replicated)
    pieces = REPLICATED if out.replicated else None
    plan.add(
        f"topk:{attrs['gating']}",
        TOPK(
            x=x.at,
            x_stride=x.stride,
            out=out.at,
            out_stride=out.stride,
            chosen=chosen.at,
            chosen_stride=chosen.stride,
            bias=plan.vector(node.weights[0]) if node.weights else 0,
            n=node.n,
            k=k,
            normalise=int(cast(bool, attrs["normalise"])),
            scale=float_word(cast(float, attrs["scale"])),
            groups=cast(int, attrs["groups"]),
            groups_used=cast(int, attrs["groups_used"]),
            count=count_word(node),
        ),
        whole=(x,),
        writes=(out, chosen),
        pieces=pieces,
    )
    plan.add(
        SORTED,
        BUCKETS(chosen=chosen.at, chosen_stride=chosen.stride, out=buckets.at, experts=node.n, k=k, count=count_word(node)),
        whole=(chosen,),
        writes=(buckets,),
        pieces=pieces,
    )


def _rows_of_each(node: Node) -> tuple[int, int]:
    return cast(int, node.attrs["start"]), node.n // cast(int, node.attrs["k"])


@emitter("expert_matmul", interleaved=_rows_of_each)
def expert_matmul(plan: PlanBuilder, index: int, node: Node) -> None:
    k = cast(int, node.attrs["k"])
    _experts(plan, index, node, "experts:rows", rows=node.n // k, start=cast(int, node.attrs["start"]), slot_columns=0)


@emitter("expert_slots", interleaved=_rows_of_each)
def expert_slots(plan: PlanBuilder, index: int, node: Node) -> None:
    k = cast(int, node.attrs["k"])
    columns = plan.graph.nodes[node.inputs[0]].n // k
    _experts(plan, index, node, "experts:rows", rows=node.n // k, start=cast(int, node.attrs["start"]), slot_columns=columns)


@emitter("expert_sum", interleaved=lambda node: (0, node.n))
def expert_sum(plan: PlanBuilder, index: int, node: Node) -> None:
    columns = plan.graph.nodes[node.inputs[0]].n // cast(int, node.attrs["k"])
    _experts(plan, index, node, "experts:sum", rows=node.n, start=0, slot_columns=columns)


def _experts(plan: PlanBuilder, index: int, node: Node, kernel: str, *, rows: int, start: int, slot_columns: int) -> None:
    """Products with rows start..start + rows of each expert. `slot_columns`: of a slot's part of the input, 0 where all have the
    same.
    """
    weight, choice, k = plan.weights[node.weights[0]], node.inputs[1], cast(int, node.attrs["k"])
    traits, columns, stored_rows = traits_of(weight), weight.shape[-1], weight.shape[-2]
    x = _expert_rows(plan, node, columns, traits.quantise, slot_columns)
    experts, gates, out = plan.values[choice].n, plan.values[node.inputs[-1]], plan.output(index)
    chosen, buckets = (cast(Value, plan.derived(choice, kind)) for kind in (CHOSEN, SORTED))
    one_row, scratch_size = row_bytes(weight.type, columns), scratch_bytes(weight.type.name, columns)
    floats = max(abi.EXPERT_PIECE * plan.rows(index), rows)
    work_size = abi.EXPERT_WORK_HEAD + -(-floats * 4 // 64) * 64
    bias = plan.vector(node.weights[1]) if len(node.weights) > 1 else 0
    unit = weight.interleaved or 1
    plan.add(
        kernel,
        EXPERTS(
            kernel=Kernel(matmul_of(weight)),
            unit=unit,
            weights=weight.address + start * one_row,
            row_bytes=one_row,
            expert_bytes=stored_rows * one_row,
            n=rows,
            k=columns,
            x=x.at,
            x_row_bytes=_activation_bytes(columns, traits.quantise),
            x_slots=int(slot_columns > 0),
            out=out.at,
            out_stride=out.stride,
            bias=bias and bias + start * 4,
            bias_bytes=stored_rows * 4,
            slots=k,
            chosen=chosen.at,
            buckets=buckets.at,
            experts=experts,
            gates=gates.at,
            gates_stride=gates.stride,
            count=count_word(node),
            scratch=PerThread(plan.scratch(plan.most_threads * scratch_size), scratch_size, always=True) if scratch_size else 0,
            work=PerThread(plan.scratch(plan.most_threads * work_size), work_size, always=True),
            work_floats=floats,
        ),
        whole=(x, chosen, buckets, gates),
        writes=(out,),
        pieces=node.n // unit,
        weight_rows=rows,
        weight_bytes=k * rows * one_row,
    )


def _activation_bytes(columns: int, quantise: str | None) -> int:
    return q8_row_bytes(columns) if quantise else columns * 4


def _expert_rows(plan: PlanBuilder, node: Node, columns: int, quantise: str | None, slot_columns: int) -> Value:
    """The rows of a node's input in the order of experts, in the form that their products want; made once for all of them."""
    (source, choice), k = node.inputs[:2], cast(int, node.attrs["k"])
    form = quantise.partition(":")[2] if quantise else "f32"
    ready = plan.derived(source, f"{form} for {choice}")
    if ready is not None:
        return ready
    x, buckets = plan.values[source], cast(Value, plan.derived(choice, SORTED))
    one_row = _activation_bytes(columns, quantise)
    out = plan.derive(source, f"{form} for {choice}", k * one_row, replicated=True)
    plan.add(
        f"expert_rows:{form}",
        EXPERT_ROWS(
            x=x.at,
            x_stride=x.stride,
            slot_bytes=slot_columns * 4,
            k=columns,
            out=out.at,
            row_bytes=one_row,
            slots=k,
            buckets=buckets.at,
            experts=plan.values[choice].n,
            count=count_word(node),
        ),
        whole=(x, buckets),
        writes=(out,),
        pieces=REPLICATED,
    )
    return out


@emitter("slot_scale")
def slot_scale(plan: PlanBuilder, index: int, node: Node) -> None:
    (source, choice), k = node.inputs, cast(int, node.attrs["k"])
    x, weights, chosen = plan.values[source], plan.values[choice], cast(Value, plan.derived(choice, CHOSEN))
    out = plan.output(index)
    at, stride = (plan.vector(node.weights[0]), 0) if node.weights else (weights.at, weights.stride)
    plan.add(
        "slot_scale:rows",
        SLOT_SCALE(
            x=x.at,
            x_stride=x.stride,
            weights=at,
            weights_stride=stride,
            chosen=chosen.at,
            chosen_stride=chosen.stride,
            out=out.at,
            out_stride=out.stride,
            n=node.n // k,
            slots=k,
            count=count_word(node),
        ),
        reads=(x,),
        whole=(weights, chosen),
        writes=(out,),
        pieces=node.n,
        by_rows=node.rows == "T",
    )


@emitter("gated_by")
def gated_by(plan: PlanBuilder, index: int, node: Node) -> None:
    y, x = (plan.values[value] for value in node.inputs)
    out = plan.output(index, replicated=True)
    plan.add(
        "gated_by:rows",
        GATED_BY(
            y=y.at,
            y_stride=y.stride,
            x=x.at,
            x_stride=x.stride,
            out=out.at,
            out_stride=out.stride,
            weight=plan.vector(node.weights[0]),
            n=node.n,
            k=x.n,
            count=count_word(node),
        ),
        reads=(y, x),
        writes=(out,),
        pieces=REPLICATED if out.replicated else None,
        by_rows=node.rows == "T",
    )
