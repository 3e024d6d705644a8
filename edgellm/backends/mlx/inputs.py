"""The inputs of op evaluators: a model's weights, and one step's tokens, positions and masks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from edgellm.backends.mlx.matrices import Matrix
from edgellm.graph import KVSpec, RopeSpec
from edgellm.ops._spec import Patches

Array: TypeAlias = Any  # mlx.core.array; mypy does not read MLX's types
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class MlxWeights:
    """A model's weights by name. `bounded`: matrices whose inputs are norms, so that no product of theirs leaves f16's range;
    `tables`: those that are resized to an image before rows of them are taken.
    """

    matrices: dict[str, Matrix]
    vectors: dict[str, Array]  # (n,) f32
    bounded: frozenset[str]
    tables: dict[str, Floats]


@dataclass(frozen=True, slots=True)
class StepShape:
    """The properties of a conversation's share of a step that decide its operations; steps of one shape are traced once.

    `ends`: slots looked at, per memory class; `masked`: whether some of them are not seen; `beyond`: whether tokens were evicted,
    so that sinks need another rotation; `turning`: whether their keys get one; `single`: whether the step is one token;
    `new_sinks`: tokens that are sinks.
    """

    ends: tuple[int, ...]
    masked: tuple[bool, ...]
    beyond: bool
    turning: bool
    single: bool
    new_sinks: int
    n: int  # tokens
    n_outputs: int  # -1: all rows
    kept: tuple[int, ...]  # rows whose recurrent states are kept
    given: bool = False  # some tokens are vectors


@dataclass(frozen=True, slots=True)
class KVLayer:
    """Keys and values. `spec`: how both its keys and all queries are rotated, None where they are not or where something follows
    the rotation. `kv_type`: how they are kept.
    """

    memory: KVSpec
    memory_class: int
    sinks: int
    spec: RopeSpec | None
    kv_type: str


@dataclass(frozen=True, slots=True)
class Held:
    """One layer's share of a conversation, before or after a step; see kv_cache."""

    keys: Array
    values: Array
    sinks: Array
    recurrent: Array


@dataclass(frozen=True, slots=True)
class Inputs:
    """The arrays of a step; lists are by state or, where noted, by memory class.

    Ops with states see the share of one conversation, from `output_rows` on; all others see the rows of all conversations.
    """

    shape: StepShape
    embedded: dict[tuple[str, str], Array]  # (T, n) f32 by table and source
    tables: dict[tuple[RopeSpec, str], tuple[Array, Array]]  # cos, sin (T, n_rot/2) f32
    patches: Patches | None  # of an encoder's step
    given: list[Array]  # which tokens are vectors (T, 1), and these (T, width); [] where none is
    output_rows: Array | None  # (R,) int32, None for all
    layers: list[KVLayer | None]  # None for recurrent states
    held: list[Held]  # renewed by whatever writes
    slots: list[Array]  # by class: (T,) int32
    masks: list[Array | None]  # by class: (T, end) bool, None where nothing is hidden but the future
    distances: list[Array]  # by class: (T, end) int32 from query to key; none where no op asks for them
    state_before: Array  # (1,) int32: slot of the recurrent states to go on from, -1 for zeros
    states_after: Array  # (kept,) int32: slots of those after `Shape.kept`
    turns: dict[RopeSpec, tuple[Array, Array]]  # cos, sin (1, n_rot/2) by which the sinks' keys are turned on
    widen: bool  # f16 keys as f32 in attention, in which CPUs are faster
    here: bool  # products are computed as they are begun, so that attention may be, too

    def layer(self, state: int) -> KVLayer:
        """A state that is keys and values."""
        layer = self.layers[state]
        assert layer is not None
        return layer

    def before(self, state: int) -> Array:
        """A recurrent state that the step continues from."""
        held = self.held[state].recurrent
        return mx.where(self.state_before < 0, 0.0, mx.take(held, mx.maximum(self.state_before, 0), axis=0))[0]

    def keep(self, state: int, after: list[Array]) -> None:
        """The states after the rows `Shape.kept`, in their slots."""
        held = self.held[state]
        if len(after) == 1:
            recurrent = mx.slice_update(held.recurrent, after[0][None], self.states_after, axes=(0,))
        else:
            recurrent = held.recurrent
            recurrent[self.states_after] = mx.stack(after)
        self.held[state] = replace(held, recurrent=recurrent)
