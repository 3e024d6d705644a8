"""One step: tokens of several requests that the back end computes together."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import NamedTuple

from edgellm.backends.base import Executable, Pending, StepBatch, never
from edgellm.engine.conversation import Conversation, Logits
from edgellm.engine.prompts import TokenIds
from edgellm.engine.request import Request
from edgellm.ops._spec import Given


class Part(NamedTuple):
    """The rows of one request."""

    conversation: Conversation
    tokens: TokenIds  # (n,)
    output_rows: TokenIds  # of these tokens
    given: Given | None = None  # vectors in the place of some


class Outcome(NamedTuple):
    """The result of a step for one request: its next token or None, or an error of its own."""

    request: Request
    token: int | None
    error: Exception | None = None


class Step:
    """Parts that are computed together, and the request of each. A step submitted ahead keeps no request alive that was dropped."""

    __slots__ = ("parts", "pending", "requests", "started", "submitted_ahead", "weak")

    def __init__(self, requests: Sequence[Request], parts: Sequence[Part]) -> None:
        self.requests, self.parts = requests, parts
        self.started = time.perf_counter()
        self.pending: Pending | None = None
        self.submitted_ahead = False  # its tokens are in the conversations already
        self.weak: Sequence[weakref.ref[Request]] = ()

    @property
    def void(self) -> bool:
        """A request lost its conversation to another one since the step was scheduled."""
        return not self.submitted_ahead and any(
            request.conversation is not part.conversation for request, part in zip(self.requests, self.parts, strict=True)
        )

    def submit(self, executable: Executable) -> None:
        """Hand it to the back end."""
        batches = [part.conversation.step(part.tokens, part.output_rows, part.given) for part in self.parts]
        self.pending = executable.submit(batches[0] if len(batches) == 1 else StepBatch.joined(batches))

    def submit_ahead(self, executable: Executable) -> None:
        """Hand it to the back end before anyone waits for it."""
        self.submit(executable)
        self._extend()
        self.submitted_ahead = True
        self.weak, self.requests = [weakref.ref(request) for request in self.requests], ()

    def resume(self) -> bool:
        """Take up a step that was submitted ahead. False where one of its requests was dropped."""
        self.requests = [request for ref in self.weak if (request := ref()) is not None]
        return len(self.requests) == len(self.parts)

    def wait(self, executable: Executable) -> Logits:
        """The logits of all output rows. Raises StepStopped and what the back end raises: then only a step that was submitted ahead
        counts."""
        if self.pending is None:
            self.submit(executable)
        assert self.pending is not None
        for request, part in zip(self.requests, self.parts, strict=True):
            if request.prepare is not None and len(part.output_rows):
                try:
                    request.prepare()
                except Exception:  # raised again by `sample`
                    continue
        single = len(self.parts) == 1 and len(self.parts[0].tokens) == 1
        logits = self.pending.wait(never if single else self._stop)["logits"]
        if not self.submitted_ahead:
            self._extend()
        return logits

    def settle(self) -> None:
        """Let it come to its end where it was submitted; its logits are lost."""
        if self.pending is not None:
            self.pending.wait()

    def _extend(self) -> None:
        for conversation, tokens, output_rows, _ in self.parts:
            conversation.sequence.extend(tokens)
            if len(tokens) > 1 and len(output_rows) == 1:  # the end of a prompt; a draft has as many output rows as tokens
                conversation.sequence.mark()

    def _stop(self) -> bool:
        """A prompt in it was cancelled, or everything."""
        cancelled = [request.cancelled for request in self.requests]
        prompts = [len(part.tokens) > 1 for part in self.parts]
        return any(prompts) and (all(cancelled) or any(a and b for a, b in zip(cancelled, prompts, strict=True)))
