"""The engine's core: `schedule` picks requests, `step` computes them, `sample` draws tokens, and `postprocess` hands them out."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from edgellm.backends.base import Chooser, Executable, StepBatch, never
from edgellm.engine.conversation import FIRST_ROW, NO_ROWS, Logits
from edgellm.engine.prefix_cache import PrefixCache
from edgellm.engine.request import Request
from edgellm.engine.scheduler import PIECE, Candidate, StepLimits, plan
from edgellm.engine.step import Following, RequestRows, Step, StepResult
from edgellm.errors import FormatError, NumericError, QueueFull
from edgellm.formats.mapped import MappedFile
from edgellm.weights import WeightStore


class Core:
    """Requests that are waiting, running or preempted, and the steps that compute them. It knows no threads and no locks.

    At most `parallel` requests run. A running one is awaited by a reader or paused (a stream between two pieces). Where all places
    are taken, a paused one is preempted for a request of the same reader, which would wait for itself, for any other once it has
    been paused for `preempts_after` seconds, and a background request for a foreground one. A dropped request is forgotten.
    """

    def __init__(
        self, executable: Executable, weights: WeightStore, parallel: int, state_bytes: int, queue: int | None = None
    ) -> None:
        self.parallel, self.queue = parallel, queue  # requests that run, and that may wait; None: any number
        self.closing = False  # no request starts any more
        self.cache = PrefixCache(executable, parallel, state_bytes)
        self.waiting: deque[Request] = deque()
        self._running: tuple[weakref.ref[Request], ...] = ()
        self._preempted: tuple[weakref.ref[Request], ...] = ()  # not awaited; else they are waiting
        self.in_step: tuple[Request, ...] = ()  # of the steps that are being computed; a callback may nest one in another
        self.ahead: Step | None = None  # submitted ahead
        self._executable, self._weights, self._steps = executable, weights, 0
        self._chooser = executable if isinstance(executable, Chooser) else None
        self._row_seconds = 0.0  # of a row in steps with prompts, as measured lately

    @property
    def running(self) -> list[Request]:
        return [request for ref in self._running if (request := ref()) is not None]

    @property
    def preempted(self) -> list[Request]:
        return [request for ref in self._preempted if (request := ref()) is not None]

    @property
    def requests(self) -> list[Request]:
        """All that are running, preempted or waiting. Safe to read from any thread."""
        return [*self.running, *self.preempted, *tuple(self.waiting)]

    # --- admission ---------------------------------------------------------------------------------------------------------
    def add(self, request: Request, *, nested: bool = False) -> None:
        """Let a request run as soon as there is room: foreground first, else in order. One that is `nested` in a step runs at once:
        the readers of all others wait for it. Raises QueueFull for a new one."""
        if nested:
            self._start(request)
        elif request not in self.waiting:
            at = len(self.waiting)
            while not request.background and at and self.waiting[at - 1].background:
                at -= 1
            self.waiting.insert(at, request)
        self.admit()
        if self.queue is not None and len(self.waiting) > self.queue and not request.last_step and request in self.waiting:
            self.waiting.remove(request)
            raise QueueFull(f"{self.queue} requests wait already, as many as queue={self.queue} allows; try again later.")

    def admit(self) -> None:
        """Start waiting requests while there is room."""
        while self.waiting and not self.closing and self._make_room(self.waiting[0]):
            self._start(self.waiting.popleft())

    def _start(self, request: Request) -> None:
        self._preempted = tuple(ref for ref in self._preempted if ref() not in (None, request))
        self._running = (*(ref for ref in self._running if ref() is not None), weakref.ref(request))
        request.running = True
        _wake(request)

    def _make_room(self, request: Request) -> bool:
        """True if a place is free, or was taken from a request that has to give way."""
        running = self.running
        if len(running) < self.parallel:
            return True
        idle, now = [other for other in running if other not in self.in_step], time.monotonic()
        own = [other for other in idle if other.reader == request.reader]
        paused = [other for other in idle if other.paused_at is not None and now - other.paused_at >= request.preempts_after]
        background = [other for other in idle if other.background and not request.background]
        for victims in (own, paused, background):
            if victims:
                self._preempt(min(victims, key=lambda other: now if other.paused_at is None else other.paused_at))
                return True
        return False

    def _preempt(self, request: Request) -> None:
        self._stop(request)
        self._preempted = (*self._preempted, weakref.ref(request))
        _wake(request)

    def _stop(self, request: Request) -> None:
        self._running = tuple(ref for ref in self._running if ref() not in (None, request))
        request.running = False
        self.cache.release(request)

    def pause(self, request: Request) -> None:
        """Its reader no longer waits: it keeps its place while nobody else needs it."""
        request.paused_at = time.monotonic()
        if not request.running and request in self.waiting:
            self.waiting.remove(request)
        if self.waiting:
            self.admit()

    def remove(self, request: Request) -> None:
        """The request is finished, or its reader went away."""
        if request.running:
            self._stop(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        if self._preempted:
            self._preempted = tuple(ref for ref in self._preempted if ref() not in (None, request))
        _wake(request)
        self.admit()

    # --- steps -------------------------------------------------------------------------------------------------------------
    def schedule(self) -> Step | None:
        """The next step, None where nothing can be computed."""
        if self.ahead is not None:
            step, self.ahead = self.ahead, None
            if step.resume():
                return step
            step.settle()  # the logits are computed again for those that are still there
        awaited, others, new = list[Request](), list[Request](), list[Request]()
        for ref in self._running:
            request = ref()
            if request is None or request in self.in_step:
                continue
            if request.awaited and not request.ready:
                awaited.append(request)
                if request.conversation is None:
                    new.append(request)
            else:
                if request.awaited:
                    _wake(request)
                if request.runs_ahead and not request.cancelled:
                    others.append(request)
        for request in new:
            try:
                if not self.cache.better_later(request, awaited):
                    request.started(self.cache.start(request))
            except Exception as error:
                self._fail(request, error)
        if len(awaited) == 1 and not others and not new and not awaited[0].every_row and _uncomputed(awaited[0]) == 1:
            return Step(awaited, (self._decoding(awaited[0], alone=True),))
        awaited = [request for request in awaited if request.conversation is not None and not request.finished]
        return self._batched(awaited, [other for other in others if other.conversation is not None and not other.finished])

    def _batched(self, awaited: Sequence[Request], others: Sequence[Request]) -> Step | None:
        """The step of several requests, or of a prompt."""
        if not awaited:
            return None
        requests, executable = [*awaited, *others], self._executable
        for request in requests:
            if request.conversation is not None and request.vectors is None and not request.every_row:
                request.skipped(request.conversation.sequence.skip(request.ids))
        most = executable.max_tokens, executable.max_segments, executable.max_outputs
        limits = StepLimits(*most, executable.step_size.tokens, self._row_seconds)
        candidates = [
            Candidate(_uncomputed(request), not request.background, index < len(awaited), request.every_row, request.last_step)
            for index, request in enumerate(requests)
        ]
        chosen = list(self._uncut(requests, plan(candidates, limits)))
        parts = [_part(requests[index], n, last=n == candidates[index].rows) for index, n in chosen]
        return Step([requests[index] for index, _ in chosen], parts)

    def _uncut(self, requests: Sequence[Request], chosen: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Rows of requests with whole images, where these are seen both ways: fewer, or more if there is room in the step."""
        room = self._executable.max_tokens - sum(n for _, n in chosen)
        for index, n in chosen:
            request = requests[index]
            if request.vectors is not None and (uncut := request.vectors.uncut(request.num_computed_tokens, n)) != n:
                if uncut - n > room:
                    continue
                room, n = room - (uncut - n), uncut
            yield index, n

    def _decoding(self, request: Request, *, alone: bool) -> RequestRows:
        """The newest token; `alone` in a step, with a draft."""
        conversation = request.conversation
        assert conversation is not None
        if alone and request.drafts:
            room = min(self._executable.max_tokens - 1, self._executable.max_outputs - 1, conversation.sequence.can_take_back)
            if draft := request.draft()[:room]:
                tokens = np.array([request.ids[-1], *draft], np.int32)
                return RequestRows(conversation, tokens, np.arange(len(tokens), dtype=np.int32))
        given = request.vectors.part(len(request.ids) - 1, 1) if request.vectors is not None else None
        return RequestRows(conversation, np.array(request.ids[-1:], np.int32), FIRST_ROW, given)

    def announce(self, step: Step) -> Sequence[StepResult] | None:
        """Call the functions that readers want to be called before a step; None where it can be computed then.

        One that raises fails its request, and one that uses the model may take conversations away.
        """
        failed = list[StepResult]()
        for request, part in zip(step.requests, step.parts, strict=True):
            if request.on_step is not None:
                try:
                    request.on_step(len(part.conversation))
                except Exception as error:
                    failed.append(StepResult(request, None, error))
        return failed if failed or step.void else None

    def check_file(self) -> None:
        """Raises FormatError where a file was changed under its memory map."""
        if any(map(MappedFile.changed, self._weights.files)):
            raise FormatError("was changed on disk while the model was in use; load it again", file=self._weights.path)

    def step(self, step: Step) -> Logits:
        """Compute a step: the logits of its output rows.

        Raises StepStopped, FormatError, and what the back end raises; then the step counts only if it was submitted ahead.
        """
        if any(map(MappedFile.changed, self._weights.files)):  # 1 us; a file that is cut during a step still ends the process
            self.check_file()
        began, rows = time.perf_counter(), sum(len(part.tokens) for part in step.parts)
        if step.pending is None:
            self._submit(step)
        assert step.pending is not None
        for request, part in zip(step.requests, step.parts, strict=True):
            if request.prepare is not None and len(part.output_rows):
                with contextlib.suppress(Exception):  # raised again by `sample`
                    request.prepare()
        single = len(step.parts) == 1 and len(step.parts[0].tokens) == 1
        if single and self._chooser is not None:
            self._follow(self._chooser, step)
        logits = step.pending.wait(never if single else step.stopped)["logits"]
        if not step.ahead:
            _extend(step)
        if rows - len(step.parts) >= PIECE // 2:  # there are prompts in it
            taken, known = (time.perf_counter() - began) / rows, self._row_seconds
            self._row_seconds = (known + min(max(taken, known / 2), 2 * known)) / 2 if known else taken
        return logits

    def _follow(self, chooser: Chooser, step: Step) -> None:
        """Begin the step after one of a single token, before that one is waited for; only where no other request has to come in."""
        (request,), (part,) = step.requests, step.parts
        assert step.pending is not None
        if self.waiting or part.given is not None or request.calls_back or request.on_step is not None:
            return
        if any(other is not request and (other.awaited or other.runs_ahead) for other in self.running):
            return
        choice = request.choice()
        if choice is None:
            return
        if not step.ahead:
            _extend(step)
            step.ahead = True
        pending = chooser.follow(step.pending, part.conversation.step(part.tokens, FIRST_ROW), choice)
        step.following = None if pending is None else Following(part.conversation, pending)

    def _keep_following(self, following: Following, request: Request) -> None:
        """A step that the device began becomes the one ahead if it guessed the request's newest token; else it never was."""
        conversation, pending = following
        if request.finished or request.cancelled or request.conversation is not conversation:
            return
        if len(request.ids) == len(conversation) + 1 and request.ids[-1] == pending.token():
            step = Step((request,), (RequestRows(conversation, np.array(request.ids[-1:], np.int32), FIRST_ROW),), pending=pending)
            _extend(step)
            step.park()
            self.ahead = step

    def submit_ahead(self, step: Step) -> None:
        """Hand a step to the back end before anyone waits for it."""
        self._submit(step)
        _extend(step)
        step.park()
        self.ahead = step

    def _submit(self, step: Step) -> None:
        batches = list[StepBatch]()
        for conversation, tokens, rows, given in step.parts:
            batches.append(conversation.step(tokens, rows, given))
        step.pending = self._executable.submit(batches[0] if len(batches) == 1 else StepBatch.joined(batches))

    def sample(self, step: Step, logits: Logits) -> list[StepResult]:
        """Draw the next tokens. An exception fails its request only."""
        for request in step.requests:
            if request.calls_back:
                logits = logits.copy()  # callbacks may compute steps
                break
        outcomes, first = list[StepResult](), 0
        for request, part in zip(step.requests, step.parts, strict=True):
            end = first + len(part.output_rows)
            if end > first and request.conversation is part.conversation:
                try:
                    outcomes.append(StepResult(request, request.sample(logits[first:end])))
                except Exception as error:
                    outcomes.append(StepResult(request, None, error))
            first = end
        return outcomes

    def postprocess(self, step: Step, outcomes: Sequence[StepResult]) -> None:
        """Append each request's token, fail those with an error, and wake readers that have output."""
        self._steps += 1
        for request, token, error in outcomes:
            try:
                if error is not None:
                    raise error
                if not request.finished:
                    request.accept(token, step.started)
            except Exception as failure:
                self._fail(request, failure)
        for request, part in zip(step.requests, step.parts, strict=True):
            request.last_step = self._steps
            if not len(part.output_rows):
                request.advanced()
            if request.wake is not None and (request.cancelled or request.ready):
                _wake(request)
            if step.following is not None:
                self._keep_following(step.following, request)
        if self.waiting:
            self.admit()

    def schedule_ahead(self, step: Step) -> Step | None:
        """The next tokens of the requests of a step that was just computed, where it is certain that nothing else comes before."""
        if self.ahead is not None or any(request.awaited and request.conversation is None for request in self.running):
            return None
        found = [
            request
            for request in step.requests
            if request.conversation is not None and not request.finished and not request.cancelled
            if request.awaited or request.runs_ahead
        ]
        if not found or any(request.every_row or _uncomputed(request) != 1 for request in found):
            return None
        alone = len(found) == 1 and found[0].awaited
        return Step(found, [self._decoding(request, alone=alone) for request in found])

    def forget(self, step: Step) -> None:
        """Drop the conversations of a step that failed after its tokens were appended: their keys may be missing."""
        for request, part in zip(step.requests, step.parts, strict=True):
            self.cache.forget(part.conversation)
            if request.conversation is part.conversation:
                request.conversation = None

    def _fail(self, request: Request, error: Exception) -> None:
        """End one request with an error for its reader."""
        if isinstance(error, NumericError) and request.conversation is not None:
            self.cache.forget(request.conversation)  # keys that are NaN would spoil what is computed beside them
            request.conversation = None
        request.error = error
        request.abort()
        self.remove(request)


def _extend(step: Step) -> None:
    """Append a step's tokens to their conversations."""
    for conversation, tokens, output_rows, _ in step.parts:
        conversation.sequence.extend(tokens)
        if len(tokens) > 1 and len(output_rows) == 1:  # the end of a prompt; a draft has as many output rows as tokens
            conversation.sequence.mark()


def _wake(request: Request) -> None:
    """Let readers that sleep look at their request again."""
    if request.wake is not None:
        request.wake.notify_all()


def _uncomputed(request: Request) -> int:
    """Tokens that are not computed yet; at least the newest one, whose logits are wanted."""
    conversation = request.conversation
    assert conversation is not None
    computed = len(conversation.sequence.ids)
    if computed >= len(request.ids):  # computed, but its logits got lost
        conversation.truncate(len(request.ids) - 1)
        computed = len(conversation.sequence.ids)
    return len(request.ids) - computed


def _part(request: Request, n: int, *, last: bool) -> RequestRows:
    """The next `n` tokens; `last`: no others are left to compute."""
    conversation = request.conversation
    assert conversation is not None
    first = len(conversation.sequence.ids)
    if request.every_row:
        rows = np.arange(n, dtype=np.int32)
    else:
        rows = np.array([n - 1], np.int32) if last else NO_ROWS
    given = request.vectors.part(first, n) if request.vectors is not None else None
    return RequestRows(conversation, np.array(request.ids[first : first + n], np.int32), rows, given)
