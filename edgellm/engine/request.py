"""A request: tokens to compute, and what becomes of their logits."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from edgellm.engine.conversation import Conversation, Logits, SessionCache
from edgellm.engine.prompts import PromptVectors
from edgellm.options.sampling import TokenChoice

PREEMPTS_AFTER = 0.25  # seconds that a paused request keeps its place while this one waits for it


class Request:
    """Tokens of one caller. The monitor's lock guards it, but for `cancelled`, which any thread may set at any time."""

    every_row = False  # the logits of every token are wanted
    separate = False  # in a conversation that nothing else continues
    calls_back = False  # `sample` calls functions of the user's
    drafts = False  # `draft` may propose tokens
    on_step: Callable[[int], None] | None = None  # called before a step that begins at this token; it may use the model
    prepare: Callable[[], None] | None = None  # called while a step with its output rows is computed

    def __init__(
        self,
        ids: array[int],
        *,
        session: SessionCache | None = None,
        background: bool = False,
        preempts_after: float = PREEMPTS_AFTER,
    ) -> None:
        self.ids = ids  # to be computed; grows by the tokens that are generated
        self.session, self.background, self.preempts_after = session, background, preempts_after
        self.adapters = session.adapters if session is not None else 0  # number of its set of adapters
        self.vectors: PromptVectors | None = None  # in the place of some ids
        self.kept: int | None = None  # how many of the first tokens are never evicted; None: the sinks
        self.conversation: Conversation | None = None
        self.recalled: Conversation | None = None  # found in the state store, may be continued or forked
        self.cancelled = False  # by its reader, or with its session
        self.error: Exception | None = None  # for its reader
        self.running = False  # among `Core.running`
        self.last_step = 0  # number of the newest step that computed it
        self.awaited = False  # a reader waits for it
        self.reader = 0  # the thread that waits, or waited last
        self.paused_at: float | None = None  # time.monotonic() since which no reader waits
        self.wake: threading.Condition | None = None  # of the monitor: where its readers sleep

    @property
    def num_computed_tokens(self) -> int:
        return len(self.conversation.sequence.ids) if self.conversation is not None else 0

    @property
    def finished(self) -> bool:
        """Nothing more will be computed for it."""
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        """Its reader need not wait: there is output, or the end."""
        raise NotImplementedError

    @property
    def runs_ahead(self) -> bool:
        """It may fill up a step that others wait for, although its reader does not wait for a token."""
        return False

    def asked(self) -> None:
        """A reader begins to wait."""

    def deliver(self) -> None:
        """Turn what was computed into output for the reader; only where it is `ready`."""

    def started(self, cached: int) -> None:
        """A conversation was found that holds this many of the tokens."""

    def skipped(self, tokens: int) -> None:
        """So many tokens of the prompt are evicted before the answer could depend on them, and are not computed."""

    def advanced(self) -> None:
        """A step computed tokens of the prompt, and no output rows."""

    def draft(self) -> list[int]:
        """Tokens that may follow the newest one, to be checked in the step that computes it."""
        return []

    def choice(self) -> TokenChoice | None:
        """How `sample` will most likely choose, where its token has a successor; None where a device could not do it."""
        return None

    def sample(self, logits: Logits) -> int | None:
        """The next token, from the output rows (R, n_vocab) of a step; None where none is wanted."""
        raise NotImplementedError

    def accept(self, token: int | None, started: float) -> None:
        """Append the token that `sample` returned. `started`: time.perf_counter() at the beginning of the step."""

    def end(self) -> None:
        """Finish it: nothing more is wanted."""
        raise NotImplementedError

    def abort(self) -> None:
        """Finish it after an error."""
        self.end()


class Scoring(Request):
    """The logits of every token, in a new conversation: `take(first, rows)` gets those of each step, valid until the next."""

    every_row = separate = True

    def __init__(
        self, ids: npt.NDArray[np.int32], take: Callable[[int, Logits], None], vectors: PromptVectors | None = None
    ) -> None:
        super().__init__(array("i", ids.tobytes()), preempts_after=0.0)  # a paused stream's conversation stays as it is
        self.vectors = vectors
        self._take, self._filled, self._ended = take, 0, False

    @property
    def finished(self) -> bool:
        return self._ended or self._filled == len(self.ids)

    @property
    def ready(self) -> bool:
        return self.cancelled or self._ended or self._filled == len(self.ids)

    def deliver(self) -> None:
        self._ended = True

    def sample(self, logits: Logits) -> None:
        self._take(self._filled, logits)
        self._filled += len(logits)

    def end(self) -> None:
        self._ended = True
