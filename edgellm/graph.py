"""The graph of one forward step: immutable nodes, a builder that architectures use, a printer."""
from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

Attr: TypeAlias = "int | float | str | bool | tuple[int, ...] | RopeSpec | None"
Rows = Literal["T", "R"]          # T: tokens of this step; R: those whose logits are wanted
Value = int                       # index of a node in its graph


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """One rotary embedding: everything that its angles depend on, except positions.

    `style`: "norm" rotates neighbours (2i, 2i+1), "neox" rotates (i, i + n_rot/2); dims past `n_rot` stay as they are.
    Angle of pair i at position p: p * base**(-2i/n_rot) / factors[i] * freq_scale, then YaRN's mix if `yarn` is set.
    cos and sin are multiplied by `magnitude`.
    """

    n_rot: int
    style: Literal["norm", "neox"]
    base: float
    freq_scale: float = 1.0                      # 1 / linear scaling factor
    factors: str | None = None                   # name of an F32 tensor (n_rot/2,) that divides the frequencies
    magnitude: float = 1.0
    yarn: tuple[float, float, float, int] | None = None   # (ext_factor, beta_fast, beta_slow, original context)


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """What one attention layer keeps per token. `window`: tokens that it sees, itself included; None: all."""

    n_kv_heads: int
    head_dim_k: int
    head_dim_v: int
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One value of the graph: (rows, n) float32, made by `op` from earlier nodes and named weights."""

    op: str
    inputs: tuple[Value, ...]
    rows: Rows
    n: int
    weights: tuple[str, ...] = ()
    attrs: Mapping[str, Attr] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in execution order; `output` is the index of the logits; `memory` has one entry per attention layer."""

    nodes: tuple[Node, ...]
    output: Value
    memory: tuple[LayerMemory, ...]

    def __str__(self) -> str:
        """One line per attention layer's memory and per node: `%7 (T, 64) matmul(%6) blk.0.attn_q.weight`."""
        lines = [_memory_line(layer, memory) for layer, memory in enumerate(self.memory)]
        width = len(str(len(self.nodes)))
        lines += [_node_line(index, node, width) for index, node in enumerate(self.nodes)]
        return "\n".join([*lines, f"output %{self.output}"])


def _memory_line(layer: int, memory: LayerMemory) -> str:
    window = "all" if memory.window is None else str(memory.window)
    sizes = f"heads {memory.n_kv_heads}, keys {memory.head_dim_k}, values {memory.head_dim_v}"
    return f"memory {layer}: {sizes}, window {window}"


def _node_line(index: int, node: Node, width: int) -> str:
    arguments = [f"%{value}" for value in node.inputs]
    arguments += [f"{key}={_attr_text(attr)}" for key, attr in node.attrs.items()]
    left = f"%{index:<{width}} ({node.rows}, {node.n}) {node.op}({', '.join(arguments)})"
    return " ".join([left, *node.weights])


def _attr_text(attr: Attr) -> str:
    if not isinstance(attr, RopeSpec):
        return f"{attr:.7g}" if isinstance(attr, float) else str(attr)
    parts = [attr.style, str(attr.n_rot), f"base {attr.base:.7g}"]
    parts += [f"scale {attr.freq_scale:.7g}"] * (attr.freq_scale != 1.0)
    parts += [f"factors {attr.factors}"] * (attr.factors is not None)
    parts += [f"magnitude {attr.magnitude:.7g}"] * (attr.magnitude != 1.0)
    if attr.yarn is not None:
        parts.append("yarn " + "/".join(f"{part:.7g}" for part in attr.yarn))
    return "[" + ", ".join(parts) + "]"


class Builder:
    """Collects the nodes of a graph. Weights are named without suffix: `.weight` is added, `.bias` if the file has it.

    Nothing is checked here: `edgellm.spec.verify` holds the finished graph against the op table and the file.
    """

    def __init__(self, tensors: Collection[str]) -> None:
        """`tensors`: the names that the file has."""
        self.tensors = tensors
        self._nodes: list[Node] = []
        self._memory: list[LayerMemory] = []

    def emit(self, op: str, inputs: tuple[Value, ...], n: int, weights: tuple[str, ...] = (), **attrs: Attr) -> Value:
        """Append a node with the row kind of its last input (T without inputs); the index of its value."""
        rows: Rows = self._nodes[inputs[-1]].rows if inputs else "T"
        self._nodes.append(Node(op, inputs, rows, n, weights, MappingProxyType(attrs)))
        return len(self._nodes) - 1

    def n(self, x: Value) -> int:
        """Row length of a value."""
        return self._nodes[x].n

    def _named(self, name: str) -> tuple[str, ...]:
        bias = f"{name}.bias"
        return (f"{name}.weight", bias) if bias in self.tensors else (f"{name}.weight",)

    def embed(self, name: str, rows: int, n: int, source: Literal["tokens", "positions"] = "tokens") -> Value:
        """Rows of table `name` (rows, n), picked by token id or by position."""
        return self.emit("embed", (), n, (f"{name}.weight",), source=source, rows=rows)

    def add(self, a: Value, b: Value) -> Value:
        """a + b."""
        return self.emit("add", (a, b), self.n(a))

    def mul(self, a: Value, b: Value) -> Value:
        """a * b, elementwise."""
        return self.emit("mul", (a, b), self.n(a))

    def scale(self, x: Value, value: float) -> Value:
        """x * value."""
        return self.emit("scale", (x,), self.n(x), value=value)

    def rms_norm(self, x: Value, name: str, eps: float, groups: int = 1) -> Value:
        """Each of `groups` pieces of a row divided by its root mean square, times weight (n/groups,)."""
        return self.emit("rms_norm", (x,), self.n(x), (f"{name}.weight",), eps=eps, groups=groups)

    def layer_norm(self, x: Value, name: str, eps: float) -> Value:
        """Rows with mean 0 and variance 1, times weight (n,) plus bias (n,) where there is one."""
        return self.emit("layer_norm", (x,), self.n(x), self._named(name), eps=eps)

    def matmul(self, x: Value, name: str, n: int) -> Value:
        """x @ W.T + bias, with W (n, row length of x)."""
        return self.emit("matmul", (x,), n, self._named(name))

    def rope(self, x: Value, spec: RopeSpec, heads: int, positions: Literal["true", "sink"] = "true") -> Value:
        """Every head of x rotated by its token's position, or by where the query stands for sink keys."""
        return self.emit("rope", (x,), self.n(x), rope=spec, heads=heads, positions=positions)

    def attention(self, q: Value, q_sink: Value, k: Value, v: Value, memory: LayerMemory, n_heads: int, scale: float,
                  softcap: float | None = None) -> Value:
        """Keys and values go to a new layer of memory, then every query attends: (T, n_heads * head_dim_v)."""
        self._memory.append(memory)
        return self.emit("attention", (q, q_sink, k, v), n_heads * memory.head_dim_v, layer=len(self._memory) - 1,
                         n_heads=n_heads, scale=scale, softcap=softcap)

    def activation(self, op: str, x: Value) -> Value:
        """One of silu, gelu (tanh form), gelu_erf, gelu_quick."""
        return self.emit(op, (x,), self.n(x))

    def slice(self, x: Value, start: int, stop: int) -> Value:
        """Columns start..stop of x."""
        return self.emit("slice", (x,), stop - start, start=start, stop=stop)

    def softcap(self, x: Value, cap: float) -> Value:
        """cap * tanh(x / cap)."""
        return self.emit("softcap", (x,), self.n(x), cap=cap)

    def select(self, x: Value) -> Value:
        """The rows whose logits are wanted."""
        value = self.emit("select", (x,), self.n(x))
        node = self._nodes[value]
        self._nodes[value] = Node(node.op, node.inputs, "R", node.n)
        return value

    def graph(self, output: Value) -> Graph:
        """The finished graph."""
        return Graph(tuple(self._nodes), output, tuple(self._memory))
