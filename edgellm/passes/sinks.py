"""StreamingLLM: queries of layers that evict tokens but keep their first ones stand closer to these than their positions say.

Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks". Keys lie rotated at their true positions; for the
sinks' keys a query is rotated once more, by the place that it has among the tokens that are left.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from types import MappingProxyType

from edgellm.graph import Graph, Node, Value
from edgellm.ops import OPS, state_of
from edgellm.ops.attention import with_sink_query
from edgellm.ops.rope import at_sink_positions


def add_sink_queries(graph: Graph, states: Collection[int]) -> Graph:
    """Give what reads these states a second query. One that does not depend on positions serves for all keys as it is."""
    turned = _turned(graph, states)
    nodes: list[Node] = []
    moved: list[Value] = []  # old index -> new one
    copies: dict[Value, Value] = {}  # old index of a value -> new one of its copy for sinks
    for index, node in enumerate(graph.nodes):
        new = replace(node, inputs=tuple(moved[value] for value in node.inputs))
        if _reads(graph, index, states) and (q_sink := copies.get(node.inputs[0])) is not None:
            new = with_sink_query(new, q_sink)
        moved.append(len(nodes))
        nodes.append(new)
        if index in turned:
            copies[index] = len(nodes)
            copy = replace(node, inputs=tuple(copies.get(value, moved[value]) for value in node.inputs))
            nodes.append(at_sink_positions(copy) or copy)
    outputs = MappingProxyType({name: moved[value] for name, value in graph.outputs.items()})
    return Graph(tuple(nodes), graph.states, outputs)


def _reads(graph: Graph, index: int, states: Collection[int]) -> bool:
    return OPS[graph.nodes[index].op].effect == "read" and state_of(graph, index) in states


def _turned(graph: Graph, states: Collection[int]) -> set[Value]:
    """The values on the way from rotations to the queries of these states: those that have to be computed twice."""
    rotated: set[Value] = set()  # depends on a rotation, with no state in between
    for index, node in enumerate(graph.nodes):
        if at_sink_positions(node) or (OPS[node.op].effect is None and not rotated.isdisjoint(node.inputs)):
            rotated.add(index)
    wanted: set[Value] = set()
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        if _reads(graph, index, states):
            wanted.add(node.inputs[0])
        elif index in wanted and index in rotated:
            wanted.update(node.inputs)
    return wanted & rotated
