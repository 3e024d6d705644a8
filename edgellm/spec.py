"""Which graphs are legal: the op table, its shape rules, and the check of a graph against a file's tensors."""
from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from edgellm.errors import BadTensorInfo, ShapeMismatch, Unsupported
from edgellm.formats.ggml_types import MLX, GGMLType
from edgellm.graph import Graph, Node, RopeSpec

ACTIVATIONS = ("silu", "gelu", "gelu_erf", "gelu_quick")
VECTOR_TYPES = ("F32", "F16", "BF16")            # of norms, biases and rope factors: exact in float32
UNUSED = re.compile(r"rope_(freqs|factors_long|factors_short)\.weight|blk\.\d+\.(attn_rot_embd|rope_freqs)\.weight")


class GraphError(ValueError):
    """A graph that breaks the op table: a fault of an architecture file or a pass, never of a model file."""


class TensorLike(Protocol):
    """What is known of a tensor without reading it; `shape` in NumPy order."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def type(self) -> GGMLType: ...


class Rule(NamedTuple):
    """What one op takes. `check` gets the node, its input nodes and the graph; it yields what is wrong."""

    inputs: tuple[int, ...]                      # allowed numbers of inputs
    weights: tuple[int, ...]                     # allowed numbers of weights
    attrs: frozenset[str]
    check: Callable[[Node, Sequence[Node], Graph], Iterator[str]]


def _same_length(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    if any(x.n != node.n for x in inputs):
        yield f"gives {node.n} from inputs of {[x.n for x in inputs]}"


def _embed(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    if node.attrs["source"] not in ("tokens", "positions"):
        yield f"has no source {node.attrs['source']}"
    _integer(node, "rows")


def _rms_norm(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    yield from _same_length(node, inputs, graph)
    if node.n % _integer(node, "groups"):
        yield f"cannot split {node.n} into {node.attrs['groups']} groups"


def _matmul(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    if len(inputs) == 2 and inputs[1].n != node.n:
        yield f"gives {node.n}, but its residual has {inputs[1].n}"


def _rope(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    yield from _same_length(node, inputs, graph)
    spec, heads = node.attrs["rope"], _integer(node, "heads")
    if not isinstance(spec, RopeSpec) or node.n % heads:
        yield f"cannot split {node.n} into {heads} heads"
    elif spec.n_rot % 2 or not 0 < spec.n_rot <= node.n // heads:
        yield f"cannot rotate {spec.n_rot} of {node.n // heads} dims"
    if node.attrs["positions"] not in ("true", "sink"):
        yield f"has no positions {node.attrs['positions']}"


def _attention(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    layer, n_heads = _integer(node, "layer"), _integer(node, "n_heads")
    if not 0 <= layer < len(graph.memory):
        yield f"names layer {layer} of {len(graph.memory)}"
        return
    memory = graph.memory[layer]
    if n_heads % memory.n_kv_heads:
        yield f"cannot share {memory.n_kv_heads} key heads among {n_heads}"
    n_q, n_kv = n_heads * memory.head_dim_k, memory.n_kv_heads
    needs = [n_q, n_q, n_kv * memory.head_dim_k, n_kv * memory.head_dim_v]
    if [x.n for x in inputs] != needs or node.n != n_heads * memory.head_dim_v:
        yield f"gives {node.n} from inputs of {[x.n for x in inputs]}, not from {needs}"
    if node.rows != "T":
        yield "stores every token, so it needs all rows"


def _glu(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    yield from _same_length(node, inputs, graph)
    if node.attrs["act"] not in ACTIVATIONS:
        yield f"has no activation {node.attrs['act']}"


def _slice(node: Node, inputs: Sequence[Node], graph: Graph) -> Iterator[str]:
    start, stop = _integer(node, "start"), _integer(node, "stop")
    if not 0 <= start < stop <= inputs[0].n or node.n != stop - start:
        yield f"cannot take {start}..{stop} of {inputs[0].n} as {node.n}"


def _rule(check: Callable[[Node, Sequence[Node], Graph], Iterator[str]], *attrs: str, inputs: tuple[int, ...] = (1,),
          weights: tuple[int, ...] = (0,)) -> Rule:
    return Rule(inputs, weights, frozenset(attrs), check)


OPS: Mapping[str, Rule] = {
    "embed": _rule(_embed, "source", "rows", inputs=(0,), weights=(1,)),
    "add": _rule(_same_length, inputs=(2,)),
    "mul": _rule(_same_length, inputs=(2,)),
    "scale": _rule(_same_length, "value"),
    "rms_norm": _rule(_rms_norm, "eps", "groups", weights=(1,)),
    "layer_norm": _rule(_same_length, "eps", weights=(1, 2)),
    "matmul": _rule(_matmul, inputs=(1, 2), weights=(1, 2)),
    "rope": _rule(_rope, "rope", "heads", "positions"),
    "attention": _rule(_attention, "layer", "n_heads", "scale", "softcap", inputs=(4,)),
    **{name: _rule(_same_length) for name in ACTIVATIONS},
    "glu": _rule(_glu, "act", inputs=(2,)),
    "slice": _rule(_slice, "start", "stop"),
    "softcap": _rule(_same_length, "cap"),
    "select": _rule(_same_length),
}


def _integer(node: Node, attr: str) -> int:
    value = node.attrs[attr]
    if not isinstance(value, int) or (value <= 0 and attr not in ("start", "layer")):
        raise GraphError(f"{node.op}: {attr} cannot be {value}")
    return value


def check_graph(graph: Graph) -> None:
    """Hold a graph against the op table. Raises GraphError naming the node."""
    for index, node in enumerate(graph.nodes):
        for fault in _faults(graph, index, node):
            raise GraphError(f"%{index} {node.op}: {fault}")
    layers = [node.attrs["layer"] for node in graph.nodes if node.op == "attention"]
    if sorted(map(int, layers)) != list(range(len(graph.memory))):      # type: ignore[arg-type]  # checked to be int above
        raise GraphError(f"attention layers {layers} do not use each of {len(graph.memory)} memories once")
    if not 0 <= graph.output < len(graph.nodes) or graph.nodes[graph.output].rows != "R":
        raise GraphError(f"output %{graph.output} is no value with the wanted rows")


def _faults(graph: Graph, index: int, node: Node) -> Iterator[str]:
    rule = OPS.get(node.op)
    if rule is None:
        yield "is no op"
        return
    if len(node.inputs) not in rule.inputs or any(not 0 <= value < index for value in node.inputs):
        yield f"cannot take inputs {node.inputs}"
        return
    if len(node.weights) not in rule.weights:
        yield f"cannot take weights {node.weights}"
    if frozenset(node.attrs) != rule.attrs:
        yield f"has attributes {sorted(node.attrs)}, needs {sorted(rule.attrs)}"
        return
    inputs = [graph.nodes[value] for value in node.inputs]
    if node.n <= 0 or node.rows != ("R" if node.op == "select" else inputs[0].rows if inputs else "T"):
        yield f"cannot be ({node.rows}, {node.n})"
    if len({x.rows for x in inputs}) > 1 or (node.op == "select" and inputs[0].rows == "R"):
        yield "cannot mix rows T and R"
    yield from rule.check(node, inputs, graph)


def matrices(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Weight matrices that the graph needs, by name: (rows, columns)."""
    found: dict[str, tuple[int, ...]] = {}
    for node in graph.nodes:
        if node.op == "embed":
            found[node.weights[0]] = (_integer(node, "rows"), node.n)
        elif node.op == "matmul":
            found[node.weights[0]] = (node.n, graph.nodes[node.inputs[0]].n)
    return found


def vectors(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Norm weights, biases and rope factors that the graph needs, by name."""
    found: dict[str, tuple[int, ...]] = {}
    for node in graph.nodes:
        names = node.weights[1:] if node.op in ("matmul", "embed") else node.weights
        groups = _integer(node, "groups") if "groups" in node.attrs else 1
        found |= dict.fromkeys(names, (node.n // groups,))
        spec = node.attrs.get("rope")
        if isinstance(spec, RopeSpec) and spec.factors is not None:
            found[spec.factors] = (spec.n_rot // 2,)
    return found


def verify(graph: Graph, tensors: Mapping[str, TensorLike], *, file: str | os.PathLike[str] = "") -> None:
    """Check a graph, then that the file has each tensor that it needs, and none that it ignores.

    Raises BadTensorInfo (missing), ShapeMismatch, Unsupported (type or unknown tensor); GraphError for our own faults.
    """
    from edgellm.formats.codecs import CODECS  # here, so that `import edgellm` does not pay for it

    check_graph(graph)
    wanted_matrices, wanted_vectors = matrices(graph), vectors(graph)
    for name, shape in (wanted_matrices | wanted_vectors).items():
        info = tensors.get(name)
        if info is None:
            raise BadTensorInfo("the architecture needs this tensor and the file lacks it; get a complete file",
                                file=file, field=name)
        if tuple(info.shape) != shape:
            raise ShapeMismatch(f"has shape {tuple(info.shape)}, the architecture needs {shape}; the file is damaged "
                                "or its hyperparameters belong to another model", file=file, field=name)
        if info.type.name not in CODECS and info.type.origin != MLX:
            raise Unsupported(info.type.refusal, file=file, field=name)
        if name in wanted_vectors and info.type.name not in VECTOR_TYPES:
            raise Unsupported(f"is stored as {info.type.name}, but a norm, bias or rope factor must be one of "
                              f"{', '.join(VECTOR_TYPES)}; quantise the model again with llama-quantize",
                              file=file, field=name)
    for name in tensors:
        if name not in wanted_matrices and name not in wanted_vectors and not UNUSED.fullmatch(name):
            raise Unsupported("the architecture has no such tensor, so this is a variant that edgellm cannot run yet; "
                              "take the plain model", file=file, field=name)

