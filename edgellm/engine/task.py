"""One caller's work in the engine: tokens to compute, and what becomes of their logits."""

from __future__ import annotations

import threading
import time
from array import array

import numpy as np
import numpy.typing as npt

from edgellm.engine.conversation import Conversation, Home, Logits

PATIENCE = 1.0  # seconds that others leave to a stream whose reader does not ask for more


class Task:
    """Guarded by the engine's lock, but for `cancelled`, which anybody may set, and `sample`, which the driver alone calls."""

    many_outputs = False  # whether the logits of every token are wanted
    calls_back = False  # whether `sample` calls functions of the user's

    def __init__(
        self,
        ids: array[int],
        lock: threading.RLock,
        *,
        home: Home | None = None,
        background: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        self.ids = ids  # to be computed; grows by the tokens that were generated
        self.home, self.background, self.patience = home, background, patience
        self.kept: int | None = None  # how many of the first tokens are never evicted; None: the sinks
        self.wake = threading.Condition(lock)  # something happened that its waiters should look at
        self.conversation: Conversation | None = None
        self._cancelled = False
        self.error: Exception | None = None  # for whoever waits for it
        self.waiting = False  # somebody waits for it now
        self.holds = False  # it is one of those that may be computed
        self.thread = 0  # that asked for it last
        self.paused: float | None = None  # since when nobody asks for more (time.monotonic)
        self.served = 0  # the engine's step in which it took part last

    @property
    def cancelled(self) -> bool:
        """Nobody wants more of it, or its session was closed."""
        return self._cancelled or (self.home is not None and self.home.closed)

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        self._cancelled = value

    @property
    def done(self) -> bool:
        """Nothing more will be computed for it."""
        raise NotImplementedError

    @property
    def may_run_ahead(self) -> bool:
        """Whether a step that others want may carry it, although nobody waits for it now."""
        return False

    def advance(self) -> bool:
        """Make what was computed ready for whoever waits; whether there is something for him."""
        raise NotImplementedError

    def started(self, cached: int) -> None:
        """A conversation was found, with so many of the tokens computed."""

    def progress(self, done: int) -> None:
        """A step is about to go on from token `done`."""

    def draft(self) -> list[int]:
        """Tokens that may come after the newest one, to be checked in the step that computes it."""
        return []

    def prepare(self) -> None:
        """The step that brings the logits for `sample` is being computed."""

    def sample(self, logits: Logits) -> int | None:
        """What comes of the wanted rows (R, n_vocab) of a step: the next token, if that is what is wanted."""
        raise NotImplementedError

    def accept(self, token: int | None, started: float) -> None:
        """What `sample` found is now part of the task. `started`: when the step began."""

    def end(self) -> None:
        """Nothing more shall be computed."""
        raise NotImplementedError

    def abort(self) -> None:
        """The same, after an error."""
        self.end()


class Scoring(Task):
    """The logits of every token, in a context of their own."""

    many_outputs = True

    def __init__(self, ids: npt.NDArray[np.int32], n_vocab: int, lock: threading.RLock) -> None:
        super().__init__(array("i", ids.tobytes()), lock, patience=0.0)  # a paused stream's conversation stays as it is
        self.rows = np.empty((len(ids), n_vocab), np.float32)
        self._filled, self._ended = 0, False

    @property
    def done(self) -> bool:
        return self._ended or self._filled == len(self.rows)

    def advance(self) -> bool:
        if self.cancelled:
            self._ended = True
        return self.done

    def sample(self, logits: Logits) -> None:
        self.rows[self._filled : self._filled + len(logits)] = logits
        self._filled += len(logits)

    def end(self) -> None:
        self._ended = True


def now() -> float:
    """For the patience with paused tasks."""
    return time.monotonic()
