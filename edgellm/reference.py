"""The oracle: any graph in plain NumPy float32, with rotary angles in float64. Slow and simple on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edgellm.graph import Graph, Node
from edgellm.ops import OPS, weight_uses
from edgellm.ops._spec import Array, Given, Patches, Positions

Integers = Sequence[int] | npt.NDArray[np.integer[Any]]  # any width


class ArrayLike(Protocol):
    """A weight that can be dequantised at once."""

    def array(self) -> Array: ...


class Weights(Protocol):
    """Weights by GGUF name; `edgellm.weights.WeightStore` is one."""

    def __getitem__(self, name: str) -> ArrayLike: ...


class Reference:
    """Runs a graph over one sequence at once. Weights are dequantised on first use and kept."""

    def __init__(self, graph: Graph, weights: Weights) -> None:
        self.graph, self._weights = graph, weights
        self._arrays: dict[str, Array] = {}
        uses = (use for index in range(len(graph.nodes)) for use in weight_uses(graph, index))
        self._shapes = {use.name: use.shape for use in uses if use.role == "vector"}
        self.given: Given | None = None  # vectors in the place of tokens
        self.patches: Patches | None = None  # of an image
        self.held: dict[int, Any] = {}  # by state; Any: what the ops that share it agree on

    def logits(self, tokens: Integers, positions: Integers | None = None) -> Array:
        """Logits (T, n_vocab) of every token, each of which sees those up to its own of `positions` (0..T-1)."""
        return self.output("logits", tokens, positions)

    def encoded(self, patches: Patches) -> dict[str, Array]:
        """The outputs of an encoder's graph by name, of the patches of one image."""
        return self._run(np.zeros(len(patches.places), np.int64), patches=patches, coordinates=patches.places)

    def output(
        self,
        name: str,
        tokens: Integers,
        positions: Integers | None = None,
        given: Given | None = None,
        types: Integers | None = None,
    ) -> Array:
        """One of the graph's outputs: "embedding" (1, n) is that of the whole sequence. `given`: vectors in the place of tokens;
        `types`: 1 for those of the second text of a pair."""
        coordinates = None if given is None else given.coordinates
        return self._run(tokens, positions, given=given, types=types, coordinates=coordinates)[name]

    def _run(
        self,
        tokens: Integers,
        positions: Integers | None = None,
        *,
        patches: Patches | None = None,
        given: Given | None = None,
        types: Integers | None = None,
        coordinates: Positions | None = None,
    ) -> dict[str, Array]:
        self.patches, self.given, self.coordinates = patches, given, coordinates
        self.tokens = np.asarray(tokens, np.int64)
        self.positions = np.arange(len(self.tokens)) if positions is None else np.asarray(positions, np.int64)
        self.adapters = np.zeros(len(self.tokens), np.int64)
        self.types = np.zeros_like(self.tokens) if types is None else np.asarray(types, np.int64)
        values: list[Array] = []
        for node in self.graph.nodes:
            values.append(self.evaluate(node, [values[value] for value in node.inputs]))
        return {name: values[value] for name, value in self.graph.outputs.items()}

    def weight(self, name: str) -> Array:
        """A weight as float32, in NumPy's shape; a vector in the one its op declares, whatever dimensions of one the file has."""
        if name not in self._arrays:
            array = np.asarray(self._weights[name].array(), np.float32)
            self._arrays[name] = array.reshape(self._shapes.get(name, array.shape))
        return self._arrays[name]

    def evaluate(self, node: Node, inputs: list[Array]) -> Array:
        """The value (rows, n) of one node; all rows, wanted or not."""
        return OPS[node.op].reference(self, node, *inputs)
