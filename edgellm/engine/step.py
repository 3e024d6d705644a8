"""One step of the engine: which tokens of which tasks, computed together, and what each task gets from it."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgellm.backends.base import Executable, Pending, StepBatch, never
from edgellm.engine.conversation import FIRST_ROW, NO_ROWS, Conversation, Logits
from edgellm.engine.prompts import TokenIds
from edgellm.engine.scheduler import Limits, Wish, plan
from edgellm.engine.task import Task


class Part(NamedTuple):
    """A task's part of a step. The task is forgotten where its caller drops it."""

    ref: weakref.ref[Task]
    conversation: Conversation
    tokens: TokenIds  # (n,)
    output_rows: TokenIds  # of these tokens


class Outcome(NamedTuple):
    """What a task got from a step: the next token, if that is what it is after, or what went wrong with it alone."""

    task: Task
    token: int | None
    error: Exception | None = None


class Step:
    """Parts that are computed together."""

    def __init__(self, parts: Sequence[Part], fresh: Sequence[Task] = ()) -> None:
        """`fresh`: tasks that were not computed before."""
        self.parts, self.fresh = parts, fresh
        self.started = time.perf_counter()
        self.begun = False  # ahead: the tokens are in the conversations already
        self._pending: Pending | None = None

    def tasks(self) -> list[Task]:
        """Those that are still there."""
        return [task for part in self.parts if (task := part.ref()) is not None]

    def announce(self) -> list[Outcome]:
        """Tell readers of prompts how far they are; what goes wrong with that is their own."""
        failures = []
        for part in self.parts:
            if (task := part.ref()) is not None:
                try:
                    task.progress(len(part.conversation))
                except Exception as error:
                    failures.append(Outcome(task, None, error))
        return failures

    @property
    def void(self) -> bool:
        """Whether a task has another conversation by now: its caller used the model while it was told of progress."""
        return not self.begun and any(
            task.conversation is not part.conversation for part in self.parts if (task := part.ref()) is not None
        )

    def submit(self, executable: Executable) -> None:
        """Take it to the back end."""
        batches = [part.conversation.step(part.tokens, part.output_rows) for part in self.parts]
        self._pending = executable.submit(StepBatch.joined(batches))

    def begin(self, executable: Executable) -> None:
        """Submit it ahead."""
        self.submit(executable)
        self._extend()
        self.begun = True

    def wait(self, executable: Executable) -> Logits:
        """The logits of all wanted rows. Raises StepStopped, and what the back end raises: then it counts only if it was begun."""
        if self._pending is None:
            self.submit(executable)
        assert self._pending is not None
        self._prepare()
        many = any(len(part.tokens) > 1 for part in self.parts)
        logits = self._pending.wait(self._stop if many else never)["logits"]
        if not self.begun:
            self._extend()
        return logits

    def _prepare(self) -> None:
        """Let tasks compute what they need beside logits, while the back end computes; what goes wrong comes out in `sample`."""
        for part in self.parts:
            if len(part.output_rows) and (task := part.ref()) is not None:
                with contextlib.suppress(Exception):
                    task.prepare()

    def settle(self) -> None:
        """Let it come to its end where it was begun; its logits get lost."""
        if self._pending is not None:
            self._pending.wait()

    def _extend(self) -> None:
        for part in self.parts:
            part.conversation.sequence.extend(part.tokens)
            if len(part.tokens) > 1 and len(part.output_rows) == 1:  # the end of a prompt; a draft wants all of its rows
                part.conversation.sequence.mark()

    def _stop(self) -> bool:
        """Whether a prompt in it is no longer wanted, or nothing is."""
        wanted = False
        for part in self.parts:
            task = part.ref()
            cancelled = task is None or task.cancelled
            if cancelled and len(part.tokens) > 1:
                return True
            wanted = wanted or not cancelled
        return not wanted

    def sample(self, logits: Logits) -> list[Outcome]:
        """What each task makes of its rows; its exceptions are its own."""
        if any(task.calls_back for task in self.tasks()):
            logits = logits.copy()  # what they call may compute steps
        outcomes, at = list[Outcome](), 0
        for part in self.parts:
            first, at = at, at + len(part.output_rows)
            task = part.ref()
            if task is None or first == at or task.conversation is not part.conversation:
                continue
            try:
                outcomes.append(Outcome(task, task.sample(logits[first:at])))
            except Exception as error:
                outcomes.append(Outcome(task, None, error))
        return outcomes


def compose(wanted: Sequence[Task], optional: Sequence[Task], executable: Executable, fresh: Sequence[Task]) -> Step | None:
    """The next step for tasks whose next token is waited for; `optional` ones may fill it up. None where there is nothing to do."""
    if len(wanted) == 1 and not optional and not fresh and (part := _next_token(wanted[0])) is not None:
        return Step([_with_draft(wanted[0], part, executable)])
    first, rest = ([task for task in some if task.conversation is not None and not task.done] for some in (wanted, optional))
    if not first:
        return None
    tasks = [*first, *rest]
    limits = Limits(executable.max_tokens, executable.max_segments, executable.max_outputs, executable.pace.tokens)
    wishes = [
        Wish(_pending(task), not task.background, index < len(first), task.many_outputs, task.served)
        for index, task in enumerate(tasks)
    ]
    return Step([_part(tasks[index], wishes[index].rows, n) for index, n in plan(wishes, limits)], fresh)


def follow(done: Step, executable: Executable) -> Step | None:
    """The tokens after those of a step, where it can be known that nothing else is to be computed; of a single one with a draft."""
    parts, tasks = list[Part](), list[Task]()
    for task in done.tasks():
        if task.conversation is not None and not task.done and not task.cancelled and (task.waiting or task.may_run_ahead):
            part = _next_token(task)
            if part is None:
                return None
            parts.append(part)
            tasks.append(task)
    if len(tasks) == 1 and tasks[0].waiting:
        parts = [_with_draft(tasks[0], parts[0], executable)]
    return Step(parts) if parts else None


def _pending(task: Task) -> int:
    """Tokens that are not computed yet; at least the last one, whose logits are wanted."""
    conversation = task.conversation
    assert conversation is not None
    if len(conversation) >= len(task.ids):  # computed, but its logits got lost
        conversation.truncate(len(task.ids) - 1)
    return len(task.ids) - len(conversation)


def _next_token(task: Task) -> Part | None:
    """The part of a task that only waits for its newest token to be computed."""
    if _pending(task) != 1 or task.many_outputs:
        return None
    conversation = task.conversation
    assert conversation is not None
    return Part(weakref.ref(task), conversation, np.array(task.ids[-1:], np.int32), FIRST_ROW)


def _with_draft(task: Task, part: Part, executable: Executable) -> Part:
    """The part with the tokens that the task guesses, as far as the conversation can take them back."""
    room = min(executable.max_tokens - 1, executable.max_outputs - 1, part.conversation.sequence.can_take_back)
    draft = task.draft()[:room]
    if not draft:
        return part
    tokens = np.concatenate([part.tokens, np.array(draft, np.int32)])
    return part._replace(tokens=tokens, output_rows=np.arange(len(tokens), dtype=np.int32))


def _part(task: Task, pending: int, n: int) -> Part:
    conversation = task.conversation
    assert conversation is not None
    first = len(conversation)
    if task.many_outputs:
        rows = np.arange(n, dtype=np.int32)
    else:
        rows = np.array([n - 1], np.int32) if n == pending else NO_ROWS
    return Part(weakref.ref(task), conversation, np.array(task.ids[first : first + n], np.int32), rows)
