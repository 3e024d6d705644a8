"""The graph of one forward step: immutable nodes, a builder that architectures use, a printer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

Attr: TypeAlias = "int | float | str | bool | tuple[int, ...] | RopeSpec | None"
Rows = Literal["T", "R", "S"]  # T: tokens of this step; R: those whose logits are wanted; S: segments
Value = int  # index of a node in its graph


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """One rotary embedding: everything that its angles depend on, except positions.

    `style`: "norm" rotates neighbours (2i, 2i+1), "neox" rotates (i, i + n_rot/2), "axial" does that in each
    half of the `n_rot` dims, all of the head's; dims past `n_rot` stay as they are.
    Angle of pair i at position p: p * base**(-2i/n_rot) / factors[i] * freq_scale, then YaRN's mix if `yarn` is set.
    cos and sin are multiplied by `magnitude`, and at position p by 1 + growth * log(1 + (p + ahead) // every) if `temperature` says
    so.
    """

    n_rot: int
    style: Literal["norm", "neox", "axial"]
    base: float
    freq_scale: float = 1.0  # 1 / linear scaling factor
    factors: str | None = None  # name of an F32 tensor (n_rot/2,) that divides the frequencies
    magnitude: float = 1.0
    yarn: tuple[float, float, float, int] | None = None  # (ext_factor, beta_fast, beta_slow, original context)
    yarn_whole_pairs: bool = True  # whether YaRN's range is cut to whole pairs
    temperature: tuple[float, int, int] | None = None  # (growth, every, ahead)
    n_factors: int = 0  # length of `factors`, where only the first n_rot/2 count
    axes: tuple[int, ...] = ()  # the coordinate that each pair turns by, where tokens have several; (): their position
    powers: tuple[int, ...] = ()  # i of each pair, where pairs are not numbered through


@dataclass(frozen=True, slots=True)
class KVSpec:
    """State of attention: keys and values, a row per token. `window`: tokens that are seen, the newest included; None: all.

    `causal`: only earlier tokens are seen; otherwise those after it as well, of a window half to each side.
    `chunked`: windows stand side by side; a token sees those of its own window that came before it (Llama 4). Both ways and without
    a `window`: the step says which patches of an image share one (Qwen2.5-VL).
    """

    n_kv_heads: int
    dim_k: int  # of a head
    dim_v: int
    window: int | None = None
    v_is_k_prefix: bool = False  # MLA: a value is the first dim_v dims of its key
    causal: bool = True
    chunked: bool = False


@dataclass(frozen=True, slots=True)
class RecurrentSpec:
    """State of a recurrent layer: one array per conversation, replaced at every token; zeros before the first.

    `factors`: f32 numbers beside it, for back ends that hold parts of a state divided by what they have decayed to.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"  # as NumPy names it
    factors: int = 0

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize + self.factors * 4


StateSpec: TypeAlias = KVSpec | RecurrentSpec


@dataclass(frozen=True, slots=True)
class Node:
    """One value of the graph: (rows, n) float32, made by `op` from earlier nodes and named weights; n = 0: a state changes."""

    op: str
    inputs: tuple[Value, ...]
    rows: Rows
    n: int
    weights: tuple[str, ...] = ()
    attrs: Mapping[str, Attr] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in execution order, the states that some of them read and write, and the values that a step gives by name."""

    nodes: tuple[Node, ...]
    states: tuple[StateSpec, ...]
    outputs: Mapping[str, Value]  # "logits" (R, n_vocab), or "embedding" (S, n)

    @property
    def embeds(self) -> bool:
        """True if it makes vectors of texts: nothing of a text outlives its step."""
        return "embedding" in self.outputs

    @property
    def kv_states(self) -> tuple[KVSpec, ...]:
        """The states that are keys and values."""
        return tuple(state for state in self.states if isinstance(state, KVSpec))

    def __str__(self) -> str:
        """One line per state and per node: `%7 (T, 64) matmul(%6) blk.0.attn_q.weight`."""
        lines = [f"state {index}: {_state_text(state)}" for index, state in enumerate(self.states)]
        width = len(str(len(self.nodes)))
        lines += [_node_line(index, node, width) for index, node in enumerate(self.nodes)]
        return "\n".join([*lines, *(f"{name} %{value}" for name, value in self.outputs.items())])


def _state_text(state: StateSpec) -> str:
    if isinstance(state, RecurrentSpec):
        return f"{state.dtype} {state.shape}"
    window = "all" if state.window is None else str(state.window)
    values = f"the first {state.dim_v} of a key" if state.v_is_k_prefix else str(state.dim_v)
    both = "" if state.causal else ", both ways"
    both += ", side by side" * state.chunked
    return f"kv heads {state.n_kv_heads}, keys {state.dim_k}, values {values}, window {window}{both}"


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
    parts += ["axes " + "".join(map(str, attr.axes))] * bool(attr.axes)
    if attr.yarn is not None:
        parts.append("yarn " + "/".join(f"{part:.7g}" for part in attr.yarn))
    if attr.temperature is not None:
        parts.append("temperature " + "/".join(f"{part:.7g}" for part in attr.temperature))
    return "[" + ", ".join(parts) + "]"


class Builder:
    """Collects the nodes of a graph; the functions of `edgellm.ops` emit them.

    Nothing is checked here: `edgellm.spec.verify` holds the finished graph against the op table and the file.
    """

    def __init__(self, tensors: Mapping[str, tuple[int, ...]], context: int = 0, pooling: str | None = None) -> None:
        """`tensors`: shapes (NumPy order) of the file's tensors by name; `context`: tokens that a conversation is to see.

        `pooling`: how an embedding model makes one vector of a text, see ops/pool.py; None for a model that writes.
        """
        self.tensors, self.context, self.pooling = tensors, context, pooling
        self._nodes: list[Node] = []
        self._states: list[StateSpec] = []
        self._outputs: dict[str, Value] = {}
        self.left_out: tuple[str, ...] = ()  # beginnings of names of tensors that are not needed
        self._own_scales: tuple[str, ...] = ()  # ends of names of weights

    def emit(
        self,
        op: str,
        inputs: tuple[Value, ...],
        n: int,
        weights: tuple[str, ...] = (),
        *,
        row_kind: Rows | None = None,
        **attrs: Attr,
    ) -> Value:
        """Append a node; the index of its value. `row_kind`: None for that of its last input (T without inputs)."""
        rows = row_kind or (self._nodes[inputs[-1]].rows if inputs else "T")
        self._nodes.append(Node(op, inputs, rows, n, weights, MappingProxyType(attrs)))
        return len(self._nodes) - 1

    def state(self, spec: StateSpec) -> int:
        """Declare a state; its index."""
        self._states.append(spec)
        return len(self._states) - 1

    def output(self, name: str, value: Value) -> None:
        """Let every step give a value under this name."""
        self._outputs[name] = value

    def leave_out(self, beginning: str) -> None:
        """Take no notice of tensors whose names begin so: of layers that only draft tokens."""
        self.left_out += (beginning,)

    def n(self, x: Value) -> int:
        """Row length of a value."""
        return self._nodes[x].n

    def rows(self, x: Value) -> Rows:
        """The kind of a value's rows."""
        return self._nodes[x].rows

    def spec_of(self, state: int) -> StateSpec:
        return self._states[state]

    def named(self, name: str) -> tuple[str, ...]:
        """The tensors of a weight: `.weight`, and `.bias` if the file has one."""
        bias = f"{name}.bias"
        return (f"{name}.weight", bias) if bias in self.tensors else (f"{name}.weight",)

    def scale_of(self, name: str) -> str | None:
        """The tensor with what products with the weight `name` are multiplied with; of experts, with a number for each."""
        scale = f"{name}.scale"  # that of Gemma 4's router is for its input
        return scale if scale in self.tensors and not name.endswith(".ffn_gate_inp") else None

    def own_scales(self, *parts: str) -> None:
        """Treat the tensors `.scale` of these parts of a layer as weights of their own, which multiply what adapters add as well.

        Others are a part of the matrix beside them, as NVFP4's are: an adapter was trained beside the product of both.
        """
        self._own_scales += tuple(f".{part}" for part in parts)

    def owns_scale(self, name: str) -> bool:
        """True if the scale of the weight `name` was named by `own_scales`."""
        return name.endswith(self._own_scales)

    def norm_weight(self, name: str) -> str:
        """`name.weight`, or `name` where the file has that instead, as Falcon-H1's files have."""
        return name if name in self.tensors else f"{name}.weight"

    def graph(self) -> Graph:
        """The finished graph."""
        return Graph(tuple(self._nodes), tuple(self._states), MappingProxyType(dict(self._outputs)))
