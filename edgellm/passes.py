"""Rewrites of a graph that keep its values: fusions that save passes over memory, and the removal of unused nodes."""
from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import MappingProxyType

from edgellm.graph import Graph, Node, Value
from edgellm.spec import ACTIVATIONS


def optimise(graph: Graph) -> Graph:
    """All passes, in order. The result gives the same logits as `graph`."""
    for rewrite in (fuse_gated_activation, fuse_residual, drop_unused):
        graph = rewrite(graph)
    return graph


def fuse_gated_activation(graph: Graph) -> Graph:
    """mul(act(gate), up), in either order, becomes glu(gate, up)."""
    uses = _uses(graph)

    def fused(node: Node) -> Node:
        if node.op != "mul":
            return node
        for gated, up in (node.inputs, node.inputs[::-1]):
            act = graph.nodes[gated]
            if act.op in ACTIVATIONS and uses[gated] == 1:
                return Node("glu", (act.inputs[0], up), node.rows, node.n, attrs=MappingProxyType({"act": act.op}))
        return node

    return _rewritten(graph, [fused(node) for node in graph.nodes])


def fuse_residual(graph: Graph) -> Graph:
    """add(x, matmul(y)), in either order, becomes matmul(y, x): the product is added where it is computed."""
    uses = _uses(graph)

    def fused(node: Node) -> Node:
        if node.op != "add":
            return node
        for product, residual in (node.inputs[::-1], node.inputs):
            matmul = graph.nodes[product]
            if matmul.op == "matmul" and len(matmul.inputs) == 1 and uses[product] == 1:
                return Node("matmul", (matmul.inputs[0], residual), node.rows, node.n, matmul.weights)
        return node

    return _rewritten(graph, [fused(node) for node in graph.nodes])


def drop_unused(graph: Graph) -> Graph:
    """Keep what the logits and the layers' memories need."""
    wanted, kept = {graph.output} | {i for i, node in enumerate(graph.nodes) if node.op == "attention"}, []
    for index in range(len(graph.nodes) - 1, -1, -1):
        if index in wanted:
            wanted.update(graph.nodes[index].inputs)
            kept.append(index)
    moved: dict[Value, Value] = {old: new for new, old in enumerate(reversed(kept))}
    nodes = []
    for old in moved:
        node = graph.nodes[old]
        nodes.append(replace(node, inputs=tuple(moved[value] for value in node.inputs)))
    return Graph(tuple(nodes), moved[graph.output], graph.memory)


def _uses(graph: Graph) -> Counter[Value]:
    return Counter(value for node in graph.nodes for value in node.inputs)


def _rewritten(graph: Graph, nodes: list[Node]) -> Graph:
    return Graph(tuple(nodes), graph.output, graph.memory)
