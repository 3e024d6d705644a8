"""One step of a graph in MLX: the arrays that the step brings, the nodes in their order, and the conversation renewed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from edgellm.backends.base import StepBatch
from edgellm.backends.mlx.filling import table_rows
from edgellm.backends.mlx.inputs import Array, Held, Inputs, Layer, Shape, Weights
from edgellm.backends.mlx.kv_cache import LISTS, STEP, KVCache
from edgellm.backends.mlx.ops import OPS
from edgellm.backends.mlx.step_arrays import view
from edgellm.errors import Unsupported
from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import MLX
from edgellm.graph import Graph, RopeSpec
from edgellm.memory.layout import RECURRENT, MemoryLayout
from edgellm.ops import OPS as DECLARED
from edgellm.ops import WeightUse, state_of, weight_uses
from edgellm.ops._spec import Given
from edgellm.rope import cos_sin, frequencies
from edgellm.weights import Weight, WeightStore

Floats = npt.NDArray[np.float32]


class Walk:
    """A graph with its weights. Nothing of a step is kept here but traces."""

    def __init__(
        self, graph: Graph, store: WeightStore, weights: Weights, layout: MemoryLayout, *, kv_type: str, widen: bool, trace: bool
    ) -> None:
        self._graph, self._weights, self._layout, self._widen, self._trace = graph, weights, layout, widen, trace
        (self.output,) = graph.outputs  # its name
        self._traces: dict[Shape, Callable[..., Any]] = {}
        self._layers = [_layer(graph, state, layout, kv_type) for state in range(len(graph.states))]
        self._tables = {(use.name, source): _row_source(store[use.name], source) for use, source in _looked_up(graph)}
        specs = {spec for node in graph.nodes if isinstance(spec := node.attrs.get("rope"), RopeSpec)}
        self._turning = {spec: frequencies(spec, None if spec.factors is None else store[spec.factors].array()) for spec in specs}
        self._rotations = list(
            dict.fromkeys(
                (cast(RopeSpec, node.attrs["rope"]), cast(str, node.attrs["positions"]))
                for node in graph.nodes
                if "rope" in node.attrs
            )
        )
        self._measures = any(node.attrs.get("max_bias") or node.attrs.get("buckets") for node in graph.nodes)
        self._turned_specs = list(dict.fromkeys(layer.spec for layer in self._layers if layer and layer.spec and layer.sinks))

    def step(self, state: KVCache, step: StepBatch) -> Callable[[], Floats]:
        """Begin the step, which renews `state`. What is returned waits for the logits (R, n_vocab) f32, newly allocated."""
        n = len(step.tokens)
        traced = self._trace and n == 1
        views = [
            view(spans, step.positions, memory, STEP if traced else 1, measured=self._measures)
            for spans, memory in zip(step.spans, self._layout.classes, strict=True)
        ]
        behind = step.positions - step.sink_positions
        beyond = bool(behind.any())
        turn = state.turned if beyond and n > 1 else int(behind[0])
        kept = tuple(np.flatnonzero(np.diff(step.state_slots[:, 1], append=-1)).tolist())  # where the slot changes after it
        shape = Shape(
            tuple(one.end for one in views),
            tuple(one.mask is not None for one in views),
            beyond,
            turn != state.turned,
            n == 1,
            int((step.spans[0][:, 0] < self._layout.classes[0].sinks).sum()),
            -1 if len(step.output_rows) == n else len(step.output_rows),
            kept,
            step.given is not None,
        )
        state.reserve([one.end for one in views])
        arrays = {
            "embedded": [mx.array(rows(step)) for rows in self._tables.values()],
            "tables": [[mx.array(part) for part in self._table(step, *rotation)] for rotation in self._rotations],
            "given": _dense(step.given),
            "output_rows": mx.array(step.output_rows),
            "slots": [mx.array(one.slots) for one in views],
            "masks": [mx.array(one.mask) for one in views if one.mask is not None],
            "distances": [mx.array(one.distances) for one in views] if self._measures else [],
            "state_before": mx.array(step.state_slots[:1, 0]),
            "states_after": mx.array(step.state_slots[list(kept), 1]),
            "turns": [[mx.array(part) for part in self._turn(spec, turn)] for spec in self._turned_specs] if shape.turning else [],
        }
        try:
            logits = self._run(shape, state, arrays, traced)
            state.turned = turn
        except BaseException:
            mx.eval(state.arrays)  # what is not computed here could not be by another thread
            raise
        return lambda: np.empty((0, 0), np.float32) if logits is None else np.array(logits)

    def close(self) -> None:
        """Drop the traces, which hold the weights and this object in a circle."""
        self._traces.clear()

    def _table(self, step: StepBatch, spec: RopeSpec, where: str) -> tuple[Floats, Floats]:
        positions = step.coordinates(where) if spec.axes else step.turned_by(where)
        return cos_sin(spec, positions, *self._turning[spec])

    def _turn(self, spec: RopeSpec, by: int) -> tuple[Floats, Floats]:
        """A rotation alone: keys have had their magnitude."""
        return cos_sin(replace(spec, temperature=None), np.array([by]), self._turning[spec][0], 1.0)

    def _run(self, shape: Shape, state: KVCache, arrays: dict[str, Any], traced: bool) -> Array | None:
        if not traced:
            logits = self.evaluate(shape, state.lists, arrays)
        else:
            logits, state.lists = self._traced(shape)(state.lists, arrays)
        begin = mx.async_eval if shape.single and logits is not None else mx.eval  # chunks one by one: they are large
        begin(state.arrays if logits is None else [logits, *state.arrays])
        return logits

    def _traced(self, shape: Shape) -> Callable[..., Any]:
        """`evaluate` as a function of arrays alone, which MLX fuses and keeps."""
        if shape not in self._traces:

            def whole(lists: list[list[Array]], arrays: dict[str, Any]) -> Any:
                lists = [list(each) for each in lists]
                return self.evaluate(shape, lists, arrays), lists

            self._traces[shape] = mx.compile(whole)
        return self._traces[shape]

    def evaluate(self, shape: Shape, lists: list[list[Array]], arrays: dict[str, Any]) -> Array | None:
        """The graph over one step; the lists of the conversation are renewed in place. None where no logits are wanted."""
        held = [Held(*each) for each in zip(*lists, strict=True)]
        inputs = self._inputs(shape, arrays, held)
        done: list[Any] = []  # Any: arrays, and None where nobody wants a value
        for node in self._graph.nodes:
            x = [done[value] for value in node.inputs]
            done.append(None if node.rows == "R" and not shape.n_outputs else OPS[node.op](self._weights, inputs, node, x))
        for each, name in zip(lists, LISTS, strict=True):
            each[:] = [getattr(one, name) for one in held]
        return done[self._graph.outputs[self.output]]

    def _inputs(self, shape: Shape, arrays: dict[str, Any], held: list[Held]) -> Inputs:
        masks = iter(arrays["masks"])
        return Inputs(
            shape=shape,
            embedded=dict(zip(self._tables, arrays["embedded"], strict=True)),
            tables={rotation: tuple(pair) for rotation, pair in zip(self._rotations, arrays["tables"], strict=True)},
            given=arrays["given"] if shape.given else [],
            output_rows=None if shape.n_outputs < 0 else arrays["output_rows"],
            layers=self._layers,
            held=held,
            slots=arrays["slots"],
            masks=[next(masks) if masked else None for masked in shape.masked],
            distances=arrays["distances"],
            state_before=arrays["state_before"],
            states_after=arrays["states_after"],
            turns={spec: tuple(pair) for spec, pair in zip(self._turned_specs, arrays["turns"], strict=shape.turning)},
            widen=self._widen,
        )


def _dense(given: Given | None) -> list[Array]:
    """Which tokens are vectors (T, 1), and all vectors (T, width) with zeros for other tokens; [] where there is none."""
    if given is None:
        return []
    mine = given.which >= 0
    rows = np.zeros((len(mine), given.rows.shape[1]), np.float32)
    rows[mine] = given.rows[given.which[mine]]
    return [mx.array(mine[:, None]), mx.array(rows)]


def _layer(graph: Graph, state: int, layout: MemoryLayout, kv_type: str) -> Layer | None:
    of = layout.layer_class[state]
    if of == RECURRENT:
        return None
    specs = {
        graph.nodes[node.inputs[0]].attrs.get("rope")
        for index, node in enumerate(graph.nodes)  # of keys, of each query
        if DECLARED[node.op].effect in ("write", "read") and state_of(graph, index) == state
    }
    spec = specs.pop() if len(specs) == 1 else None
    return Layer(layout.kv_spec(state), of, layout.classes[of].sinks, spec if isinstance(spec, RopeSpec) else None, kv_type)


def _looked_up(graph: Graph) -> Iterator[tuple[WeightUse, str]]:
    """The tables of which rows are looked up, and by what."""
    for index, node in enumerate(graph.nodes):
        for use in weight_uses(graph, index):
            if use.role == "table":
                yield use, cast(str, node.attrs["source"])


def _row_source(weight: Weight, source: str) -> Callable[[StepBatch], Floats]:
    """Rows (T, n) f32 of a table that stays in the file."""
    if weight.type.origin == MLX:
        return lambda step: table_rows(weight, step.looked_up(source))
    codec = CODECS.get(weight.type.name)
    if codec is None:
        raise Unsupported(weight.type.refusal, file=weight.file, field=weight.name)
    return lambda step: codec.dequantize(weight.data[step.looked_up(source)])
