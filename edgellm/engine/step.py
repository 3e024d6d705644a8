"""One step: tokens of several requests that the back end computes together."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from edgellm.backends.base import Guessed, Pending
from edgellm.engine.conversation import Conversation
from edgellm.engine.prompts import TokenIds
from edgellm.engine.request import Request
from edgellm.ops._spec import Given


class RequestRows(NamedTuple):
    """The rows of one request."""

    conversation: Conversation
    tokens: TokenIds  # (n,)
    output_rows: TokenIds  # of these tokens
    given: Given | None = None  # vectors in the place of some


class StepResult(NamedTuple):
    """The result of a step for one request: its next token or None, or an error of its own."""

    request: Request
    token: int | None
    error: Exception | None = None


class Following(NamedTuple):
    """The step after one, with the token that the device guesses."""

    conversation: Conversation
    pending: Guessed


@dataclass(slots=True)
class Step:
    """Parts that are computed together, and the request of each."""

    requests: Sequence[Request]
    parts: Sequence[RequestRows]
    started: float = field(default_factory=time.perf_counter)
    pending: Pending | None = None  # of the back end, once it was submitted
    ahead: bool = False  # submitted before anyone waited for it: its tokens are in the conversations already
    weak: Sequence[weakref.ref[Request]] = ()
    following: Following | None = None  # begun before this one's token is known

    @property
    def void(self) -> bool:
        """A request lost its conversation to another one since the step was scheduled."""
        return not self.ahead and any(
            request.conversation is not part.conversation for request, part in zip(self.requests, self.parts, strict=True)
        )

    def park(self) -> None:
        """Keep no request alive that is dropped before `resume`."""
        self.weak, self.requests, self.ahead = [weakref.ref(request) for request in self.requests], (), True

    def resume(self) -> bool:
        """Take up a step that was submitted ahead. False where one of its requests was dropped."""
        self.requests = [request for ref in self.weak if (request := ref()) is not None]
        return len(self.requests) == len(self.parts)

    def settle(self) -> None:
        """Let it come to its end where it was submitted; its logits are lost."""
        if self.pending is not None:
            self.pending.wait()

    def stopped(self) -> bool:
        """A prompt in it was cancelled, or everything."""
        cancelled = [request.cancelled for request in self.requests]
        prompts = [len(part.tokens) > 1 for part in self.parts]
        return any(prompts) and (all(cancelled) or any(a and b for a, b in zip(cancelled, prompts, strict=True)))
