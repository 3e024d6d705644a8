"""The monitor around the core: one thread at a time drives it, and a waiting caller drives the engine."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence

from edgellm.backends.base import Executable, StepStopped
from edgellm.engine.core import Core
from edgellm.engine.driver_role import DriverRole
from edgellm.engine.request import Request
from edgellm.engine.step import Step, StepResult
from edgellm.errors import BackendError, ModelClosed, OptionError, QueueFull


class Monitor:
    """A core for callers in any thread, with lock, hand-over of the driving thread, Ctrl-C and fork.

    One caller at a time is the driver: it computes steps for all requests that a reader waits for, until its own is ready. Then
    the next one that waits drives. Where nobody waits, nothing is computed. The lock guards the core; it is not held while a step
    is computed and sampled.
    """

    release: weakref.finalize[..., Monitor]  # alive until executable and weights are freed

    def __init__(self, core: Core, executable: Executable, path: str) -> None:
        self.core, self._path = core, path
        self._executable: Executable | None = executable
        self.lock = threading.RLock()
        self._role = DriverRole(self.lock)
        self._stepping = threading.Lock()  # held while executable and weights are used
        self._process = os.getpid()

    def check_process(self) -> None:
        """Raises BackendError in a forked process."""
        if os.getpid() != self._process:
            raise BackendError("the model was loaded before this process was forked and cannot be used here; load it again.")

    def check(self) -> Executable:
        """The executable. Raises ModelClosed."""
        if self._executable is None or not self.release.alive:
            raise ModelClosed(f"{self._path}: the model was closed; load it again.")
        return self._executable

    # --- callers that wait -------------------------------------------------------------------------------------------------
    def run(self, request: Request) -> None:
        """Wait until there is output for the reader of `request`, and deliver it.

        Raises the request's error, BackendError in a forked process, ModelClosed.
        """
        if self._role.thread == threading.get_ident() and request in self.core.in_step:
            raise OptionError("a stream cannot be read by a function that is called while it computes its next piece.")
        self.run_many((request,))
        if request.error is not None:
            raise request.error

    def run_many(
        self, requests: Sequence[Request], wake: threading.Condition | None = None, stirred: Callable[[], bool] | None = None
    ) -> None:
        """Wait until there is output for one of some readers, and deliver it; this thread drives unless another one does.

        Requests that are still `awaited` afterwards are computed by other threads meanwhile. It also ends when `stirred()` is true,
        after `wake` was notified. A request's error stays in it. Raises BackendError in a forked process, ModelClosed.
        """
        self.check_process()
        core, role, thread = self.core, self._role, threading.get_ident()
        nested = role.thread == thread  # called by a function that a step calls, or by a signal handler
        outer = core.in_step if nested else ()
        step: Step | None = None
        outcomes: Sequence[StepResult] = ()
        try:
            while True:
                with self.lock:  # never given back inside: Ctrl-C finds it held or free as this block says
                    if step is None:
                        self._enter(requests, wake)
                    else:
                        core.in_step = outer
                        core.postprocess(step, outcomes)
                    step, last = self._next_step(requests, nested, wake, stirred), step
                    if step is None:
                        break
                    core.in_step = (*outer, *step.requests)
                try:
                    outcomes = self._compute(step)
                except Exception as error:  # the driver's alone: other threads compute the step again
                    outcomes = [StepResult(request, None, error) for request in step.requests if request in requests]
                    if step.ahead:
                        with self.lock:
                            core.forget(step)
                    if not outcomes:
                        raise
            if last is not None and role.thread == thread and self.check().runs_ahead:
                self._submit_ahead(last, outer)
        except BaseException as error:
            with self.lock:
                for request in requests:
                    request.error = error if isinstance(error, Exception) else None
                    request.abort()
            raise
        finally:
            with self.lock:
                if role.thread == thread:
                    core.in_step = outer
                    if not nested:
                        role.thread = 0
                for request in requests:
                    if request.finished:
                        request.awaited = False
                        core.remove(request)
                    elif not request.awaited:
                        core.pause(request)
                if role.sleepers or role.reserved:
                    role.hand_over(core.running)

    def _enter(self, requests: Sequence[Request], wake: threading.Condition | None) -> None:
        """Readers begin to wait: one in this thread, or several that share a condition."""
        for request in requests:
            if not request.awaited:
                request.awaited, request.paused_at, request.wake = True, None, wake or request.wake
                request.reader = threading.get_ident() if wake is None else id(request)
                if request.session is not None and request.session.closed:
                    request.cancelled = True
                request.asked()

    def _next_step(
        self, requests: Sequence[Request], nested: bool, wake: threading.Condition | None, stirred: Callable[[], bool] | None
    ) -> Step | None:
        """The step that this thread computes next, once it may drive; None when some requests are ready, whose output is delivered,
        or when `stirred()` is true.
        """
        role, thread = self._role, threading.get_ident()
        while True:
            delivered = running = idle = False
            for request in requests:
                if request.ready:
                    request.deliver()
                    request.awaited, delivered = False, True
                elif request.running:
                    running = True
                else:
                    idle = True
            if delivered or (stirred is not None and stirred()):
                return None
            if idle:
                if self._admit(requests, nested):
                    continue
                running = any(request.running for request in requests)
            if running and (nested or (not role.reserved and role.thread in (0, thread))):
                self.check()
                role.thread = thread
                step = self.core.schedule()
                if step is not None:
                    return step
            else:
                if role.thread == thread:  # another one must come first
                    role.thread = 0
                    role.hand_over(self.core.running)
                if wake is None:
                    wake = requests[0].wake = requests[0].wake or threading.Condition(self.lock)
                role.sleep(wake)
                self.check()

    def _admit(self, requests: Sequence[Request], nested: bool) -> bool:
        """Let requests run, or wait for a place. True where the queue has no room for one, which ends with that error."""
        core, waiting, refused = self.core, set(self.core.waiting), False
        for request in requests:
            if not request.running and (nested or request not in waiting):
                try:
                    core.add(request, nested=nested)
                except QueueFull as error:
                    request.error, refused = error, True
                    request.abort()
        core.admit()
        return refused

    def end(self, request: Request) -> None:
        """End a cancelled request, after the step that another thread computes with it."""
        with self.lock:
            core = self.core
            while request in core.in_step and self._role.thread != threading.get_ident() and self.release.alive:
                request.wake = request.wake or threading.Condition(self.lock)
                self._role.sleep(request.wake)
            if request not in core.in_step:  # else a callback or signal handler calls this: it ends after the step
                request.end()
                core.remove(request)

    def cancel(self, *, running: bool = False) -> None:
        """Cancel all requests or only the `running` ones, without waiting for their end. Requests for logits are not cancelled."""
        for request in self.core.running if running else self.core.requests:
            request.cancelled = request.cancelled or not request.separate

    @contextlib.contextmanager
    def alone(self) -> Iterator[Executable]:
        """The executable for this thread, between two steps of other threads. Raises ModelClosed."""
        role, thread = self._role, threading.get_ident()
        nested = role.thread == thread
        try:
            with self.lock:
                role.reserve(lambda: not self.release.alive)
                executable = self.check()
                role.thread = thread
            with self._stepping:
                ahead, self.core.ahead = self.core.ahead, None
                if ahead is not None:
                    ahead.settle()  # its logits are computed again
                yield executable
        finally:
            with self.lock:
                if role.thread == thread and not nested:
                    role.thread = 0
                role.hand_over(self.core.running)

    # --- computing ---------------------------------------------------------------------------------------------------------
    def _compute(self, step: Step) -> Sequence[StepResult]:
        """Compute a step and draw the next tokens, without the lock. A step that was stopped does not count."""
        for request in step.requests:
            if request.on_step is not None:
                if (outcomes := self.core.announce(step)) is not None:
                    return outcomes
                break
        if not self.release.alive and threading.current_thread() is threading.main_thread():
            raise ModelClosed(f"{self._path}: the model was closed, for the program is ending.")
        with self._stepping:  # at the end of the program never given back to other threads
            try:
                logits = self.core.step(step)
            except StepStopped:
                return ()
        return self.core.sample(step, logits)

    def _submit_ahead(self, step: Step, outer: tuple[Request, ...]) -> None:
        """Submit the next tokens of the requests of a step, so that a back end that runs ahead has work while readers have none."""
        with self.lock:
            ahead = self.core.schedule_ahead(step)
            if ahead is None:
                return
            self.core.in_step = (*outer, *ahead.requests)
        with contextlib.suppress(BackendError), self._stepping:  # the next step tries again and raises it
            self.check()
            self.core.submit_ahead(ahead)
