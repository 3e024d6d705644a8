"""Products of adapters: short rows times a matrix."""

from __future__ import annotations

from edgellm.graph import Graph, Node
from edgellm.ops._spec import Array, Faults, Inputs, OpSpec, Run, Uses, WeightUse


def _check(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    if inputs[1].n != node.n:
        yield f"gives {node.n}, but what it is added to has {inputs[1].n}"


def _weights(node: Node, inputs: Inputs) -> Uses:
    return (WeightUse(node.weights[0], (inputs[0].n, node.n), "matrix"),)


def _low_rank_add(run: Run, node: Node, low: Array, base: Array) -> Array:
    """base + low @ W, with W (row length of low, row length of base): the numbers that a row of W adds lie side by side."""
    return base + low @ run.weight(node.weights[0])


OPS = (OpSpec("low_rank_add", _low_rank_add, (2,), check=_check, weights=_weights, weight_counts=(1,)),)
