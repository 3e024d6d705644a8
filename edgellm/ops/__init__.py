"""The op table: each file declares a family of ops, with the functions that emit them, their rules and their NumPy references."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping

from edgellm.graph import Graph
from edgellm.ops._spec import GraphError, OpSpec, Uses, WeightUse

__all__ = ["OPS", "GraphError", "OpSpec", "WeightUse", "state_of", "weight_uses"]


def _declared() -> Iterator[OpSpec]:
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            yield from importlib.import_module(f"{__name__}.{module.name}").OPS


OPS: Mapping[str, OpSpec] = {spec.name: spec for spec in _declared()}


def weight_uses(graph: Graph, index: int) -> Uses:
    """The weights that node `index` needs."""
    node = graph.nodes[index]
    return OPS[node.op].weights(node, [graph.nodes[value] for value in node.inputs])


def state_of(graph: Graph, index: int) -> int | None:
    """The state that node `index` reads or writes."""
    node = graph.nodes[index]
    state = node.attrs["state"] if OPS[node.op].effect else None
    assert state is None or isinstance(state, int)
    return state
