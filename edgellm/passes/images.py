"""A language graph that takes vectors in the place of tokens: where they go in, and how their positions turn heads."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from edgellm.graph import Graph, Node, RopeSpec, Value
from edgellm.ops.dense import looked_up_in
from edgellm.ops.vision import inject


def with_images(graph: Graph, levels: int, axes: tuple[int, ...]) -> Graph:
    """The graph with `inject` after its embedding, which may be scaled, and after its first `levels` layers.

    `axes`: the coordinate that each rotary pair turns by; (): all by the position.
    """
    places = {_embedded(graph): 0} | {_layer_output(graph, layer): layer for layer in range(1, levels + 1)}
    nodes: list[Node] = []
    moved: dict[Value, Value] = {}
    for old, node in enumerate(graph.nodes):
        nodes.append(_turned(replace(node, inputs=tuple(moved[value] for value in node.inputs)), axes))
        moved[old] = len(nodes) - 1
        if old in places:
            nodes.append(inject(moved[old], node.n, places[old]))
            moved[old] = len(nodes) - 1
    outputs = MappingProxyType({name: moved[value] for name, value in graph.outputs.items()})
    return Graph(tuple(nodes), graph.states, outputs)


def _embedded(graph: Graph) -> Value:
    """The embedding of tokens; where all that reads it is one scaling, the scaled one."""
    found = next(i for i, node in enumerate(graph.nodes) if looked_up_in(node) == "token_embd.weight")
    readers = [i for i, node in enumerate(graph.nodes) if found in node.inputs]
    scaled = len(readers) == 1 and set(graph.nodes[readers[0]].attrs) == {"value"}
    return readers[0] if scaled else found


def _layer_output(graph: Graph, layer: int) -> Value:
    """The rows after the layer of this number."""
    read = {name: node.inputs[0] for node in graph.nodes for name in node.weights if node.inputs}
    value = read.get(f"blk.{layer}.attn_norm.weight", read["output_norm.weight"])
    while graph.nodes[value].rows != "T":  # after the last layer, the rows that are wanted
        value = graph.nodes[value].inputs[0]
    return value


def _turned(node: Node, axes: tuple[int, ...]) -> Node:
    spec = node.attrs.get("rope")
    if not axes or not isinstance(spec, RopeSpec):
        return node
    return replace(node, attrs=MappingProxyType({**node.attrs, "rope": replace(spec, axes=axes[: spec.n_rot // 2])}))
