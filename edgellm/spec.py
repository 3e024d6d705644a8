"""Which graphs are legal: the check of a graph against the op table and against a file's tensors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Protocol

from edgellm.errors import BadTensorInfo, ShapeMismatch, Unsupported
from edgellm.formats.ggml_types import MLX, GGMLType
from edgellm.graph import Graph, Node
from edgellm.ops import OPS, GraphError, WeightUse, state_of, weight_uses

VECTOR_TYPES = ("F32", "F16", "BF16")  # of norms, biases and rope factors: exact in float32
UNUSED = re.compile(
    r"rope_(freqs|factors_long|factors_short)\.weight|blk\.\d+\.(attn_rot_embd|rope_freqs)\.weight|"
    r".*\.input_scale"
)  # of activations in NVFP4, which products here do not take
OF_LOGITS = ("output.weight", "output.bias")  # which embedding models may have left from a model that wrote
Shape = tuple[int, ...]


class TensorLike(Protocol):
    """A tensor as the header describes it; `shape` in NumPy order."""

    @property
    def shape(self) -> Shape: ...

    @property
    def type(self) -> GGMLType: ...


def check_graph(graph: Graph) -> None:
    """Hold a graph against the op table. Raises GraphError naming the node."""
    for index, node in enumerate(graph.nodes):
        for fault in _faults(graph, index, node):
            raise GraphError(f"%{index} {node.op}: {fault}")
    _check_states(graph)
    if not graph.outputs:
        raise GraphError("has no outputs")
    for name, value in graph.outputs.items():
        if not 0 <= value < len(graph.nodes) or graph.nodes[value].rows == "T":
            raise GraphError(f"output {name} %{value} is not a value with the wanted rows, or a row per segment")


def _check_states(graph: Graph) -> None:
    """Each state is written once, and read after that."""
    written: set[int | None] = set()
    for index, node in enumerate(graph.nodes):
        effect, state = OPS[node.op].effect, state_of(graph, index)
        if effect in ("write", "update"):
            if state in written:
                raise GraphError(f"%{index} {node.op}: writes state {state} a second time")
            written.add(state)
        elif effect == "read" and state not in written:
            raise GraphError(f"%{index} {node.op}: reads state {state} before it is written")
    if len(written) != len(graph.states):
        raise GraphError(f"{len(written)} of {len(graph.states)} states are written")


def _faults(graph: Graph, index: int, node: Node) -> Iterator[str]:
    spec = OPS.get(node.op)
    if spec is None:
        yield "is not an op"
        return
    if len(node.inputs) not in spec.inputs or any(not 0 <= value < index for value in node.inputs):
        yield f"cannot take inputs {node.inputs}"
        return
    if len(node.weights) not in spec.weight_counts:
        yield f"cannot take weights {node.weights}"
    if node.attrs.keys() != spec.attrs:
        yield f"has attributes {sorted(node.attrs)}, needs {sorted(spec.attrs)}"
        return
    inputs = [graph.nodes[value] for value in node.inputs]
    if node.n < (spec.effect != "write") or node.rows != (spec.rows or inputs[0].rows):
        yield f"cannot be ({node.rows}, {node.n})"
    if len({x.rows for x in inputs}) > 1:
        yield "cannot mix kinds of rows"
    yield from spec.check(node, inputs, graph)


def uses(graph: Graph) -> Iterator[WeightUse]:
    """The tensors that each node needs, in order."""
    for index in range(len(graph.nodes)):
        yield from weight_uses(graph, index)


def matrices(graph: Graph) -> dict[str, Shape]:
    """Weight matrices and tables that the graph needs, by name: (rows, columns)."""
    return {use.name: use.shape for use in uses(graph) if use.role != "vector"}


def vectors(graph: Graph) -> dict[str, Shape]:
    """Norm weights, biases and rope factors that the graph needs, by name."""
    return {use.name: use.shape for use in uses(graph) if use.role == "vector"}


def _bare(shape: Shape) -> Shape:
    """Without dimensions of one, of which files have more or less."""
    return tuple(n for n in shape if n != 1)


def verify(
    graph: Graph, tensors: Mapping[str, TensorLike], *, file: str | os.PathLike[str] = "", left_out: tuple[str, ...] = ()
) -> None:
    """Check a graph, then that the file has each tensor that it needs, and none that it ignores but those `left_out`.

    Raises BadTensorInfo (missing), ShapeMismatch, Unsupported (type or unknown tensor); GraphError for our own faults.
    """
    from edgellm.formats.codecs import CODECS  # here, so that `import edgellm` does not pay for it

    check_graph(graph)
    wanted_matrices, wanted_vectors = matrices(graph), vectors(graph)
    for name, shape in (wanted_matrices | wanted_vectors).items():
        info = tensors.get(name)
        if info is None:
            raise BadTensorInfo(
                "the architecture needs this tensor and the file lacks it; get a complete file", file=file, field=name
            )
        if tuple(info.shape) != shape and not (name in wanted_vectors and _bare(tuple(info.shape)) == _bare(shape)):
            raise ShapeMismatch(
                f"has shape {tuple(info.shape)}, the architecture needs {shape}; the file is damaged "
                "or its hyperparameters belong to another model",
                file=file,
                field=name,
            )
        if info.type.name not in CODECS and info.type.origin != MLX:
            raise Unsupported(info.type.refusal, file=file, field=name)
        if name in wanted_vectors and info.type.name not in VECTOR_TYPES:
            raise Unsupported(
                f"is stored as {info.type.name}, but a norm, bias or rope factor must be one of "
                f"{', '.join(VECTOR_TYPES)}; quantise the model again with llama-quantize",
                file=file,
                field=name,
            )
    for name in tensors:
        if graph.embeds and name in OF_LOGITS:
            continue
        is_ignored = name not in wanted_matrices and name not in wanted_vectors
        if is_ignored and not UNUSED.fullmatch(name) and not name.startswith(left_out):
            raise Unsupported(
                "the architecture has no such tensor, so this is a variant that edgellm cannot run yet; take the plain model",
                file=file,
                field=name,
            )
