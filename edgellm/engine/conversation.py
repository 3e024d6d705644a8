"""A conversation: token ids, and the keys and values that a back end keeps for them."""

from __future__ import annotations

import weakref

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import Executable, Segment, State, StepBatch
from edgellm.engine.prompts import TokenIds
from edgellm.memory.sequence import Sequence
from edgellm.ops._spec import Given

Logits = npt.NDArray[np.float32]  # (R, n_vocab)

NO_ROWS, FIRST_ROW = np.empty(0, np.int32), np.zeros(1, np.int32)


class Conversation:
    """A sequence and its state. `user` is the request that extends it; without one it is idle. `adapters`: number of the set of
    adapters that it was computed with.
    """

    __slots__ = ("__weakref__", "adapters", "reused", "sequence", "state", "used", "user")

    def __init__(self, sequence: Sequence, state: State, adapters: int = 0) -> None:
        self.sequence, self.state, self.adapters = sequence, state, adapters
        self.user: weakref.ref[object] | None = None
        self.reused = 0  # tokens that its request, or one that it is a fork for, did not compute
        self.used = 0  # a count that grows with each use, for eviction of the least recently used

    @classmethod
    def empty(cls, executable: Executable) -> Conversation:
        """A new conversation without tokens."""
        return cls(Sequence(executable.layout), executable.new_state())

    def __len__(self) -> int:
        return len(self.sequence)

    @property
    def idle(self) -> bool:
        return self.user is None or self.user() is None

    def useful(self, ids: TokenIds, kept: int | None = None) -> int:
        """As `Sequence.useful`."""
        return self.sequence.useful(ids, kept)

    def truncate(self, length: int) -> None:
        """Cut back to `length` tokens, or to as many before them as can be."""
        self.sequence.truncate(self.sequence.reachable(length))

    def fork(self) -> Conversation:
        """An independent copy that shares memory. Not while a step with this one is computed."""
        return Conversation(self.sequence.fork(), self.state.fork(), self.adapters)

    def step(self, tokens: TokenIds, output_rows: TokenIds, given: Given | None = None) -> StepBatch:
        """The step that computes `tokens` next, some of them vectors. It counts once the sequence is extended by them."""
        looked_up, place = tokens if given is None else np.maximum(tokens, 0), self.sequence.place(len(tokens), tokens)
        if given is not None and given.images is not None:
            place = self.sequence.looking_around(place, *given.around())
        segment = Segment(self.state, 0, len(tokens), self.adapters)
        return StepBatch(
            looked_up, place.positions, place.sink_positions, place.spans, output_rows, (segment,), place.state_slots, given
        )

    def compute(self, executable: Executable, tokens: TokenIds, output_rows: TokenIds = NO_ROWS) -> Logits:
        """Compute `tokens` in a step of their own. The logits of the output rows are valid until the next step."""
        logits = executable.submit(self.step(tokens, output_rows)).wait()["logits"]
        self.sequence.extend(tokens)
        return logits


class SessionCache:
    """The conversation that a session keeps between its calls. `adapters`: number of its set of adapters. `closed`: the session was
    closed, and its requests are cancelled.
    """

    __slots__ = ("__weakref__", "adapters", "closed", "conversation")

    def __init__(self, conversation: Conversation | None = None, adapters: int = 0) -> None:
        self.conversation, self.adapters, self.closed = conversation, adapters, False
