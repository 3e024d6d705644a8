"""Convolutions along a conversation, whose state is the newest inputs."""

from __future__ import annotations

import numpy as np

from edgellm.graph import Builder, Graph, Node, RecurrentSpec, Value
from edgellm.ops._spec import Array, Faults, Inputs, OpSpec, Run, Uses, WeightUse, integer, vectors


# --- causal_conv ------------------------------------------------------------------------------------------------------
def causal_conv(g: Builder, x: Value, name: str, size: int) -> Value:
    """By columns: y[t] = bias + sum over j of W[:, j] * x[t - size + 1 + j], with W (n, size); zeros are before t = 0."""
    state = g.state(RecurrentSpec((size - 1, g.n(x))))
    return g.emit("causal_conv", (x,), g.n(x), g.named(name), state=state, size=size)


def _check(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    state, size = integer(node, "state", least=0), integer(node, "size", least=2)
    if inputs[0].n != node.n:
        yield f"gives {node.n} from inputs of {inputs[0].n}"
    if node.rows != "T":
        yield "updates its state with every token, so it needs all rows"
    if state >= len(graph.states) or graph.states[state] != RecurrentSpec((size - 1, node.n)):
        yield f"names state {state}, which is not the newest {size - 1} inputs"


def _weights(node: Node, inputs: Inputs) -> Uses:
    return (WeightUse(node.weights[0], (node.n, integer(node, "size")), "vector"), *vectors(node.weights[1:], node.n))


def _reference(run: Run, node: Node, x: Array) -> Array:
    size, weight = integer(node, "size"), run.weight(node.weights[0]).reshape(node.n, -1)
    before = np.concatenate([np.zeros((size - 1, node.n), np.float32), x])
    y: Array = sum((weight[:, j] * before[j : j + len(x)] for j in range(size)), np.zeros_like(x))
    return y + run.weight(node.weights[1]) if len(node.weights) == 2 else y


OPS = (OpSpec("causal_conv", _reference, (1,), {"state", "size"}, _check, _weights, (1, 2), effect="update"),)
