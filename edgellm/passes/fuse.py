"""Fusions that save passes over memory, and the removal of unused nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import MappingProxyType

from edgellm.graph import Graph, Node, Value
from edgellm.ops import OPS


def fuse(graph: Graph) -> Graph:
    """Every node replaced by what its op can fuse it to. Nodes that nobody uses any more stay."""
    uses = Counter(value for node in graph.nodes for value in node.inputs)

    def fused(node: Node) -> Node:
        spec = OPS[node.op]
        return (spec.fuse and spec.fuse(node, graph, uses)) or node

    return replace(graph, nodes=tuple(fused(node) for node in graph.nodes))


def drop_unused(graph: Graph) -> Graph:
    """Keep what outputs and states need."""
    wanted = {*graph.outputs.values(), *(i for i, node in enumerate(graph.nodes) if OPS[node.op].effect in ("write", "update"))}
    kept: list[Value] = []
    for index in range(len(graph.nodes) - 1, -1, -1):
        if index in wanted:
            wanted.update(graph.nodes[index].inputs)
            kept.append(index)
    moved: dict[Value, Value] = {old: new for new, old in enumerate(reversed(kept))}
    nodes = []
    for old in moved:
        node = graph.nodes[old]
        nodes.append(replace(node, inputs=tuple(moved[value] for value in node.inputs)))
    outputs = MappingProxyType({name: moved[value] for name, value in graph.outputs.items()})
    return Graph(tuple(nodes), graph.states, outputs)
