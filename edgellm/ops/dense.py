"""Looked-up rows, products, sums and elementwise functions of rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from types import MappingProxyType
from typing import Literal

import numpy as np

from edgellm.graph import Builder, Graph, Node, Value
from edgellm.ops._spec import Array, Faults, Inputs, OpSpec, Run, Uses, WeightUse, integer, number, of_columns, same_length, vectors

ONE = np.float32(1.0)


# --- embed ------------------------------------------------------------------------------------------------------------
def embed(g: Builder, name: str, rows: int, n: int, source: Literal["tokens", "positions", "types"] = "tokens") -> Value:
    """Rows of table `name` (rows, n), picked by token id, by position or by the token's type: 1 in the
    second text of a pair, else 0.

    Passes pick by the adapters of a conversation, too: "adapters".
    """
    return g.emit("embed", (), n, (f"{name}.weight",), source=source, rows=rows)


def multiplied_by(node: Node) -> str | None:
    """The matrix of a product, None for other nodes."""
    return node.weights[0] if node.op == "matmul" else None


def looked_up_in(node: Node) -> str | None:
    """The table of which a node has rows, None for other nodes."""
    return node.weights[0] if node.op == "embed" else None


def scaled_product(node: Node) -> Value | None:
    """The product that a node multiplies by a matrix's own scales, None for other nodes."""
    return node.inputs[0] if node.op == "scaled_by" and node.attrs["of_weight"] else None


def learned_positions(graph: Graph) -> bool:
    """True if positions are rows of a table: such a model ends where its table ends."""
    return any(node.op == "embed" and node.attrs["source"] == "positions" for node in graph.nodes)


def _check_embed(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    if node.attrs["source"] not in ("tokens", "positions", "types", "adapters"):
        yield f"has no source {node.attrs['source']}"
    integer(node, "rows")


def _embed_weights(node: Node, inputs: Inputs) -> Uses:
    return (WeightUse(node.weights[0], (integer(node, "rows"), node.n), "table", active=0.0),)


def _embed(run: Run, node: Node) -> Array:
    rows = {"tokens": run.tokens, "positions": run.positions, "adapters": run.adapters, "types": run.types}
    return np.take(run.weight(node.weights[0]), rows[str(node.attrs["source"])], axis=0)


# --- matmul -----------------------------------------------------------------------------------------------------------
def matmul(g: Builder, x: Value, name: str, n: int, bias: str | None = None) -> Value:
    """x @ W.T + bias, with W (n, row length of x). `bias`: the tensor's name where it is not that of the matrix; "": none.

    A tensor `name.scale`, which files of NVFP4 have beside each matrix, multiplies x @ W.T, not the bias.
    """
    names = g.named(name) if bias is None else (f"{name}.weight", *([bias] if bias else []))
    if (factor := g.scale_of(name)) is None:
        return g.emit("matmul", (x,), n, names)
    y = scaled_by(g, g.emit("matmul", (x,), n, names[:1]), factor, one=True, of_weight=not g.owns_scale(name))
    return add_bias(g, y, names[1]) if names[1:] else y


def _check_matmul(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    if len(inputs) == 2 and inputs[1].n != node.n:
        yield f"gives {node.n}, but its residual has {inputs[1].n}"


def _matmul_weights(node: Node, inputs: Inputs) -> Uses:
    return (WeightUse(node.weights[0], (node.n, inputs[0].n), "matrix"), *vectors(node.weights[1:], node.n))


def _matmul(run: Run, node: Node, x: Array, residual: Array | None = None) -> Array:
    # Sums in float64, which round alike whatever BLAS and threads there are.
    y: Array = np.matmul(x, run.weight(node.weights[0]).T, dtype=np.float64).astype(np.float32)
    if len(node.weights) == 2:
        y = y + run.weight(node.weights[1])
    return y if residual is None else residual + y


# --- matmul_glu -------------------------------------------------------------------------------------------------------
def _check_matmul_glu(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    if inputs[1].n != node.n:
        yield f"gives {node.n}, but its gate has {inputs[1].n}"
    if node.attrs["act"] not in GATES_OF_PRODUCTS:
        yield f"has no activation {node.attrs['act']}"


def _matmul_glu(run: Run, node: Node, x: Array, gate: Array) -> Array:
    return np.multiply(ACTIVATIONS[str(node.attrs["act"])](gate), _matmul(run, node, x))


# --- add, mul, scale --------------------------------------------------------------------------------------------------
def add(g: Builder, a: Value, b: Value) -> Value:
    """a + b."""
    return g.emit("add", (a, b), g.n(a))


def _fuse_residual(node: Node, graph: Graph, uses: Counter[Value]) -> Node | None:
    """add(x, matmul(y)), in either order, is matmul(y, x): the product is added where it is computed."""
    for product, residual in (node.inputs[::-1], node.inputs):
        source = graph.nodes[product]
        if source.op == "matmul" and len(source.inputs) == 1 and uses[product] == 1:
            return Node("matmul", (source.inputs[0], residual), node.rows, node.n, source.weights)
    return None


def mul(g: Builder, a: Value, b: Value) -> Value:
    """a * b, elementwise."""
    return g.emit("mul", (a, b), g.n(a))


def _fuse_gate(node: Node, graph: Graph, uses: Counter[Value]) -> Node | None:
    """mul(act(gate), up), in either order, is glu(gate, up)."""
    for gated, up in (node.inputs, node.inputs[::-1]):
        act = graph.nodes[gated]
        if act.op in ACTIVATIONS and uses[gated] == 1:
            return Node("glu", (act.inputs[0], up), node.rows, node.n, attrs=MappingProxyType({"act": act.op}))
    return None


def scale(g: Builder, x: Value, value: float) -> Value:
    """x * value."""
    return g.emit("scale", (x,), g.n(x), value=value)


def _scale(run: Run, node: Node, x: Array) -> Array:
    return x * np.float32(number(node, "value"))


def scaled_by(g: Builder, x: Value, name: str, *, one: bool = False, of_weight: bool = False, heads: int = 1) -> Value:
    """x times the weight `name`, which has a number for each column, of each of `heads` pieces; `one`: a single number for all.

    `of_weight`: they are a part of the matrix that gave the product x, or whose products x weighs, as NVFP4's are. What adapters
    add to that product is not multiplied by them.
    """
    return g.emit("scaled_by", (x,), g.n(x), (name,), one=one, of_weight=of_weight, heads=heads)


def _scaled_by_weights(node: Node, inputs: Inputs) -> Uses:
    return vectors(node.weights, 1 if node.attrs["one"] else node.n // integer(node, "heads"))


def _scaled_by(run: Run, node: Node, x: Array) -> Array:
    y: Array = np.multiply(x, np.tile(run.weight(node.weights[0]), integer(node, "heads")))
    return y


def add_bias(g: Builder, x: Value, name: str) -> Value:
    """x plus the weight `name` (row length of x)."""
    return g.emit("add_bias", (x,), g.n(x), (name,))


def _add_bias(run: Run, node: Node, x: Array) -> Array:
    y: Array = np.add(x, run.weight(node.weights[0]))
    return y


# --- activations ------------------------------------------------------------------------------------------------------
def activation(g: Builder, op: str, x: Value) -> Value:
    """One of ACTIVATIONS."""
    return g.emit(op, (x,), g.n(x))


def _sigmoid(x: Array) -> Array:
    return np.reciprocal(ONE + np.exp(-np.maximum(x, np.float32(-80.0))))  # below -80 exp would overflow


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


def _tanh(x: Array) -> Array:
    y: Array = np.tanh(x)
    return y


def _relu(x: Array) -> Array:
    return np.maximum(x, np.float32(0.0))


def _hard_sigmoid(x: Array) -> Array:
    y: Array = np.clip((x + np.float32(3.0)) * np.float32(1 / 6), np.float32(0.0), ONE)
    return y


def _relu_squared(x: Array) -> Array:
    return np.square(np.maximum(x, np.float32(0.0)))


def _rows_softplus(x: Array) -> Array:
    return np.logaddexp(x, np.float32(0.0))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": _silu,
    "gelu": _gelu,
    "gelu_erf": _gelu_erf,
    "gelu_quick": _gelu_quick,
    "relu_squared": _relu_squared,
    "tanh": _tanh,
    "relu": _relu,
    "sigmoid": _sigmoid,
    "hard_sigmoid": _hard_sigmoid,
    "softplus": _rows_softplus,
}
GATES_OF_PRODUCTS = ("silu", "gelu")  # activations of a gate that a product can apply where it is computed


def _act(run: Run, node: Node, x: Array) -> Array:
    return ACTIVATIONS[node.op](x)


def _check_glu(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    yield from same_length(node, inputs, graph)
    if node.attrs["act"] not in ACTIVATIONS:
        yield f"has no activation {node.attrs['act']}"


def _fuse_product(node: Node, graph: Graph, uses: Counter[Value]) -> Node | None:
    """glu(gate, matmul(x)) is matmul_glu(x, gate): the product is multiplied by act(gate) where it is computed."""
    gate, up = node.inputs
    source = graph.nodes[up]
    if source.op != "matmul" or len(source.inputs) != 1 or uses[up] != 1 or node.attrs["act"] not in GATES_OF_PRODUCTS:
        return None
    return Node("matmul_glu", (source.inputs[0], gate), node.rows, node.n, source.weights, node.attrs)


def _glu(run: Run, node: Node, gate: Array, up: Array) -> Array:
    return np.multiply(ACTIVATIONS[str(node.attrs["act"])](gate), up)


def xielu(g: Builder, x: Value, alpha_p: float, alpha_n: float, beta: float, eps: float) -> Value:
    """xIELU (Huang and Schlag 2025), its numbers as checkpoints store them: see `xielu_numbers`.

    beta x + alpha_p x^2 for x > 0, else beta x + alpha_n (expm1(min(x, eps)) - x); between eps, about -1e-6, and 0 x counts as eps.
    """
    return g.emit("xielu", (x,), g.n(x), alpha_p=alpha_p, alpha_n=alpha_n, beta=beta, eps=eps)


def xielu_numbers(node: Node) -> tuple[float, float, float, float]:
    """alpha_p, alpha_n, beta and eps as the formula has them."""
    beta, eps = number(node, "beta"), number(node, "eps")
    return _softplus(number(node, "alpha_p")), beta + _softplus(number(node, "alpha_n")), beta, eps


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _xielu(run: Run, node: Node, x: Array) -> Array:
    alpha_p, alpha_n, beta, eps = (np.float32(value) for value in xielu_numbers(node))
    low: Array = np.minimum(x, eps)
    return np.multiply(beta, x) + alpha_p * np.square(np.maximum(x, np.float32(0.0))) + alpha_n * (np.expm1(low) - low)


# --- columns, softcap, select -----------------------------------------------------------------------------------------
def columns(g: Builder, x: Value, start: int, stop: int) -> Value:
    """Columns start..stop of x."""
    return g.emit("slice", (x,), stop - start, start=start, stop=stop)


def head_columns(g: Builder, x: Value, heads: int, start: int, stop: int) -> Value:
    """Columns start..stop of each of the `heads` equal pieces of a row, side by side."""
    return g.emit("head_columns", (x,), heads * (stop - start), heads=heads, start=start, stop=stop)


def _check_head_columns(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    heads, start, stop = integer(node, "heads"), integer(node, "start", least=0), integer(node, "stop")
    if inputs[0].n % heads or not start < stop <= inputs[0].n // heads or node.n != heads * (stop - start):
        yield f"cannot take {start}..{stop} of {heads} pieces of {inputs[0].n} as {node.n}"


def _head_columns(run: Run, node: Node, x: Array) -> Array:
    pieces = x.reshape(len(x), integer(node, "heads"), -1)
    return pieces[..., integer(node, "start", least=0) : integer(node, "stop")].reshape(len(x), -1)


def _check_slice(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    start, stop = integer(node, "start", least=0), integer(node, "stop")
    if not start < stop <= inputs[0].n or node.n != stop - start:
        yield f"cannot take {start}..{stop} of {inputs[0].n} as {node.n}"


def _slice(run: Run, node: Node, x: Array) -> Array:
    return x[:, integer(node, "start", least=0) : integer(node, "stop")]


def clamp(g: Builder, x: Value, limit: float | None) -> Value:
    """x clamped to +-limit; unchanged where that is None."""
    return x if limit is None else g.emit("clamp", (x,), g.n(x), limit=limit)


def _clamp(run: Run, node: Node, x: Array) -> Array:
    limit = np.float32(number(node, "limit"))
    return np.clip(x, -limit, limit)


def bounded(g: Builder, x: Value, low: float, high: float) -> Value:
    """x between two numbers, each of which may be infinite."""
    if low > -np.inf:
        x = g.emit("at_least", (x,), g.n(x), limit=low)
    return x if high == np.inf else g.emit("at_most", (x,), g.n(x), limit=high)


def softcap(g: Builder, x: Value, cap: float) -> Value:
    """cap * tanh(x / cap)."""
    return g.emit("softcap", (x,), g.n(x), cap=cap)


def _softcap(run: Run, node: Node, x: Array) -> Array:
    cap = np.float32(number(node, "cap"))
    y: Array = np.multiply(cap, np.tanh(x / cap))
    return y


def select(g: Builder, x: Value) -> Value:
    """The rows whose logits are wanted; of an embedding model all of them, for `ends.logits` pools them."""
    if g.pooling is not None:
        return x
    return g.emit("select", (x,), g.n(x), row_kind="R")


def _check_select(node: Node, inputs: Inputs, graph: Graph) -> Faults:
    yield from same_length(node, inputs, graph)
    if inputs[0].rows != "T":
        yield "cannot mix rows T and R"


OPS = (
    OpSpec("embed", _embed, (0,), {"source", "rows"}, _check_embed, _embed_weights, (1,), rows="T"),
    OpSpec("matmul", _matmul, (1, 2), check=_check_matmul, weights=_matmul_weights, weight_counts=(1, 2)),
    OpSpec("matmul_glu", _matmul_glu, (2,), {"act"}, _check_matmul_glu, _matmul_weights, (1, 2)),
    OpSpec("add", lambda run, node, a, b: np.add(a, b), (2,), fuse=_fuse_residual),
    OpSpec("mul", lambda run, node, a, b: np.multiply(a, b), (2,), fuse=_fuse_gate),
    OpSpec("scale", _scale, attrs={"value"}),
    OpSpec("scaled_by", _scaled_by, attrs={"one", "of_weight", "heads"}, weights=_scaled_by_weights, weight_counts=(1,)),
    OpSpec("add_bias", _add_bias, weights=of_columns, weight_counts=(1,)),
    *(OpSpec(name, _act) for name in ACTIVATIONS),
    OpSpec("glu", _glu, (2,), {"act"}, _check_glu, fuse=_fuse_product),
    OpSpec("slice", _slice, attrs={"start", "stop"}, check=_check_slice, is_view=True),
    OpSpec("clamp", _clamp, attrs={"limit"}),
    OpSpec("at_least", lambda run, node, x: np.maximum(x, np.float32(number(node, "limit"))), attrs={"limit"}),
    OpSpec("at_most", lambda run, node, x: np.minimum(x, np.float32(number(node, "limit"))), attrs={"limit"}),
    OpSpec("xielu", _xielu, attrs={"alpha_p", "alpha_n", "beta", "eps"}),
    OpSpec("head_columns", _head_columns, attrs={"heads", "start", "stop"}, check=_check_head_columns),
    OpSpec("softcap", _softcap, attrs={"cap"}),
    OpSpec("select", lambda run, node, x: x, check=_check_select, rows="R"),
)
