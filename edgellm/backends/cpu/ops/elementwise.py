"""Arithmetic value by value: activations, gates, residuals, biases, and probabilities of classifiers' labels."""

from __future__ import annotations

import numpy as np

from edgellm.backends.cpu.barriers import REPLICATED
from edgellm.backends.cpu.ops._table import count_word, emitter, float_of, float_word, integer
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.record import Record, Signature
from edgellm.graph import Node
from edgellm.ops.dense import ACTIVATIONS, xielu_numbers

# `value`: a constant as f32; of xielu the address of four.
ELEMENTWISE = Signature("a a_stride b b_stride out out_stride n value count")
CONSTANTS = {
    "scale": "value",
    "clamp": "limit",
    "at_least": "limit",
    "at_most": "limit",
    "softcap": "cap",
    "glu_clamped": "limit",
}  # the attribute that is a constant


@emitter("glu")
def glu(plan: PlanBuilder, index: int, node: Node) -> None:
    _elementwise(plan, index, node, f"glu_{node.attrs['act']}")


@emitter(*ACTIVATIONS)
def activation(plan: PlanBuilder, index: int, node: Node) -> None:
    _elementwise(plan, index, node, node.op)


@emitter("add", "mul")
def of_two(plan: PlanBuilder, index: int, node: Node) -> None:
    _elementwise(plan, index, node, node.op, replicated=True)


@emitter(*CONSTANTS)
def with_constant(plan: PlanBuilder, index: int, node: Node) -> None:
    _elementwise(plan, index, node, node.op, float_of(node, CONSTANTS[node.op]), replicated=node.op == "scale")


@emitter("scaled_by")
def scaled_by(plan: PlanBuilder, index: int, node: Node) -> None:
    weight = node.weights[0]
    if node.attrs["one"]:
        _elementwise(plan, index, node, "scale", float_word(float(plan.weights[weight].array()[0])), replicated=True)
    elif (heads := integer(node, "heads")) > 1:
        vector = plan.keep(np.tile(plan.weights[weight].array().astype(np.float32), heads))
        _elementwise(plan, index, node, "mul", replicated=True, vector=vector)
    else:
        _elementwise(plan, index, node, "mul", replicated=True, vector=plan.vector(weight))


@emitter("add_bias")
def add_bias(plan: PlanBuilder, index: int, node: Node) -> None:
    _elementwise(plan, index, node, "add", replicated=True, vector=plan.vector(node.weights[0]))


@emitter("xielu")
def xielu(plan: PlanBuilder, index: int, node: Node) -> None:
    _elementwise(plan, index, node, "xielu", plan.keep(np.array(xielu_numbers(node), np.float32)))


def _elementwise(
    plan: PlanBuilder, index: int, node: Node, variant: str, value: int = 0, *, replicated: bool = False, vector: int = 0
) -> None:
    """`value`: the constant's word. `replicated`: each thread computes all of a single row, since the next op needs all of it.

    `vector`: the address of the second operand, where it is the same for all rows.
    """
    a, b = plan.values[node.inputs[0]], plan.values[node.inputs[-1]]
    out = (None if replicated else plan.in_place(index, node.inputs[0])) or plan.output(index, replicated=replicated)
    second = {"b": vector, "b_stride": 0} if vector else {"b": b}
    plan.add(
        Record(
            f"elementwise:{variant}",
            ELEMENTWISE(a=a, **second, out=out, n=node.n, value=value, count=count_word(node)),
            reads=(a, b),
            writes=(out,),
            pieces=REPLICATED if out.replicated else node.n,
            by_rows=node.rows == "T",
        )
    )


@emitter("softmax")
def softmax(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out = plan.values[node.inputs[0]], plan.output(index)
    arguments = ELEMENTWISE(a=x, b=x, out=out, n=node.n, value=0, count=count_word(node))
    plan.add(Record("softmax:rows", arguments, reads_all=(x,), writes=(out,)))
