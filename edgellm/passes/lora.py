"""LoRA: low-rank products beside those of adapted weights, scaled row by row, so that each conversation has its own adapters.

Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models". All adapters of a model lie behind each other along the rank;
a row of the table `SCALES`, looked up by the adapters of a row's conversation, has their scales, 0 for those that it has not.

The first factors of weights that multiply the same input (queries, keys and values; gate and up) are one product.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import cast

from edgellm.graph import Graph, Node, Value
from edgellm.ops.dense import looked_up_in, multiplied_by, scaled_product
from edgellm.ops.moe import adds_experts, of_experts, scaled_slots

SCALES = "adapters.scales"
DOWN, UP = ".lora_a", ".lora_b"  # behind names: (ranks, columns), several below each other; (ranks, rows)
MOST_RANK = 4096  # of an adapter
MOST_TOGETHER = 4  # weights whose first factors are one product
ROWS = ".lora_rows"  # of a table: (rows, ranks), looked up; tied outputs multiply with both


def adaptable(graph: Graph) -> Mapping[str, str]:
    """The weights that adapters may change: "matmul" or "embed" or "experts" by name, "embed" also for tables that are outputs as
    well.
    """
    found: dict[str, str] = {}
    for node in graph.nodes:
        if (matrix := multiplied_by(node)) is not None:
            found.setdefault(matrix, "matmul")
        elif (table := looked_up_in(node)) is not None and node.attrs["source"] == "tokens":
            found[table] = "embed"
        elif (stack := of_experts(node)) is not None:
            found[stack] = "experts"
    return found


def repeats(graph: Graph, adapted: Collection[str]) -> int:
    """The number of times a row of `SCALES` repeats all scales: for fused weights, and for all experts of a token."""
    return max(MOST_TOGETHER, *(cast(int, node.attrs["k"]) for node in graph.nodes if of_experts(node) in adapted), 0)


def together(graph: Graph, adapted: Collection[str]) -> dict[Value, tuple[Value, ...]]:
    """By the place of each product with an adapted weight: the places of those that are computed with it, itself included."""
    tables = {table for node in graph.nodes if (table := looked_up_in(node)) is not None}
    groups: dict[tuple[Value, str], list[list[Value]]] = {}
    for at, node in enumerate(graph.nodes):
        if (matrix := multiplied_by(node)) in adapted and matrix not in tables:
            found = groups.setdefault((node.inputs[0], node.rows), [[]])
            if len(found[-1]) == MOST_TOGETHER:
                found.append([])
            found[-1].append(at)
    return {at: tuple(group) for found in groups.values() for group in found for at in group}


def scaled_products(graph: Graph, adapted: Collection[str]) -> dict[Value, Value]:
    """By the place of each node that multiplies a product with an adapted weight by that weight's scale: the product's place."""
    return {
        at: product
        for at, node in enumerate(graph.nodes)
        for product in (scaled_product(node), scaled_slots(node))
        if product is not None and (multiplied_by(graph.nodes[product]) or of_experts(graph.nodes[product])) in adapted
    }


def down_name(names: Collection[str]) -> str:
    """Of the first factors of these weights."""
    return "+".join(names) + DOWN


def add_adapters(graph: Graph, adapted: Collection[str], ranks: int, sets: int) -> Graph:
    """The graph with the products of adapters at the weights `adapted`. `ranks`: columns of each; `sets`: rows of `SCALES`."""
    return _Adding(graph, adapted, ranks, sets).graph()


class _Adding:
    """The new nodes, and where the old ones are among them."""

    def __init__(self, graph: Graph, adapted: Collection[str], ranks: int, sets: int) -> None:
        self._old, self._adapted, self._ranks = graph, adapted, ranks
        self._tables = {table for node in graph.nodes if (table := looked_up_in(node)) is not None}
        self._nodes: list[Node] = []
        self._together, self._products = together(graph, adapted), scaled_products(graph, adapted)
        self._moved: list[Value] = []  # by old place
        self._low: dict[Value, Value] = {}  # by the first of a group: what its first factors give, scaled
        self._repeats = repeats(graph, adapted)
        scales = self._emit("embed", (), "T", ranks * self._repeats, (SCALES,), source="adapters", rows=sets)
        self._scales: dict[str, Value] = {"T": scales}

    def graph(self) -> Graph:
        later = frozenset(self._products.values())
        for old, node in enumerate(self._old.nodes):
            self._nodes.append(self._at_new_places(node))
            at = len(self._nodes) - 1
            self._moved.append(at if old in later else self._adapt(self._products.get(old, old), at))
        outputs = MappingProxyType({name: self._moved[value] for name, value in self._old.outputs.items()})
        return Graph(tuple(self._nodes), self._old.states, outputs)

    def _at_new_places(self, node: Node) -> Node:
        return replace(node, inputs=tuple(self._moved[value] for value in node.inputs))

    def _adapt(self, old: Value, at: Value) -> Value:
        """`at`, the value of the old node `old` or that times its weight's scale, with the products of its adapters if it has any:
        those are of the weight that was trained, of which the scale is a part.
        """
        node = self._at_new_places(self._old.nodes[old])
        if of_experts(node) in self._adapted:
            return self._adapt_experts(node, at)
        if (multiplied_by(node) or looked_up_in(node)) not in self._adapted:
            return at
        return self._adapt_group(old, node, at) if old in self._together else self._adapt_table(node, at)

    def _adapt_group(self, old: Value, node: Node, at: Value) -> Value:
        """A product with those of its adapters, whose first factors are computed with the first of its group."""
        group = self._together[old]
        if group[0] not in self._low:
            down = down_name([self._old.nodes[each].weights[0] for each in group])
            low = self._emit("matmul", node.inputs[:1], node.rows, self._ranks * len(group), (down,))
            self._low[group[0]] = self._scaled(low)
        low = self._part(self._low[group[0]], group.index(old), 1)
        return self._emit("low_rank_add", (low, at), node.rows, node.n, (node.weights[0] + UP,))

    def _adapt_table(self, node: Node, at: Value) -> Value:
        """The value of a table, looked up or multiplied, with the products of its adapters."""
        name = node.weights[0]
        if looked_up_in(node) is not None:
            low = self._emit("embed", (), node.rows, self._ranks, (name + ROWS,), **node.attrs)
            return self._emit("low_rank_add", (self._scaled(low), at), node.rows, node.n, (name + UP,))
        low = self._emit("matmul", node.inputs[:1], node.rows, self._ranks, (name + UP,))
        return self._emit("matmul", (self._scaled(low), at), node.rows, node.n, (name + ROWS,))

    def _adapt_experts(self, node: Node, at: Value) -> Value:
        """Products of a token's experts with their adapters': factors (experts, ranks, columns) and (experts, rows, ranks)."""
        name, k = node.weights[0], node.attrs["k"]
        down, up = ("expert_slots", "expert_sum") if adds_experts(node) else ("expert_matmul", "expert_slots")
        low = self._scaled(
            self._emit(down, node.inputs[:2], node.rows, cast(int, k) * self._ranks, (name + DOWN,), k=k, start=0, rows=self._ranks)
        )
        factors = tuple(value for value in node.inputs[2:] if scaled_product(self._nodes[value]) is None)
        more = self._emit(up, (low, node.inputs[1], *factors), node.rows, node.n, (name + UP,), **node.attrs)
        return self._emit("add", (at, more), node.rows, node.n)

    def _scaled(self, low: Value) -> Value:
        node = self._nodes[low]
        if node.rows not in self._scales:
            self._scales[node.rows] = self._emit("select", (self._scales["T"],), node.rows, self._ranks * self._repeats)
        return self._emit("mul", (low, self._part(self._scales[node.rows], 0, node.n // self._ranks)), node.rows, node.n)

    def _part(self, value: Value, first: int, count: int) -> Value:
        """`count` times all ranks of a row."""
        node, start, stop = self._nodes[value], first * self._ranks, (first + count) * self._ranks
        if stop - start == node.n:
            return value
        return self._emit("slice", (value,), node.rows, stop - start, start=start, stop=stop)

    def _emit(self, op: str, inputs: tuple[Value, ...], kind: str, n: int, weights: tuple[str, ...] = (), **attrs: object) -> Value:
        self._nodes.append(Node(op, inputs, kind, n, weights, MappingProxyType(attrs)))  # type: ignore[arg-type]  # of a node
        return len(self._nodes) - 1
