"""LoRA: low-rank products beside those of adapted weights, scaled row by row, so that each conversation has its own adapters.

Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models". All adapters of a model lie behind each other along the rank;
a row of the table `SCALES`, looked up by the adapters of a row's conversation, has their scales, 0 for those that it has not.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from edgellm.graph import Graph, Node, Value
from edgellm.ops.dense import looked_up_in, multiplied_by

SCALES = "adapters.scales"
DOWN, UP = ".lora_a", ".lora_b"                  # behind a weight's name: (ranks, columns) and (rows, ranks)
ROWS, TURNED = ".lora_rows", ".lora_turned"      # of a table: (rows, ranks), looked up; and its other half for tied outputs, turned


def adaptable(graph: Graph) -> Mapping[str, str]:
    """The weights that adapters may change: "matmul" or "embed" by name, "embed" also for tables that are outputs as well."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        if (matrix := multiplied_by(node)) is not None:
            found.setdefault(matrix, "matmul")
        elif (table := looked_up_in(node)) is not None and node.attrs["source"] == "tokens":
            found[table] = "embed"
    return found


def add_adapters(graph: Graph, adapted: Collection[str], ranks: int, sets: int) -> Graph:
    """The graph with the products of adapters at the weights `adapted`. `ranks`: columns of each; `sets`: rows of `SCALES`."""
    return _Adding(graph, adapted, ranks, sets).graph()


class _Adding:
    """The new nodes, and where the old ones are among them."""

    def __init__(self, graph: Graph, adapted: Collection[str], ranks: int, sets: int) -> None:
        self._old, self._adapted, self._ranks = graph, adapted, ranks
        self._tables = {table for node in graph.nodes if (table := looked_up_in(node)) is not None}
        self._nodes: list[Node] = []
        scales = self._emit("embed", (), "T", ranks, (SCALES,), source="adapters", rows=sets)
        self._scales: dict[str, Value] = {"T": scales}

    def graph(self) -> Graph:
        moved: list[Value] = []
        for node in self._old.nodes:
            self._nodes.append(replace(node, inputs=tuple(moved[value] for value in node.inputs)))
            at = len(self._nodes) - 1
            if (multiplied_by(node) or looked_up_in(node)) in self._adapted:
                at = self._adapt(at)
            moved.append(at)
        outputs = MappingProxyType({name: moved[value] for name, value in self._old.outputs.items()})
        return Graph(tuple(self._nodes), self._old.states, outputs)

    def _adapt(self, at: Value) -> Value:
        """A node's value with the products of its adapters."""
        node, name = self._nodes[at], self._nodes[at].weights[0]
        if looked_up_in(node) is not None:
            low, up = self._emit("embed", (), node.rows, self._ranks, (name + ROWS,), **node.attrs), name + UP
        else:
            tied = name in self._tables
            down, up = (name + TURNED, name + ROWS) if tied else (name + DOWN, name + UP)
            low = self._emit("matmul", node.inputs[:1], node.rows, self._ranks, (down,))
        scaled = self._emit("mul", (low, self._scales_of(node)), node.rows, self._ranks)
        return self._emit("matmul", (scaled, at), node.rows, node.n, (up,))

    def _scales_of(self, node: Node) -> Value:
        """The scales of a node's rows."""
        if node.rows not in self._scales:
            self._scales[node.rows] = self._emit("select", (self._scales["T"],), node.rows, self._ranks)
        return self._scales[node.rows]

    def _emit(self, op: str, inputs: tuple[Value, ...], kind: str, n: int, weights: tuple[str, ...] = (), **attrs: object) -> Value:
        self._nodes.append(Node(op, inputs, kind, n, weights, MappingProxyType(attrs)))     # type: ignore[arg-type]  # of a node
        return len(self._nodes) - 1
