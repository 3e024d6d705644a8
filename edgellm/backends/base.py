"""The interface of back ends: the memory that a model needs, `prepare` once, then one call per step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from edgellm.formats.ggml_types import GGMLType
from edgellm.formats.gguf import GGUFFile
from edgellm.graph import Graph
from edgellm.memory.layout import MemoryLayout
from edgellm.memory.state_ring import NO_STATE_SLOTS, StateSlots
from edgellm.ops._spec import Given, Patches
from edgellm.options.sampling import TokenChoice
from edgellm.weights import WeightStore

STOP_SECONDS = 0.15  # a step can be stopped after this time at the latest, if it can be helped
SMALLEST_STEP = 16  # tokens; fewer would lose the shared unpacking of the weights

Progress = Callable[[str, int, int], None]  # (what, done, of): for a progress line; never called once prepared


def never() -> bool:
    """For steps that nobody wants to stop."""
    return False


class State(Protocol):
    """The memory of one conversation between steps (keys, values, recurrent states), owned by a back end."""

    @property
    def nbytes(self) -> int:
        """Bytes that it holds, those that it shares with forks included."""
        ...

    def fork(self) -> State:
        """A copy that continues from here independently. Not while a step with this one is computed."""
        ...

    def save(self, file: BinaryIO) -> None:
        """Write it for `Executable.load_state`, without a checksum. Raises BackendError where the back end cannot."""
        ...


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of a step that belong to one conversation: `n` tokens that follow each other, from row `first_row` on.

    `adapters`: the number of its set of adapters.
    """

    state: State
    first_row: int
    n: int
    adapters: int = 0


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One step: a ragged batch of segments, T tokens together. No conversation has two segments in a step. The documents of a model
    that embeds them are segments with one state together, in which each has slots of its own (memory/documents.py).

    spans[c] is int32 (T, 4) for memory class c of the layout: (slot to write, visible sinks, first window slot, window length).
    The sinks are slots 0..sinks-1; the window starts at `first`, has `length` slots and wraps from the last slot to the
    class's number of sinks. The token itself is the window's (or the sinks') last entry: it is written before it is read.
    state_slots is int32 (T, 2): the slot of the recurrent states before a token (-1: zeros) and of those after it, which may be
    the same; a token starts from what the one before it left.
    """

    tokens: npt.NDArray[np.int32]  # (T,)
    positions: npt.NDArray[np.int64]  # (T,) true positions
    sink_positions: npt.NDArray[np.int64]  # (T,) where the query stands for sink keys: min(position, context - 1)
    spans: tuple[npt.NDArray[np.int32], ...]  # per memory class: (T, 4)
    output_rows: npt.NDArray[np.int32]  # (R,) ascending: rows whose logits are wanted
    segments: tuple[Segment, ...]  # in the order of their rows, without gaps
    state_slots: StateSlots = field(default_factory=lambda: NO_STATE_SLOTS)  # (T, 2); (0, 2) where no layer is recurrent
    given: Given | None = None  # vectors in the place of some tokens
    types: npt.NDArray[np.int32] | None = None  # (T,) 1 in the second text of a pair; None: all 0
    patches: Patches | None = None  # of an encoder's step, whose output rows are those of `patches.outputs`
    advanced: Callable[[float], None] | None = None  # called with the share of an encoder's step that is computed

    def turned_by(self, kind: str) -> npt.NDArray[np.int64]:
        """(T,) positions that rotate heads: "true" ones, or "sink" ones of queries for sink keys."""
        return self.positions if kind == "true" else self.sink_positions

    def coordinates(self, kind: str) -> npt.NDArray[np.int64]:
        """(T, axes) coordinates that rotate heads, or (T,) where all are the position."""
        if self.patches is not None:
            return self.patches.places
        if self.given is None or self.given.coordinates is None:
            return self.turned_by(kind)
        return self.given.coordinates - (self.positions - self.turned_by(kind))[:, None]

    def looked_up(self, source: str) -> npt.NDArray[np.integer]:
        """(T,) what a table's rows are looked up by: "tokens", "positions", "adapters", or "types"."""
        if source == "adapters":
            return np.repeat([segment.adapters for segment in self.segments], [segment.n for segment in self.segments])
        if source == "types":
            return np.zeros_like(self.tokens) if self.types is None else self.types
        return self.positions if source == "positions" else self.tokens

    @classmethod
    def joined(cls, steps: Sequence[StepBatch]) -> StepBatch:
        """One step that does what these do, in their order."""
        if len(steps) == 1:
            return steps[0]
        firsts = np.cumsum([0, *(len(step.tokens) for step in steps)]).tolist()
        return cls(
            np.concatenate([step.tokens for step in steps]),
            np.concatenate([step.positions for step in steps]),
            np.concatenate([step.sink_positions for step in steps]),
            tuple(np.concatenate(spans) for spans in zip(*(step.spans for step in steps), strict=True)),
            np.concatenate([step.output_rows + np.int32(first) for step, first in zip(steps, firsts, strict=False)]),
            tuple(
                Segment(one.state, one.first_row + first, one.n, one.adapters)
                for step, first in zip(steps, firsts, strict=False)
                for one in step.segments
            ),
            np.concatenate([step.state_slots for step in steps]),
            _given(steps),
        )

    def split(self) -> Iterator[StepBatch]:
        """Its segments as steps of their own."""
        if len(self.segments) == 1:
            yield self
            return
        for segment in self.segments:
            first, end = segment.first_row, segment.first_row + segment.n
            rows = self.output_rows[(self.output_rows >= first) & (self.output_rows < end)] - np.int32(first)
            yield StepBatch(
                self.tokens[first:end],
                self.positions[first:end],
                self.sink_positions[first:end],
                tuple(spans[first:end] for spans in self.spans),
                rows,
                (Segment(segment.state, 0, segment.n, segment.adapters),),
                self.state_slots[first:end],
                None if self.given is None else self.given.part(first, end),
                types=None if self.types is None else self.types[first:end],
                patches=None if self.patches is None else self.patches.part(first, end),
                advanced=self._advanced_by(first, end),
            )

    def _advanced_by(self, first: int, end: int) -> Callable[[float], None] | None:
        """`advanced` for the share of a segment that is computed."""
        advanced, n = self.advanced, len(self.tokens)
        return None if advanced is None else lambda share: advanced((first + share * (end - first)) / n)


def _given(steps: Sequence[StepBatch]) -> Given | None:
    """The vectors of several steps as those of one."""
    some = [step.given for step in steps if step.given is not None]
    if not some:
        return None
    which, at = [], 0
    for step in steps:
        mine = np.full(len(step.tokens), -1, np.int32) if step.given is None else step.given.which
        which.append(np.where(mine < 0, mine, mine + np.int32(at)))
        at += 0 if step.given is None else len(step.given.rows)
    axes = next((given.coordinates.shape[1] for given in some if given.coordinates is not None), 0)
    coordinates = [step.coordinates("true") for step in steps] if axes else []
    wide = [each if each.ndim == 2 else np.repeat(each[:, None], axes, axis=1) for each in coordinates]
    return Given(np.concatenate(which), np.concatenate([given.rows for given in some]), np.concatenate(wide) if axes else None)


class StepSize:
    """The number of prompt tokens to compute in a step: as many as possible, as long as it can be stopped soon."""

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


@dataclass(frozen=True, slots=True)
class StepTimes:
    """A step: the seconds that it took, and where they went. Threads' times are their mean, waiting for each other included."""

    seconds: float
    kinds: tuple[KindTime, ...]

    @property
    def coverage(self) -> float:
        """The part of the step that `kinds` add up to."""
        return sum(kind.seconds for kind in self.kinds) / self.seconds


class StepStopped(Exception):
    """A step was given up because the caller's `stop` came true: its tokens are not in the conversation."""


class Pending(Protocol):
    """A step that was submitted."""

    def wait(self, stop: Callable[[], bool] = never) -> Mapping[str, npt.NDArray[np.float32]]:
        """The graph's outputs by name: "logits" (R, n_vocab) f32 of the wanted rows, or "embedding" (S, n).

        Arrays are reused by the next step.

        Raises StepStopped where `stop()`, asked now and then while several tokens are computed, is true.
        """
        ...


class Guessed(Pending, Protocol):
    """A step whose token the device chose itself."""

    def token(self) -> int:
        """Waits for the choice, not for the step."""
        ...


class Executable(Protocol):
    """A model made ready to run. Steps come from one thread at a time, and one is waited for before the next is submitted."""

    max_tokens: int  # T of one step, at most
    max_segments: int  # S
    max_outputs: int  # R
    step_size: StepSize
    layout: MemoryLayout
    runs_ahead: bool  # whether a step is computed while nobody waits for it

    @property
    def backend(self) -> str:
        """The name of its back end."""
        ...

    @property
    def threads(self) -> int: ...

    def new_state(self) -> State: ...

    def load_state(self, file: BinaryIO) -> State:
        """The state that `State.save` wrote, of an executable with the same layout and KV type. Raises ValueError for others."""
        ...

    def submit(self, batch: StepBatch) -> Pending:
        """Take a step. Where the back end does not run ahead, it is computed by whoever waits for it."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Chooser(Protocol):
    """An executable whose device can go on before the last token is known here."""

    def follow(self, pending: Pending, batch: StepBatch, choice: TokenChoice) -> Guessed | None:
        """Begin the step after `pending`, both of one token: the one that the device chooses from its logits, whatever `batch` has.

        The guess differs from the token that is drawn here only by rounding; then the step counts as one that failed. None where
        the model cannot.
        """
        ...


@runtime_checkable
class Profiled(Protocol):
    """An executable that measures the time of each kernel."""

    isa: str  # the instruction set that its kernels use
    busy_seconds: float  # spent inside steps, as opposed to between them

    def profile(self, batch: StepBatch) -> StepTimes:
        """Compute a step, timed in parts."""
        ...


@runtime_checkable
class Idle(Protocol):
    """An executable that holds less memory between steps that are far apart."""

    def release_buffers(self) -> None:
        """Give the pages of its work buffers back to the system; the next step takes new ones. Outputs are gone."""
        ...


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """How a model is to run. `threads` compute single tokens (None: one per core), `threads_batch` prompts (None: as many).

    `parallel`: conversations that share steps.
    """

    kv_type: str
    threads: int | None = None
    threads_batch: int | None = None
    parallel: int = 1


@dataclass(frozen=True, slots=True)
class BackendNeed:
    """Bytes that a model holds on a back end when its context is full: weights that each token reads, all states, work buffers.

    `slow`: the type of most weights, where the back end can read it but has no fast products for it.
    """

    weights: int
    kv: int
    work: int
    slow: str = ""

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.work


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `edgellm doctor` looked at: `advice` is "" where nothing is wrong."""

    what: str
    value: str
    advice: str = ""


class Backend(Protocol):
    """A kind of hardware. Nothing heavy is imported before `need` or `prepare` is called."""

    name: str
    chunk: int  # tokens of a prompt in one step, at most
    kv_tried: tuple[str, ...]  # types of keys and values to choose from: the first that fits
    copies_weights: bool  # or maps them, so that they are the file's pages

    def require(self) -> None:
        """Raises BackendError, with what to install, where something is missing."""
        ...

    def reads(self, kind: GGMLType) -> bool:
        """True if weights of this family of types can be read."""
        ...

    def need(self, graph: Graph, header: GGUFFile, layout: MemoryLayout, options: BackendOptions) -> BackendNeed:
        """The memory for running an optimised graph. Raises Unsupported."""
        ...

    def start(self) -> None:
        """Bring up what all models share. Called before weights are read: what this takes for a moment then adds to nothing."""
        ...

    def prepare(
        self, graph: Graph, weights: WeightStore, layout: MemoryLayout, options: BackendOptions, progress: Progress | None = None
    ) -> Executable:
        """Make an optimised graph ready to run. Raises BackendError, Unsupported."""
        ...

    def looks(self) -> Mapping[str, Callable[[], Finding]]:
        """The checks of `edgellm doctor`, by name. A look may raise EdgeError or OSError."""
        ...


class Accelerator(Backend, Protocol):
    """A back end with a device and memory of its own."""

    def belongs_here(self) -> bool:
        """True if machines of this kind have the device."""
        ...

    def is_there(self) -> bool:
        """True if the device and its driver were found."""
        ...

    def capacity(self) -> int:
        """Bytes that the device may hold without being slowed down."""
        ...


@dataclass(frozen=True, slots=True)
class Machine:
    """The processor's name, the cores that may be used, and the best instruction set that kernels have for it."""

    processor: str
    cores: int
    isa: str


class ReadProbe(Protocol):
    """Reads memory as a stream: the upper bound of decoding."""

    def measure(self, repetitions: int = 3) -> float:
        """Bytes per second, the best of some passes."""
        ...

    def close(self) -> None: ...


class Host(Backend, Protocol):
    """The back end that computes on this machine's processor."""

    def machine(self) -> Machine: ...

    def read_probe(self, threads: int | None = None) -> ReadProbe: ...
