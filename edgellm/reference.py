"""The oracle: any graph in plain NumPy float32, with rotary angles in float64. Slow and simple on purpose."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edgellm.graph import Graph, Node, RopeSpec
from edgellm.rope import frequencies

Array = npt.NDArray[np.float32]
Integers = Sequence[int] | npt.NDArray[np.integer[Any]]      # any width
ONE = np.float32(1.0)


class ArrayLike(Protocol):
    """A weight that can be read whole."""

    def array(self) -> Array: ...


class Weights(Protocol):
    """Weights by GGUF name; `edgellm.weights.WeightStore` is one."""

    def __getitem__(self, name: str) -> ArrayLike: ...


class Reference:
    """Runs a graph over one whole sequence. Weights are dequantised on first use and kept."""

    def __init__(self, graph: Graph, weights: Weights) -> None:
        self.graph, self._weights = graph, weights
        self._arrays: dict[str, Array] = {}

    def logits(self, tokens: Integers, positions: Integers | None = None) -> Array:
        """Logits (T, n_vocab) of every token, each of which sees those up to its own of `positions` (0..T-1)."""
        self.tokens = np.asarray(tokens, np.int64)
        self.positions = np.arange(len(self.tokens)) if positions is None else np.asarray(positions, np.int64)
        values: list[Array] = []
        for node in self.graph.nodes:
            values.append(self.evaluate(node, [values[value] for value in node.inputs]))
        return values[self.graph.output]

    def weight(self, name: str) -> Array:
        """A weight as float32, in NumPy's shape."""
        if name not in self._arrays:
            self._arrays[name] = np.asarray(self._weights[name].array(), np.float32)
        return self._arrays[name]

    def evaluate(self, node: Node, inputs: list[Array]) -> Array:
        """The value (T, n) of one node."""
        if node.op in ELEMENTWISE:
            return ELEMENTWISE[node.op](*inputs)
        method: Callable[..., Array] = getattr(self, node.op)
        return method(node, *inputs)

    def embed(self, node: Node) -> Array:
        rows = self.tokens if node.attrs["source"] == "tokens" else self.positions
        return np.take(self.weight(node.weights[0]), rows, axis=0)

    def scale(self, node: Node, x: Array) -> Array:
        return x * np.float32(_number(node, "value"))

    def rms_norm(self, node: Node, x: Array) -> Array:
        pieces = x.reshape(len(x), int(_number(node, "groups")), -1)
        mean_square = np.mean(np.square(pieces), axis=-1, keepdims=True)
        normal = pieces / np.sqrt(mean_square + np.float32(_number(node, "eps")))
        y: Array = normal * self.weight(node.weights[0])
        return y.reshape(x.shape)

    def layer_norm(self, node: Node, x: Array) -> Array:
        centred = x - np.mean(x, axis=-1, keepdims=True)
        variance = np.mean(np.square(centred), axis=-1, keepdims=True)
        y: Array = centred / np.sqrt(variance + np.float32(_number(node, "eps"))) * self.weight(node.weights[0])
        return np.add(y, self.weight(node.weights[1])) if len(node.weights) == 2 else y

    def matmul(self, node: Node, x: Array, residual: Array | None = None) -> Array:
        y: Array = x @ self.weight(node.weights[0]).T
        if len(node.weights) == 2:
            y = y + self.weight(node.weights[1])
        return y if residual is None else residual + y

    def glu(self, node: Node, gate: Array, up: Array) -> Array:
        return np.multiply(ELEMENTWISE[str(node.attrs["act"])](gate), up)

    def slice(self, node: Node, x: Array) -> Array:
        return x[:, int(_number(node, "start")):int(_number(node, "stop"))]

    def softcap(self, node: Node, x: Array) -> Array:
        cap = np.float32(_number(node, "cap"))
        y: Array = np.multiply(cap, np.tanh(x / cap))
        return y

    def select(self, node: Node, x: Array) -> Array:
        return x

    def rope(self, node: Node, x: Array) -> Array:
        """Nothing is ever evicted here, so queries stand at the same place for sinks and for the window."""
        heads = x.reshape(len(x), int(_number(node, "heads")), -1)
        return self.rotate(node, heads, self.positions).reshape(x.shape)

    def rotate(self, node: Node, x: Array, positions: npt.NDArray[np.int64]) -> Array:
        """Heads x (T, heads, head_dim) turned as the rope node says, for tokens at `positions` (T,)."""
        spec = node.attrs["rope"]
        assert isinstance(spec, RopeSpec)
        turning, magnitude = frequencies(spec, None if spec.factors is None else self.weight(spec.factors))
        angles = positions[:, None, None] * turning
        cos, sin = magnitude * np.cos(angles), magnitude * np.sin(angles)
        return turn(x, spec, cos.astype(np.float32), sin.astype(np.float32))

    def attention(self, node: Node, q: Array, q_sink: Array, k: Array, v: Array) -> Array:
        memory = self.graph.memory[int(_number(node, "layer"))]
        distance = self.positions[:, None] - self.positions[None, :]
        seen = distance >= 0
        if memory.window is not None:
            seen &= distance < memory.window
        y = attend(node, by_head(q, int(_number(node, "n_heads"))), by_head(k, memory.n_kv_heads),
                   by_head(v, memory.n_kv_heads), seen)
        return y.swapaxes(0, 1).reshape(len(q), -1)


def _number(node: Node, attr: str) -> float:
    value = node.attrs[attr]
    assert isinstance(value, (int, float))
    return value


def by_head(x: Array, heads: int) -> Array:
    """(T, heads * d) -> (heads, T, d)."""
    return x.reshape(len(x), heads, -1).swapaxes(0, 1)


def turn(x: Array, spec: RopeSpec, cos: Array, sin: Array) -> Array:
    """x (..., head_dim) with its first n_rot dims rotated pair by pair; cos and sin broadcast to (..., n_rot/2)."""
    y, half = x.copy(), spec.n_rot // 2
    a, b = slice(0, spec.n_rot, 2), slice(1, spec.n_rot, 2)
    if spec.style == "neox":
        a, b = slice(0, half), slice(half, spec.n_rot)
    y[..., a] = x[..., a] * cos - x[..., b] * sin
    y[..., b] = x[..., a] * sin + x[..., b] * cos
    return y


def attend(node: Node, q: Array, k: Array, v: Array, seen: npt.NDArray[np.bool_]) -> Array:
    """q (heads, T, d), k (kv heads, S, d), v (kv heads, S, e), seen (T, S) -> (heads, T, e)."""
    q_of_kv = q.reshape(k.shape[0], -1, *q.shape[1:])                  # (kv heads, query heads of each, T, d)
    scores = q_of_kv @ k[:, None].swapaxes(-1, -2) * np.float32(_number(node, "scale"))
    if node.attrs["softcap"] is not None:
        cap = np.float32(_number(node, "softcap"))
        scores = cap * np.tanh(scores / cap)
    scores = np.where(seen, scores, np.float32(-np.inf))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    y: Array = (weights @ v[:, None]).reshape(*q.shape[:2], -1)
    return y


def _sigmoid(x: Array) -> Array:
    return np.reciprocal(ONE + np.exp(-np.maximum(x, np.float32(-80.0))))      # below -80 exp would overflow


def _silu(x: Array) -> Array:
    return np.multiply(x, _sigmoid(x))


def _gelu(x: Array) -> Array:
    inner = np.float32(math.sqrt(2.0 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    y: Array = np.multiply(np.float32(0.5) * x, ONE + np.tanh(inner))
    return y


def _gelu_erf(x: Array) -> Array:
    erf = np.vectorize(math.erf, otypes=[np.float32])
    y: Array = np.multiply(np.float32(0.5) * x, ONE + erf(x / np.float32(math.sqrt(2.0))))
    return y


def _gelu_quick(x: Array) -> Array:
    return np.multiply(x, _sigmoid(np.float32(1.702) * x))


ELEMENTWISE: dict[str, Callable[..., Array]] = {
    "add": np.add, "mul": np.multiply, "silu": _silu, "gelu": _gelu, "gelu_erf": _gelu_erf, "gelu_quick": _gelu_quick,
}
