"""What every back end offers: prepare a graph once, then one call per step."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from edgellm.memory.layout import MemoryLayout

STOP_SECONDS = 0.15                              # a step can be stopped after this time at the latest, if it can be helped
SMALLEST_STEP = 16                               # tokens; fewer would lose the shared unpacking of the weights

Progress = Callable[[str, int, int], None]       # (what, done, of): for a progress line; never called once prepared


def never() -> bool:
    """For steps that nobody wants to stop."""
    return False


@dataclass(frozen=True, slots=True)
class StepInput:
    """One step: T tokens at their positions, where their keys go and what they see, and the rows whose logits are wanted.

    spans[c] is int32 (T, 4) for memory class c of the layout: (slot to write, visible sinks, first window slot, window length).
    The sinks are slots 0..sinks-1; the window starts at `first`, has `length` slots and wraps from the last slot to the
    class's number of sinks. The token itself is the window's (or the sinks') last entry: it is written before it is read.
    """

    tokens: npt.NDArray[np.int32]                # (T,)
    positions: npt.NDArray[np.int64]             # (T,) true positions
    sink_positions: npt.NDArray[np.int64]        # (T,) where the query stands for sink keys: min(position, context - 1)
    spans: tuple[npt.NDArray[np.int32], ...]     # per memory class: (T, 4)
    output_rows: npt.NDArray[np.int32]           # (R,) ascending


class Pace:
    """How many tokens of a prompt to compute at once: as many as possible, but nobody shall wait long for an end to it."""

    def __init__(self, most: int) -> None:
        self.tokens = self._most = most

    def note(self, tokens: int, seconds: float) -> None:
        """A step of so many tokens could not be stopped for so long."""
        if tokens >= SMALLEST_STEP:
            fitting = int(tokens * STOP_SECONDS / max(seconds, 1e-6))
            self.tokens = min(self._most, max(SMALLEST_STEP, fitting))


@dataclass(frozen=True, slots=True)
class KindTime:
    """The calls of one kind of kernel in a step: their seconds, and the bytes of weights, keys and values that they read."""

    kind: str
    calls: int
    seconds: float
    nbytes: int


class State(Protocol):
    """The keys and values of one conversation, owned by a back end."""

    @property
    def nbytes(self) -> int: ...


class StepStopped(Exception):
    """A step was given up because the caller's `stop` came true: its tokens are not in the conversation."""


class Executable(Protocol):
    """A model made ready to run. `step` may be called from one thread at a time."""

    max_tokens: int                              # T of one step, at most
    pace: Pace
    max_outputs: int                             # R of one step, at most
    layout: MemoryLayout

    @property
    def backend(self) -> str:
        """Its name, as `load_backend` takes it."""
        ...

    @property
    def threads(self) -> int: ...

    def new_state(self) -> State: ...

    def step(self, state: State, step: StepInput, stop: Callable[[], bool] = never) -> npt.NDArray[np.float32]:
        """Logits (R, n_vocab) f32 of the wanted rows; the array is reused by the next step.

        Raises StepStopped where `stop()`, asked now and then while several tokens are computed, is true.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class Ahead(Protocol):
    """An executable whose steps go on while the caller does something else."""

    def begin(self, state: State, step: StepInput) -> Callable[[], npt.NDArray[np.float32]]:
        """As `step`, for one token, but without waiting: what is returned waits for the logits."""
        ...


@runtime_checkable
class Profiled(Protocol):
    """An executable that can tell where its time goes."""

    isa: str                                     # the instruction set that its kernels use
    busy_seconds: float                          # spent inside steps, as opposed to between them

    def profile(self, state: State, step: StepInput) -> list[KindTime]:
        """As `step`, but timed in parts."""
        ...
