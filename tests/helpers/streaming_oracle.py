"""StreamingLLM as in its paper, in NumPy: keep sinks and a window of unrotated keys, rotate all of them at every step.

The engine stores rotated keys and turns the query twice instead (edgellm/memory); this is what it must agree with.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgellm.graph import Graph, Node, RopeSpec
from edgellm.ops._spec import Array
from edgellm.ops.attention import by_head, weighted
from edgellm.ops.dense import learned_positions
from edgellm.ops.rope import turn
from edgellm.reference import Reference, Weights
from edgellm.rope import cos_sin, frequencies


class StreamingOracle(Reference):
    """One conversation, token by token. `context`: tokens that a full layer keeps, `sinks` of them from the start.

    Sliding layers whose window is smaller than `context` keep their window and no sinks. Positions are places in the
    cache, as in Xiao et al. 2023 (Efficient Streaming Language Models with Attention Sinks), section 3.2.
    """

    def __init__(self, graph: Graph, weights: Weights, context: int, sinks: int) -> None:
        super().__init__(graph, weights)
        sliding = [memory.window is not None and memory.window < context for memory in graph.kv_states]
        self._caches = [
            _Cache(memory.window if slides else context, 0 if slides else sinks, memory.n_kv_heads, memory.dim_k, memory.dim_v)
            for memory, slides in zip(graph.kv_states, sliding, strict=True)
        ]
        self._turns: dict[int, tuple[Array, Array]] = {}
        self._steps, self._context = 0, context

    def step(self, token: int) -> Array:
        """Logits (n_vocab,) after one more token."""
        assert self._steps < self._context or not learned_positions(self.graph), "learned positions cannot slide"
        row: Array = self.logits([token], [self._steps])[0]
        self._steps += 1
        return row

    def evaluate(self, node: Node, inputs: list[Array]) -> Array:
        """Nothing is turned before it is stored."""
        if node.op == "rope":
            return inputs[0]
        if node.op == "attend":
            return self._attend(node, inputs[0])
        value = super().evaluate(node, inputs)
        if node.op == "kv_write":
            state = node.attrs["state"]
            assert isinstance(state, int)
            self.held[state] = self._caches[state].append(*self.held[state])
        return value

    def _attend(self, node: Node, q: Array) -> Array:
        state = node.attrs["state"]
        assert isinstance(state, int)
        keys, values = self.held[state]
        heads = by_head(q, q.shape[1] // keys.shape[-1])
        source = node.inputs[0]
        joined = self.graph.nodes[source].op == "join"  # heads whose last part is rotated
        if joined:
            source = self.graph.nodes[source].inputs[1]
        turning = self.graph.nodes[source].attrs.get("rope")
        if isinstance(turning, RopeSpec):
            n, plain = keys.shape[1], keys.shape[2] - turning.n_rot if joined else 0
            cos, sin = self._turn(source, turning, self._caches[state].capacity)
            heads, keys = (
                np.concatenate([x[..., :plain], turn(x[..., plain:], turning, *tables)], axis=-1)
                for x, tables in ((heads, (cos[n - 1 : n], sin[n - 1 : n])), (keys, (cos[:n], sin[:n])))
            )
        seen: npt.NDArray[np.bool_] = np.ones((1, keys.shape[1]), np.bool_)
        return weighted(node, heads, keys, values, seen, np.arange(keys.shape[1])[None, ::-1]).reshape(1, -1)

    def _turn(self, node: int, spec: RopeSpec, capacity: int) -> tuple[Array, Array]:
        """cos and sin (capacity, n_rot/2) of every place in a cache."""
        if node not in self._turns:
            found = frequencies(spec, None if spec.factors is None else self.weight(spec.factors))
            self._turns[node] = cos_sin(spec, np.arange(capacity), *found)
        return self._turns[node]


class _Cache:
    """Unrotated keys and values of one layer in order of age, by head: (heads, capacity, dims)."""

    def __init__(self, capacity: int | None, sinks: int, n_heads: int, dims_k: int, dims_v: int) -> None:
        assert capacity is not None
        self.capacity, self.sinks, self.n = capacity, sinks, 0
        self.keys, self.values = (np.zeros((n_heads, capacity, dims), np.float32) for dims in (dims_k, dims_v))

    def append(self, k: Array, v: Array) -> tuple[Array, Array]:
        """Store one token (heads, 1, dims), dropping the oldest that is not a sink; all that is kept, (heads, n, dims)."""
        if self.n == self.capacity:
            for held in (self.keys, self.values):
                held[:, self.sinks : -1] = held[:, self.sinks + 1 :].copy()
            self.n -= 1
        self.keys[:, self.n] = k[:, 0]
        self.values[:, self.n] = v[:, 0]
        self.n += 1
        return self.keys[:, : self.n], self.values[:, : self.n]
