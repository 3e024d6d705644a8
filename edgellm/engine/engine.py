"""Computes what callers in any thread ask for, many tasks in one step; whichever caller waits does the work."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import weakref
from collections.abc import Iterator

from edgellm.backends.base import Executable, StepStopped
from edgellm.engine.conversation import Home
from edgellm.engine.prefix_cache import PrefixCache
from edgellm.engine.step import Outcome, Step, compose, follow
from edgellm.engine.task import Task
from edgellm.engine.turns import WAIT, Driver, Turns
from edgellm.errors import BackendError, ContextFull, FormatError, ModelClosed, NumericError, OptionError
from edgellm.weights import WeightStore

ENDS = 256  # bytes of a weight that tell it from another one


class Engine:
    """An executable, its weights, and the tasks and conversations that share them.

    One caller at a time is the driver: it computes steps for all tasks that somebody waits for, until its own has what its
    reader waits for. Then the next that waits drives. Where nobody waits, nothing is computed.
    """

    def __init__(
        self,
        executable: Executable,
        weights: WeightStore,
        path: str,
        *,
        positions: int | None,
        parallel: int = 1,
        state_bytes: int = 0,
    ) -> None:
        """`positions`: how many the model has learned, None where they go on for ever. `parallel`: tasks computed at a time."""
        self.positions, self.layout, self._path = positions, executable.layout, path
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)  # the driver's role is free
        self._executable: Executable | None = executable
        self._weights = weights
        self._stepping = threading.Lock()  # held while executable and weights are used
        self._release = weakref.finalize(self, _release, executable, weights, self._stepping, os.getpid())
        self._process = os.getpid()
        self._cache = PrefixCache(executable, parallel, state_bytes)
        self._driver = Driver()
        self.turns = Turns(parallel, self._driver, self._cache.release)
        self._begun: Step | None = None  # submitted ahead
        self._reserved = 0  # callers that want the executable for themselves
        self._steps = 0

    # --- what may be asked -------------------------------------------------------------------------------------------------
    @property
    def closed(self) -> bool:
        return not self._release.alive

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one that loaded the model: its threads did not come along."""
        return os.getpid() != self._process

    def check(self) -> Executable:
        """The executable. Raises ModelClosed."""
        if self._executable is None or self.closed:
            raise ModelClosed(f"{self._path}: the model was closed; load it again.")
        return self._executable

    def check_file(self) -> None:
        """Raises FormatError where the file was changed under its memory map, ModelClosed."""
        self.check()
        while not self._stepping.acquire(timeout=WAIT):  # a step is computed, or the model is closed: nobody gives it back
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
        """Of the model's weights: names, types, shapes, and the ends of each. Raises ModelClosed."""
        sha = hashlib.sha256()
        for name in sorted(self._weights.names()):
            weight = self._weights[name]
            sha.update(repr((name, weight.type.name, weight.shape)).encode())
            if weight.data.size:
                sha.update(weight.rows(0, 1).tobytes()[:ENDS])
                sha.update(weight.rows(len(weight.data) - 1).tobytes()[-ENDS:])
        return sha.hexdigest()

    def check_room(self, n: int) -> None:
        """Raises ContextFull where `n` tokens are more than the model has positions for."""
        if self.positions is not None and n > self.positions:
            raise ContextFull.of_prompt(
                f"{n} tokens are more than the context of {self.positions}, and this model's learned positions "
                "cannot slide; shorten the prompt, or give a larger context if it was trained for one.",
                n,
                self.positions,
            )

    def add_home(self, home: Home) -> None:
        """A session was opened."""
        with self.lock:
            self._cache.add_home(home)

    def fork(self, home: Home) -> Home:
        """A home of its own for what the conversation of another one holds now."""
        with self.alone():
            return Home(home.conversation.fork() if home.conversation is not None else None, home.adapters)

    def close_home(self, home: Home) -> None:
        """A session was closed: its answers are cancelled, its conversation is dropped."""
        with self.lock:
            home.conversation, home.closed = None, True
            self._cache.drop_home(home)

    # --- callers that wait -------------------------------------------------------------------------------------------------
    def run(self, task: Task) -> None:
        """Come back when there is something for whoever waits for `task`, or its end. Raises what went wrong with it.

        Raises BackendError in a forked process, ModelClosed.
        """
        if self.forked:
            raise BackendError("the model was loaded before this process was forked and cannot be used here; load it again.")
        with self.lock:
            if task in self._driver.tasks and self._driver.is_me:
                raise OptionError("a stream cannot be read by a function that is called while it computes its next piece.")
            task.waiting = True
            try:
                while not task.advance():
                    self.turns.take(task, self.check)
                    if task.holds and self._may_drive():
                        self._drive(task)
                    elif task.holds:
                        task.wake.wait(WAIT)
                        self.check()
            except BaseException:
                task.abort()
                raise
            finally:
                task.waiting = False
                if task.done:
                    self.turns.leave(task)
                else:
                    self.turns.pause(task)
                self._hand_over()
        if task.error is not None:
            raise task.error

    def end(self, task: Task) -> None:
        """End a task that was cancelled. Waits for the step that another thread computes with it."""
        with self.lock:
            while self._driver.computes(task, beside=threading.get_ident()) and not self.closed:
                task.wake.wait(WAIT)
            if task not in self._driver.tasks:  # else a processor or a signal handler calls us: it ends after the step
                task.end()
                self.turns.leave(task)
                task.wake.notify_all()

    def cancel(self, *, running: bool = False) -> None:
        """End all answers that have begun or wait, or only the `running` ones, without waiting for that; logits that somebody waits
        for are none.
        """
        for task in self.turns.holders if running else self.turns.all:
            task.cancelled = task.cancelled or not task.many_outputs

    @contextlib.contextmanager
    def alone(self) -> Iterator[Executable]:
        """The executable for the caller, between two steps of others. Raises ModelClosed."""
        with self.lock:
            self._reserved += 1
            try:
                while self._driver.thread and not self._driver.is_me:
                    self._changed.wait(WAIT)
                    self.check()
                executable = self.check()
            finally:
                self._reserved -= 1
            outer, self._driver.thread = self._driver.thread, threading.get_ident()
        try:
            with self._stepping:
                self._settle()
                yield executable
        finally:
            with self.lock:
                self._driver.thread = outer
                self._hand_over()

    def close(self) -> None:
        """End the executable's threads and drop conversations and weights; what is being written is cancelled first."""
        with self.lock:
            self.turns.closing = True
            self._reserved += 1
            try:
                for task in self.turns.holders:
                    task.cancelled = True
                while self._driver.thread and not self._driver.is_me and not self.closed:
                    self._changed.wait(WAIT)
            except BaseException:
                self.turns.closing = False
                raise
            finally:
                self._reserved -= 1
            self._executable = self._begun = None
            self._cache.clear()  # before the back end goes, which frees what conversations gave back
            self._release()
            for task in (*self.turns.holders, *self.turns.queue):
                self.turns.leave(task)
                task.wake.notify_all()

    # --- driving -----------------------------------------------------------------------------------------------------------
    def _may_drive(self) -> bool:
        return self._driver.is_me or not (self._driver.thread or self._reserved)

    def _hand_over(self) -> None:
        """Wake one that may drive now."""
        if self._driver.thread:
            return
        if self._reserved:
            self._changed.notify()
            return
        for task in self.turns.holders:
            if task.waiting and not task.advance():
                task.wake.notify_all()
                return

    def _drive(self, task: Task) -> None:
        """Compute steps until there is something for the reader of `task`, or somebody else must come first."""
        outer = self._driver.thread, self._driver.tasks
        self._driver.thread = threading.get_ident()
        try:
            while not task.advance() and task.holds and (not self._reserved or outer[0]):
                self._step(task)
        finally:
            self._driver.thread, self._driver.tasks = outer

    def _step(self, own: Task) -> None:
        """One step for all that can go on. The lock is given away while it is computed. What goes wrong with it is raised here."""
        step = self._begun or self._composed(own)
        self._begun = None
        if step is None:
            return
        self._steps += 1
        tasks, outer = step.tasks(), self._driver.tasks
        self._driver.tasks = (*outer, *tasks)
        try:
            self.lock.release()  # inside: Ctrl-C comes after it at the earliest
            outcomes = self._compute(step)
        except Exception:
            if step.begun:  # the tokens are in the conversations, their keys perhaps not
                with self.lock:
                    for part in step.parts:
                        self._cache.forget(part.conversation)
            raise
        finally:
            self.lock.acquire()
            self._driver.tasks = outer
        for outcome in outcomes:
            self._accept(outcome, step.started)
        for task in tasks:
            task.served = self._steps
            if ((task.waiting and task.advance()) or task.cancelled) and task is not own:
                task.wake.notify_all()
        if self.turns.queue:
            self.turns.admit()
        if self._executable is not None and self._executable.runs_ahead:
            self._begin(step)

    def _composed(self, own: Task) -> Step | None:
        """The next step, None where nothing can go on."""
        executable = self.check()
        wanted, optional = list[Task](), list[Task]()
        for task in self.turns.holders:
            if task in self._driver.tasks:
                continue
            if task is own or (task.waiting and not task.advance()):
                wanted.append(task)
                continue
            if task.waiting:  # its reader has not taken the piece yet
                task.wake.notify_all()
            if task.may_run_ahead and not task.cancelled:
                optional.append(task)
        fresh = [task for task in wanted if task.conversation is None]
        for task in fresh:
            try:
                task.started(self._cache.start(task))
            except Exception as error:
                self._fail(task, error)
        return compose(wanted, optional, executable, fresh)

    def _compute(self, step: Step) -> list[Outcome]:
        """Compute a step and draw the next tokens; nobody else is kept from anything meanwhile. Stopped, it does not count."""
        failures = step.announce()
        if failures or step.void:
            return failures
        if self.closed and threading.current_thread() is threading.main_thread():
            raise ModelClosed(f"{self._path}: the model was closed, for the program is ending.")
        with self._stepping:  # at the end of the program never given back to other threads
            executable = self.check()
            if self._weights.changed():  # 1 us; a file that is cut during a step still ends the process
                return [Outcome(task, None, self._file_changed()) for task in step.tasks()]
            try:
                logits = step.wait(executable)
            except StepStopped:
                return []
        return step.sample(logits)

    def _accept(self, outcome: Outcome, started: float) -> None:
        task = outcome.task
        if outcome.error is not None:
            self._fail(task, outcome.error)
        elif not task.done:
            try:
                task.accept(outcome.token, started)
            except Exception as error:
                self._fail(task, error)

    def _fail(self, task: Task, error: Exception) -> None:
        """An error of one task alone: its reader gets it."""
        if isinstance(error, NumericError) and task.conversation is not None:
            self._cache.forget(task.conversation)  # keys that are NaN would spoil what is computed beside them
        task.error = error
        task.abort()
        self.turns.leave(task)
        task.wake.notify_all()

    def _begin(self, step: Step) -> None:
        """Submit the next tokens of those that were just computed, so that a back end that runs ahead has work meanwhile."""
        if any(task.waiting and task.conversation is None for task in self.turns.holders):
            return
        ahead = follow(step, self.check())
        if ahead is None:
            return
        outer = self._driver.tasks
        self._driver.tasks = (*outer, *ahead.tasks())
        try:
            self.lock.release()
            with contextlib.suppress(BackendError), self._stepping:  # the next step will try again and tell
                ahead.begin(self.check())
        finally:
            self.lock.acquire()
            self._driver.tasks = outer
        self._begun = ahead if ahead.begun else None

    def _settle(self) -> None:
        """Let a step that was begun come to its end; its logits are computed again."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.settle()


def _release(executable: Executable, weights: WeightStore, stepping: threading.Lock, process: int) -> None:
    """Free what a model holds: when it is closed or forgotten, or when the program ends while it is open.

    At the end daemon threads may still compute: the step under way is waited for, and no thread begins another one, for the
    lock is never given back. A forked process has neither the threads nor a lock it could trust.
    """
    if os.getpid() == process:
        stepping.acquire()
        executable.close()
        weights.close()
