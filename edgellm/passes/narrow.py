"""Computes only the wanted rows of nodes that no state depends on: the end of the last layer with a state, and all after it.

Of a prompt that is most of Gemma 4's smaller models, whose last layers read keys of earlier ones; of others a part of a layer.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from edgellm.graph import Graph, Node, Value
from edgellm.ops import OPS


def narrow(graph: Graph) -> Graph:
    """The graph with its choice of rows as early as it can be. One that chooses none stays as it is."""
    chosen = next((node for node in graph.nodes if OPS[node.op].rows == "R"), None)
    return graph if chosen is None else _Narrowing(graph, chosen).graph()


class _Narrowing:
    """The new nodes, and where the old ones are among them: with all rows, or with the wanted ones."""

    def __init__(self, graph: Graph, choice: Node) -> None:
        """`choice`: the node that picks rows, as a pattern for those that take its place."""
        self._old, self._choice, self._whole = graph, choice, _needed_whole(graph)
        self._nodes: list[Node] = []
        self._all: dict[Value, Value] = {}
        self._wanted: dict[Value, Value] = {}

    def graph(self) -> Graph:
        for old, node in enumerate(self._old.nodes):
            if OPS[node.op].rows == "R":
                self._wanted[old] = self._narrowed(node.inputs[0])
            elif old in self._whole or node.rows == "S":
                self._all[old] = self._add(replace(node, inputs=tuple(self._all[value] for value in node.inputs)))
            else:
                inputs = tuple(self._narrowed(value) for value in node.inputs)
                self._wanted[old] = self._add(replace(node, inputs=inputs, rows="R"))
        places = self._all | self._wanted
        outputs = MappingProxyType({name: places[value] for name, value in self._old.outputs.items()})
        return Graph(tuple(self._nodes), self._old.states, outputs)

    def _narrowed(self, old: Value) -> Value:
        """The wanted rows of an old node's value, picked once for all that read them."""
        if old not in self._wanted:
            n = self._old.nodes[old].n
            self._wanted[old] = self._add(replace(self._choice, inputs=(self._all[old],), n=n))
        return self._wanted[old]

    def _add(self, node: Node) -> Value:
        self._nodes.append(node)
        return len(self._nodes) - 1


def _needed_whole(graph: Graph) -> set[Value]:
    """The nodes that need all rows: what states are made of, what is pooled, and what comes with all rows from the step."""
    found: set[Value] = set()
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        spec = OPS[node.op]
        if index in found or spec.effect in ("write", "update") or spec.rows in ("T", "S"):
            found.add(index)
            found.update(node.inputs)
    return found
