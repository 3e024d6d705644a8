"""The monitor around the core: one thread at a time drives it, and whichever caller waits is that thread."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence

from edgellm.backends.base import Executable, StepStopped
from edgellm.engine.conversation import Conversation, SessionCache
from edgellm.engine.core import Core
from edgellm.engine.prompts import TokenIds
from edgellm.engine.readers import Readers
from edgellm.engine.request import Request
from edgellm.engine.step import Outcome, Step
from edgellm.errors import BackendError, ContextFull, FormatError, ModelClosed, OptionError, QueueFull
from edgellm.weights import WeightStore

ENDS = 256  # bytes at the ends of a weight that distinguish it from another one
RECALLED = 64  # tokens: fewer are computed as fast as they are read from a file
WAIT = 0.25  # seconds; bounded waits let Ctrl-C through on every system


class Engine:
    """An executable and its weights for callers in any thread, with lock, hand-over of the driving thread, Ctrl-C and fork.

    One caller at a time is the driver: it computes steps for all requests that a reader waits for, until its own is ready. Then
    the next one that waits drives. Where nobody waits, nothing is computed. The lock guards the core; it is not held while a step
    is computed and sampled.
    """

    def __init__(
        self,
        executable: Executable,
        weights: WeightStore,
        path: str,
        *,
        positions: int | None,
        parallel: int = 1,
        queue: int | None = None,
        state_bytes: int = 0,
    ) -> None:
        """`positions`: number of learned positions, None where they are computed. `parallel`: requests that run at a time; `queue`:
        those that may wait, None for any number."""
        self.positions, self.layout, self._path = positions, executable.layout, path
        self.lock = threading.RLock()
        self._role_free = threading.Condition(self.lock)  # for callers that want the executable for themselves
        self._executable: Executable | None = executable
        self._weights = weights
        self._stepping = threading.Lock()  # held while executable and weights are used
        self._release = weakref.finalize(self, _release, executable, weights, self._stepping, os.getpid())
        self._process = os.getpid()
        self.core = Core(executable, parallel, state_bytes, queue)
        self._driver = 0  # the thread that drives; only this thread changes it to and from its own number
        self._reserved = 0  # callers that want the executable for themselves
        self._sleepers = 0  # threads that wait for output
        self.readers = Readers(self)

    # --- state ---------------------------------------------------------------------------------------------------------------
    @property
    def closed(self) -> bool:
        return not self._release.alive

    @property
    def forked(self) -> bool:
        """This process is a fork of the one that loaded the model, whose threads do not exist here."""
        return os.getpid() != self._process

    def check_process(self) -> None:
        """Raises BackendError in a forked process."""
        if os.getpid() != self._process:
            raise BackendError("the model was loaded before this process was forked and cannot be used here; load it again.")

    def check(self) -> Executable:
        """The executable. Raises ModelClosed."""
        if self._executable is None or not self._release.alive:
            raise ModelClosed(f"{self._path}: the model was closed; load it again.")
        return self._executable

    def check_file(self) -> None:
        """Raises FormatError where the file was changed under its memory map, ModelClosed."""
        self.check()
        while not self._stepping.acquire(timeout=WAIT):  # a step is computed, or the model is closed and keeps the lock
            self.check()
        try:
            self.check()  # at the end of the program the file is closed by another thread
            if self._weights.changed():
                raise self._file_changed()
        finally:
            self._stepping.release()

    def _file_changed(self) -> FormatError:
        return FormatError("was changed on disk while the model was in use; load it again", file=self._path)

    def fingerprint(self) -> str:
        """SHA-256 of the names, types, shapes and ends of the weights. Raises ModelClosed."""
        sha = hashlib.sha256()
        for name in sorted(self._weights.names()):
            weight = self._weights[name]
            sha.update(repr((name, weight.type.name, weight.shape)).encode())
            if weight.data.size:
                sha.update(weight.rows(0, 1).tobytes()[:ENDS])
                sha.update(weight.rows(len(weight.data) - 1).tobytes()[-ENDS:])
        return sha.hexdigest()

    def check_room(self, n: int) -> None:
        """Raises ContextFull for more tokens than the model has positions."""
        if self.positions is not None and n > self.positions:
            raise ContextFull.of_prompt(
                f"{n} tokens are more than the context of {self.positions}, and this model's learned positions "
                "cannot slide; shorten the prompt, or give a larger context if it was trained for one.",
                tokens=n,
                limit=self.positions,
            )

    def recall(self, ids: TokenIds, kept: int | None) -> Conversation | None:
        """A saved conversation with clearly more of the first tokens than those in memory have."""
        store, kept = self.core.cache.store, self.layout.classes[0].kept if kept is None else kept
        if store is None or (length := store.length(ids, kept)) < RECALLED:
            return None
        with self.alone():
            shared = self.core.cache.shared(ids, kept)
        return store.recall(ids, kept) if length >= shared + RECALLED else None

    # --- sessions ----------------------------------------------------------------------------------------------------------
    def add_session(self, session: SessionCache) -> None:
        """A session was opened."""
        with self.lock:
            self.core.cache.add_session(session)

    def fork(self, session: SessionCache) -> SessionCache:
        """A copy that holds what a session holds now."""
        with self.alone():
            conversation = session.conversation
            return SessionCache(conversation.fork() if conversation is not None else None, session.adapters)

    def close_session(self, session: SessionCache) -> None:
        """A session was closed: cancel its requests, drop its conversation."""
        with self.lock:
            session.conversation, session.closed = None, True
            self.core.cache.drop_session(session)
            for request in self.core.requests:
                request.cancelled = request.cancelled or request.session is session

    # --- callers that wait -------------------------------------------------------------------------------------------------
    def run(self, request: Request) -> None:
        """Wait until there is output for the reader of `request`, and deliver it; this thread drives unless another one does.

        Raises the request's error, BackendError in a forked process, ModelClosed.
        """
        self.check_process()
        core, thread = self.core, threading.get_ident()
        nested = self._driver == thread  # called by a function that a step calls, or by a signal handler
        outer = core.in_step if nested else ()
        if request in outer:
            raise OptionError("a stream cannot be read by a function that is called while it computes its next piece.")
        step: Step | None = None
        outcomes: Sequence[Outcome] = ()
        try:
            while True:
                with self.lock:  # never given back inside: Ctrl-C finds it held or free as this block says
                    if step is None:
                        self._enter(request, thread)
                    else:
                        core.in_step = outer
                        core.postprocess(step, outcomes)
                    step, last = self._next_step(request, thread, nested), step
                    if step is None:
                        break
                    core.in_step = (*outer, *step.requests)
                try:
                    outcomes = self._compute(step)
                except Exception:
                    if step.ahead:
                        with self.lock:
                            core.forget(step)
                    raise
            if last is not None and self._driver == thread and self.check().runs_ahead:
                self._submit_ahead(last, outer)
        except BaseException:
            with self.lock:
                request.abort()
            raise
        finally:
            with self.lock:
                if self._driver == thread:
                    core.in_step = outer
                    if not nested:
                        self._driver = 0
                request.awaited = False
                if request.finished:
                    core.remove(request)
                else:
                    core.pause(request)
                if self._sleepers or self._reserved:
                    self._hand_over()
        if request.error is not None:
            raise request.error

    def run_many(self, requests: Sequence[Request], wake: threading.Condition, stirred: Callable[[], bool]) -> None:
        """Wait until there is output of some requests, and deliver it; this thread drives unless another one does.

        Those that are not `awaited` afterwards are ready; the others are computed by other threads meanwhile. It also ends when
        `stirred()` is true, after `wake` was notified. A request's error stays in it. Raises ModelClosed.
        """
        core, thread = self.core, threading.get_ident()
        step: Step | None = None
        outcomes: Sequence[Outcome] = ()
        try:
            while True:
                with self.lock:
                    if step is None:
                        for request in requests:
                            if not request.awaited:
                                request.wake = wake
                                self._enter(request, id(request))
                    else:
                        core.in_step = ()
                        core.postprocess(step, outcomes)
                    step, last = self._next_of_many(requests, thread, wake, stirred), step
                    if step is None:
                        break
                    core.in_step = tuple(step.requests)
                try:
                    outcomes = self._compute(step)
                except Exception as error:
                    with self.lock:
                        if step.ahead:
                            core.forget(step)
                    outcomes = [Outcome(request, None, error) for request in step.requests]
            if last is not None and self._driver == thread and self.check().runs_ahead:
                self._submit_ahead(last, ())
        finally:
            with self.lock:
                if self._driver == thread:
                    core.in_step, self._driver = (), 0
                for request in requests:
                    if request.finished:
                        request.awaited = False
                        core.remove(request)
                    elif request.ready:
                        request.awaited = False
                        core.pause(request)
                self._hand_over()

    def _next_of_many(
        self, requests: Sequence[Request], thread: int, wake: threading.Condition, stirred: Callable[[], bool]
    ) -> Step | None:
        """As `_next_step`; None where some are ready, whose output is delivered, or where the reader was stirred."""
        while not stirred() and not any(request.ready for request in requests):
            running, waiting = False, set(self.core.waiting)
            for request in requests:
                if not request.running and request not in waiting:
                    self._add_one_of_many(request)
                running = running or request.running
            if running and not self._reserved and self._driver in (0, thread):
                self.check()
                self._driver = thread
                step = self.core.schedule()
                if step is not None:
                    return step
            else:
                if self._driver == thread:
                    self._driver = 0
                    self._hand_over()
                self._sleep(wake)
                self.check()
        for request in requests:
            if request.ready:
                request.deliver()
        return None

    def _add_one_of_many(self, request: Request) -> None:
        """As `Core.add`; where the queue is full, the request ends with that error."""
        try:
            self.core.add(request)
        except QueueFull as error:
            request.error = error
            request.abort()

    def _enter(self, request: Request, thread: int) -> None:
        """The reader in this thread begins to wait."""
        request.awaited, request.reader, request.paused_at = True, thread, None
        if request.session is not None and request.session.closed:
            request.cancelled = True
        request.asked()

    def _next_step(self, request: Request, thread: int, nested: bool) -> Step | None:
        """The step that this thread computes next, once it may drive; None when the request is ready, whose output is delivered."""
        while not request.ready:
            if not request.running:
                self.core.add(request, nested=nested)
            if request.running and (nested or (not self._reserved and self._driver in (0, thread))):
                self.check()
                self._driver = thread
                step = self.core.schedule()
                if step is not None:
                    return step
            else:
                if self._driver == thread:  # another one must come first
                    self._driver = 0
                    self._hand_over()
                request.wake = request.wake or threading.Condition(self.lock)
                self._sleep(request.wake)
                self.check()
        request.deliver()
        return None

    def _sleep(self, wake: threading.Condition) -> None:
        self._sleepers += 1
        try:
            wake.wait(WAIT)
        finally:
            self._sleepers -= 1

    def _hand_over(self) -> None:
        """Wake a thread that may drive now."""
        if self._driver:
            return
        if self._reserved:
            self._role_free.notify()
            return
        for request in self.core.running:
            if request.awaited and request.wake is not None and not request.ready:
                request.wake.notify_all()
                return

    def end(self, request: Request) -> None:
        """End a cancelled request, after the step that another thread computes with it."""
        with self.lock:
            core = self.core
            while request in core.in_step and self._driver != threading.get_ident() and not self.closed:
                request.wake = request.wake or threading.Condition(self.lock)
                self._sleep(request.wake)
            if request not in core.in_step:  # else a callback or signal handler calls this: it ends after the step
                request.end()
                core.remove(request)

    def cancel(self, *, running: bool = False) -> None:
        """Cancel all requests or only the `running` ones, without waiting for their end. Requests for logits are not cancelled."""
        for request in self.core.running if running else self.core.requests:
            request.cancelled = request.cancelled or not request.every_row

    @contextlib.contextmanager
    def alone(self) -> Iterator[Executable]:
        """The executable for this thread, between two steps of other threads. Raises ModelClosed."""
        thread = threading.get_ident()
        nested = self._driver == thread
        try:
            executable = self._take_role(thread)
            with self._stepping:
                ahead, self.core.ahead = self.core.ahead, None
                if ahead is not None:
                    ahead.settle()  # its logits are computed again
                yield executable
        finally:
            with self.lock:
                if self._driver == thread and not nested:
                    self._driver = 0
                self._hand_over()

    def _take_role(self, thread: int) -> Executable:
        """Drive, before all requests that wait."""
        with self.lock:
            self._reserved += 1
            try:
                while self._driver not in (0, thread):
                    self._role_free.wait(WAIT)
                    self.check()
                executable = self.check()
            finally:
                self._reserved -= 1
            self._driver = thread
            return executable

    def close(self) -> None:
        """Cancel what runs, end the executable's threads, drop conversations and weights."""
        with self.lock:
            core = self.core
            core.closing = True
            self._reserved += 1
            try:
                for request in core.running:
                    request.cancelled = True
                while self._driver not in (0, threading.get_ident()) and not self.closed:
                    self._role_free.wait(WAIT)
            except BaseException:
                core.closing = False
                raise
            finally:
                self._reserved -= 1
            self._executable = core.ahead = None
            core.cache.clear()  # before the back end goes, which frees what conversations gave back
            self._release()
            for request in (*core.running, *core.waiting):
                core.remove(request)

    # --- computing ---------------------------------------------------------------------------------------------------------
    def _compute(self, step: Step) -> Sequence[Outcome]:
        """Compute a step and draw the next tokens, without the lock. A step that was stopped does not count."""
        called, outcomes = False, list[Outcome]()
        for request, part in zip(step.requests, step.parts, strict=True):
            if request.on_step is not None:
                called = True
                try:
                    request.on_step(len(part.conversation))
                except Exception as error:
                    outcomes.append(Outcome(request, None, error))
        if outcomes:
            return outcomes
        if called and step.void:  # the function used the model
            return ()
        if not self._release.alive and threading.current_thread() is threading.main_thread():
            raise ModelClosed(f"{self._path}: the model was closed, for the program is ending.")
        with self._stepping:  # at the end of the program never given back to other threads
            if self._weights.changed():  # 1 us; a file that is cut during a step still ends the process
                return [Outcome(request, None, self._file_changed()) for request in step.requests]
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


def _release(executable: Executable, weights: WeightStore, stepping: threading.Lock, process: int) -> None:
    """Free what a model holds: when it is closed or forgotten, or when the program ends while it is open.

    At the end daemon threads may still compute: the step under way is waited for, and no thread begins another one, for the
    lock is never given back. A forked process has neither the threads nor a lock it could trust.
    """
    if os.getpid() == process:
        stepping.acquire()
        executable.close()
        weights.close()
