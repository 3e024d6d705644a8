"""One step of a graph in MLX: the arrays that the step brings, the nodes in their order, and the conversation renewed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, cast

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from edgellm.backends.base import StepBatch, StepStopped, never
from edgellm.backends.mlx.device import one_blas_thread
from edgellm.backends.mlx.filling import table_rows
from edgellm.backends.mlx.inputs import Array, Held, Inputs, KVLayer, MlxWeights, StepShape
from edgellm.backends.mlx.kv_cache import LISTS, STEP, MlxKVCache
from edgellm.backends.mlx.matrices import SEVERAL, Matrix
from edgellm.backends.mlx.ops import OPS
from edgellm.backends.mlx.step_arrays import view
from edgellm.errors import Unsupported
from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import MLX
from edgellm.graph import Graph, Node, RopeSpec
from edgellm.memory.layout import RECURRENT, MemoryLayout
from edgellm.ops import OPS as DECLARED
from edgellm.ops import WeightUse, state_of, weight_uses
from edgellm.ops._spec import Given, Patches
from edgellm.rope import cos_sin, frequencies
from edgellm.weights import Weight, WeightStore

Floats = npt.NDArray[np.float32]
Share = tuple[StepShape, list[list[Array]], dict[str, Any]]  # of a conversation in a step: its lists and arrays


def _takes_one(node: Node) -> bool:
    """True if an op has states, so that it takes one conversation at a time."""
    spec = DECLARED[node.op]
    return bool(spec.effect) or spec.rows == "S"


@dataclass(frozen=True, slots=True)
class Part:
    """A conversation's share of a step. `turned`: by how much its sinks' keys are rotated afterwards."""

    state: MlxKVCache
    shape: StepShape
    turned: int
    arrays: dict[str, Any]


class Walk:
    """A graph with its weights. Nothing of a step is kept here but traces. `several`: tokens from which on a step is computed as it
    is begun, not by MLX later.
    """

    def __init__(
        self, graph: Graph, store: WeightStore, weights: MlxWeights, layout: MemoryLayout, *, kv_type: str, widen: bool, trace: bool
    ) -> None:
        self._graph, self._weights, self._layout, self._widen, self._trace = graph, weights, layout, widen, trace
        self.several = min((matrix.several for matrix in weights.matrices.values()), default=SEVERAL)
        self._traces: dict[StepShape, Callable[..., Any]] = {}
        self._layers = [_layer(graph, state, layout, kv_type) for state in range(len(graph.states))]
        self._tables = {
            (use.name, source): _row_source(store[use.name], weights.matrices.get(use.name), source)
            for use, source in _looked_up(graph)
        }
        self.takes_ids = all(source != "tokens" or name in weights.matrices for name, source in self._tables)
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

    def step(self, batch: StepBatch, stop: Callable[[], bool] = never, ids: Array | None = None) -> dict[str, Array]:
        """Begin a step, which renews the states of its conversations: the outputs by name, such as logits (R, n_vocab) f32; none
        where no rows are wanted. `ids` (T,): its tokens, where only the device knows them; only where it `takes_ids`.

        A step of an encoder is computed layer by layer. Raises StepStopped where `stop()` is true after one of them.
        """
        traced = self._trace and len(batch.tokens) == 1 and batch.patches is None
        parts = [self._part(segment, traced) for segment in batch.split()]
        common = {
            "embedded": [rows(batch, ids) for rows in self._tables.values()],
            "tables": [[mx.array(part) for part in self._table(batch, *rotation)] for rotation in self._rotations],
            "given": _dense(batch.given),
            "output_rows": mx.array(batch.output_rows),
        }
        try:
            if traced:
                (part,) = parts
                outputs, part.state.lists = self._traced(part.shape)(part.state.lists, part.arrays, common)
            else:
                with one_blas_thread() if self._widen else nullcontext():
                    outputs = self.evaluate([(part.shape, part.state.lists, part.arrays) for part in parts], common, batch, stop)
            states = [array for part in parts for array in part.state.arrays]
            waits = not outputs or not all(part.shape.single for part in parts)  # chunks one by one: they are large
            (mx.eval if waits else mx.async_eval)([*outputs.values(), *states])
            for part in parts:
                part.state.turned = part.turned
        except BaseException:
            mx.eval([part.state.arrays for part in parts])  # what is not computed here could not be by another thread
            raise
        return cast(dict[str, Array], outputs)

    def _part(self, step: StepBatch, traced: bool) -> Part:
        """The inputs of one conversation: a step of it alone, or its segment of a shared step."""
        n, state = len(step.tokens), step.segments[0].state
        assert isinstance(state, MlxKVCache)
        views = [
            view(spans, step.positions, memory, STEP if traced else 1, measured=self._measures)
            for spans, memory in zip(step.spans, self._layout.classes, strict=True)
        ]
        behind = step.positions - step.sink_positions
        beyond = bool(behind.any())
        turn = state.turned if beyond and n > 1 else int(behind[0])
        kept = tuple(np.flatnonzero(np.diff(step.state_slots[:, 1], append=-1)).tolist())  # where the slot changes after it
        shape = StepShape(
            tuple(one.end for one in views),
            tuple(one.mask is not None for one in views),
            beyond,
            turn != state.turned,
            n == 1,
            int((step.spans[0][:, 0] < self._layout.classes[0].sinks).sum()) if step.spans else 0,
            n,
            -1 if len(step.output_rows) == n and step.patches is None else len(step.output_rows),
            kept,
            step.given is not None,
        )
        state.reserve([one.end for one in views])
        arrays = {
            "output_rows": mx.array(step.output_rows),
            "slots": [mx.array(one.slots) for one in views],
            "masks": [mx.array(one.mask) for one in views if one.mask is not None],
            "distances": [mx.array(one.distances) for one in views] if self._measures else [],
            "state_before": mx.array(step.state_slots[:1, 0]),
            "states_after": mx.array(step.state_slots[list(kept), 1]),
            "turns": [[mx.array(part) for part in self._turn(spec, turn)] for spec in self._turned_specs] if shape.turning else [],
        }
        return Part(state, shape, turn, arrays)

    def close(self) -> None:
        """Drop the traces, which hold the weights and this object in a circle."""
        self._traces.clear()

    def _table(self, step: StepBatch, spec: RopeSpec, where: str) -> tuple[Floats, Floats]:
        positions = step.coordinates(where) if spec.axes else step.turned_by(where)
        return cos_sin(spec, positions, *self._turning[spec])

    def _turn(self, spec: RopeSpec, by: int) -> tuple[Floats, Floats]:
        """A rotation alone: keys have had their magnitude."""
        return cos_sin(replace(spec, temperature=None), np.array([by]), self._turning[spec][0], 1.0)

    def _traced(self, shape: StepShape) -> Callable[..., Any]:
        """`evaluate` as a function of arrays alone, which MLX fuses and keeps."""
        if shape not in self._traces:

            def whole(lists: list[list[Array]], arrays: dict[str, Any], common: dict[str, Any]) -> Any:
                lists = [list(each) for each in lists]
                return self.evaluate([(shape, lists, arrays)], common), lists

            self._traces[shape] = mx.compile(whole)
        return self._traces[shape]

    def evaluate(
        self, parts: Sequence[Share], common: dict[str, Any], batch: StepBatch | None = None, stop: Callable[[], bool] = never
    ) -> dict[str, Array]:
        """The graph over one step; the lists of its conversations are renewed in place. {} where no rows are wanted.

        All rows go through each op together, but for ops with states: those take one conversation after the other. `batch`: the
        step, where it is not traced.
        """
        held = [[Held(*each) for each in zip(*lists, strict=True)] for _, lists, _ in parts]
        for _, lists, _ in parts:
            for each in lists:
                each.clear()  # MLX writes in place what nothing else refers to
        try:
            done = self._values(parts, held, common, batch, stop)
        finally:
            for (_, lists, _), one in zip(parts, held, strict=True):
                for each, name in zip(lists, LISTS, strict=True):
                    each[:] = [getattr(layer, name) for layer in one]
        return {name: done[value] for name, value in self._graph.outputs.items() if done[value] is not None}

    def _values(
        self,
        parts: Sequence[Share],
        held: list[list[Held]],
        common: dict[str, Any],
        batch: StepBatch | None,
        stop: Callable[[], bool],
    ) -> list[Any]:  # Any: arrays, and None where nobody wants a value
        """The values of all nodes. Those of a single token are begun by MLX while the next ones are added."""
        patches = None if batch is None else batch.patches
        here = batch is not None and self._widen and len(batch.tokens) >= self.several
        begins = batch is not None and len(batch.tokens) == 1 and not here
        own = [self._inputs(shape, arrays, one, common, patches, here) for (shape, _, arrays), one in zip(parts, held, strict=True)]
        rows = _Rows([shape for shape, _, _ in parts])
        step = own[0] if len(own) == 1 else replace(own[0], output_rows=None if rows.all_wanted else common["output_rows"])
        done, evaluated = list[Any](), 0
        for node in self._graph.nodes:
            if node.rows == "R" and not rows.total["R"]:
                done.append(None)
                continue
            x = [done[value] for value in node.inputs]
            if len(own) == 1 or not _takes_one(node):
                done.append(_on_device([OPS[node.op](self._weights, step, node, x)]))
                if DECLARED[node.op].effect != "read":
                    continue
                if batch is not None and patches is not None:
                    _pause(batch, len(done) / len(self._graph.nodes), done[-1], stop)
                elif begins:
                    mx.async_eval(done[-1])
                continue
            if here and DECLARED[node.op].effect in ("write", "read"):
                kept = [inputs.held[cast(int, node.attrs["state"])] for inputs in own]
                begun, evaluated = [value for value in done[evaluated:] if value is not None], len(done)
                mx.eval(begun, [(layer.keys, layer.values) for layer in kept])  # of all conversations at once
                x = [np.asarray(value) for value in x]
            found = []
            for index, inputs in enumerate(own):
                if node.rows != "R" or inputs.shape.n_outputs:
                    mine = [a[rows.of(self._graph.nodes[value].rows, index)] for a, value in zip(x, node.inputs, strict=True)]
                    found.append(OPS[node.op](self._weights, inputs, node, mine))
            done.append(_on_device(found))
        return done

    def _inputs(
        self,
        shape: StepShape,
        arrays: dict[str, Any],
        held: list[Held],
        common: dict[str, Any],
        patches: Patches | None,
        here: bool,
    ) -> Inputs:
        masks = iter(arrays["masks"])
        return Inputs(
            shape=shape,
            embedded=dict(zip(self._tables, common["embedded"], strict=True)),
            tables={rotation: tuple(pair) for rotation, pair in zip(self._rotations, common["tables"], strict=True)},
            patches=patches,
            given=common["given"],
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
            here=here,
        )


def _on_device(parts: list[Any]) -> Any:
    """A value of rows by conversation, some of which NumPy may have; None where there is none."""
    if all(isinstance(part, np.ndarray) for part in parts):
        return mx.array(np.concatenate(parts))
    if len(parts) == 1 or parts[0] is None:
        return parts[0]
    return mx.concatenate([mx.array(part) if isinstance(part, np.ndarray) else part for part in parts])


def _pause(batch: StepBatch, share: float, value: Array, stop: Callable[[], bool]) -> None:
    """Computes a part of an encoder's step. Raises StepStopped."""
    if stop():
        raise StepStopped
    mx.eval(value)
    if batch.advanced is not None:
        batch.advanced(share)


class _Rows:
    """Which rows of a step's values belong to which conversation: tokens T, wanted ones R, one per segment S."""

    def __init__(self, shapes: Sequence[StepShape]) -> None:
        counts = {
            "T": [s.n for s in shapes],
            "R": [s.n if s.n_outputs < 0 else s.n_outputs for s in shapes],
            "S": [1] * len(shapes),
        }
        self._ends = {kind: list(accumulate(each)) for kind, each in counts.items()}
        self.total = {kind: ends[-1] for kind, ends in self._ends.items()}
        self.all_wanted = self.total["R"] == self.total["T"]

    def of(self, kind: str, index: int) -> slice:
        ends = self._ends[kind]
        return slice(ends[index - 1] if index else 0, ends[index])


def _dense(given: Given | None) -> list[Array]:
    """Which tokens are vectors (T, 1), and all vectors (T, width) with zeros for other tokens; [] where there is none."""
    if given is None:
        return []
    mine = given.which >= 0
    rows = np.zeros((len(mine), given.rows.shape[1]), np.float32)
    rows[mine] = given.rows[given.which[mine]]
    return [mx.array(mine[:, None]), mx.array(rows)]


def _layer(graph: Graph, state: int, layout: MemoryLayout, kv_type: str) -> KVLayer | None:
    of = layout.layer_class[state]
    if of == RECURRENT:
        return None
    specs = {
        graph.nodes[node.inputs[0]].attrs.get("rope")
        for index, node in enumerate(graph.nodes)  # of keys, of each query
        if DECLARED[node.op].effect in ("write", "read") and state_of(graph, index) == state
    }
    spec = specs.pop() if len(specs) == 1 else None
    return KVLayer(layout.kv_spec(state), of, layout.classes[of].sinks, spec if isinstance(spec, RopeSpec) else None, kv_type)


def _looked_up(graph: Graph) -> Iterator[tuple[WeightUse, str]]:
    """The tables of which rows are looked up, and by what."""
    for index, node in enumerate(graph.nodes):
        for use in weight_uses(graph, index):
            if use.role == "table" and "source" in node.attrs:
                yield use, cast(str, node.attrs["source"])


def _row_source(weight: Weight, matrix: Matrix | None, source: str) -> Callable[[StepBatch, Array | None], Array]:
    """Rows (T, n) f32 of a table that stays in the file, or of one that is a matrix, too."""
    if matrix is not None:
        return lambda step, ids: matrix.decoded(mx.array(step.looked_up(source)) if ids is None else ids)
    if weight.type.origin == MLX:
        return lambda step, ids: table_rows(weight, step.looked_up(source))
    codec = CODECS.get(weight.type.name)
    if codec is None:
        raise Unsupported(weight.type.refusal, file=weight.file, field=weight.name)
    return lambda step, ids: mx.array(codec.dequantize(weight.data[step.looked_up(source)]))
