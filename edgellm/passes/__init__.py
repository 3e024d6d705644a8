"""Rewrites of a graph that keep its values."""

from __future__ import annotations

from collections.abc import Collection

from edgellm.graph import Graph
from edgellm.passes.fuse import drop_unused, fuse
from edgellm.passes.narrow import narrow
from edgellm.passes.sinks import add_sink_queries


def optimise(graph: Graph, sinks: Collection[int] = (), *, adapted: bool = False) -> Graph:
    """All passes, in order. The result gives the same logits as `graph`. `sinks`: the states that keep sinks when others go.

    `adapted`: adapters will be added to products, which therefore do not apply the activations of gates.
    """
    fused = drop_unused(fuse(narrow(add_sink_queries(graph, sinks))))
    return fused if adapted else drop_unused(fuse(fused))  # what a node was fused to can be fused on


def optimise_encoder(graph: Graph) -> Graph:
    """The passes for an image encoder's graph, all of whose rows are wanted."""
    return drop_unused(fuse(drop_unused(fuse(graph))))
