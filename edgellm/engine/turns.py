"""Who may be computed: a few tasks at a time, foreground first, else in the order in which they came."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable

from edgellm.engine.task import Task, now

WAIT = 0.25  # seconds; bounded waits let Ctrl-C through on every system


class Driver:
    """The thread that computes steps now, 0 where none does, and the tasks in its step."""

    def __init__(self) -> None:
        self.thread = 0
        self.tasks: tuple[Task, ...] = ()

    @property
    def is_me(self) -> bool:
        return self.thread == threading.get_ident()

    def computes(self, task: Task, *, beside: int) -> bool:
        """Whether a thread other than `beside` computes the task now."""
        return task in self.tasks and self.thread != beside


class Turns:
    """`parallel` places and a queue. A task with a place is busy (somebody waits for it) or paused (a stream between two pieces).

    Where all places are taken, a paused task loses its own to one that the same thread asks for, which would otherwise wait for
    itself, and to any task once it has been paused for that task's patience; a background task loses it to a foreground one.
    It queues again when it goes on. A dropped one is forgotten. All of it is guarded by the engine's lock.
    """

    def __init__(self, parallel: int, driver: Driver, released: Callable[[Task], None]) -> None:
        """`released(task)` is called when a task has no place any more."""
        self.parallel = parallel
        self.closing = False  # nobody gets a place
        self._driver, self._released = driver, released
        self._holders: tuple[weakref.ref[Task], ...] = ()
        self._displaced: tuple[weakref.ref[Task], ...] = ()  # who lost a place and does not wait for one yet
        self.queue: deque[Task] = deque()

    @property
    def holders(self) -> list[Task]:
        """Those that have a place."""
        return [task for ref in self._holders if (task := ref()) is not None]

    @property
    def all(self) -> list[Task]:
        """Those that have a place, wait for one or lost theirs. Any thread may ask, also without the lock."""
        displaced = [task for ref in self._displaced if (task := ref()) is not None]
        return [*self.holders, *displaced, *tuple(self.queue)]

    def take(self, task: Task, check: Callable[[], object]) -> None:
        """Wait for a place, or until `task` is cancelled. What `check()` raises, now and then, ends the waiting."""
        task.thread, task.paused = threading.get_ident(), None
        if task.holds:
            return
        if self._driver.is_me:  # called by a processor while all wait for us: one more than usual
            self._admit(task)
            return
        try:
            while not task.holds and not task.cancelled:
                if task not in self.queue:  # at first, and after another took the place before this thread could go on
                    self._enqueue(task)
                self.admit()
                if not task.holds:
                    task.wake.wait(WAIT)
                    check()
        finally:
            if task in self.queue:
                self.queue.remove(task)

    def _enqueue(self, task: Task) -> None:
        """At the end, but foreground before background."""
        at = len(self.queue)
        while not task.background and at and self.queue[at - 1].background:
            at -= 1
        self.queue.insert(at, task)

    def admit(self) -> None:
        """Give places to those that wait, as far as it goes."""
        while self.queue and not self.closing and self._room(self.queue[0]):
            self._admit(self.queue.popleft())

    def _admit(self, task: Task) -> None:
        task.holds = True
        self._forget(task)
        self._holders = (*(weakref.ref(holder) for holder in self.holders), weakref.ref(task))
        task.wake.notify_all()

    def _room(self, task: Task) -> bool:
        """Whether there is a place for `task`; somebody else's is taken away where that is due."""
        holders = self.holders
        if len(holders) < self.parallel:
            return True
        movable = [holder for holder in holders if not self._driver.computes(holder, beside=task.thread)]
        mine = [holder for holder in movable if holder.thread == task.thread]
        moment = now()
        tired = [holder for holder in movable if holder.paused is not None and moment - holder.paused >= task.patience]
        behind = [holder for holder in movable if holder.background and not task.background]
        for victims in (mine, tired, behind):
            if victims:
                victim = min(victims, key=lambda holder: moment if holder.paused is None else holder.paused)
                self._remove(victim)
                self._displaced = (*self._displaced, weakref.ref(victim))
                return True
        return False

    def pause(self, task: Task) -> None:
        """Nobody waits for the task any more until it takes its turn again."""
        task.paused = now()
        if self.queue:
            self.admit()

    def leave(self, task: Task) -> None:
        """The task gives its place away, if it has one, and comes back no more."""
        self._forget(task)
        if task.holds:
            self._remove(task)
            self.admit()

    def _forget(self, task: Task) -> None:
        """The task is no displaced one."""
        self._displaced = tuple(ref for ref in self._displaced if ref() not in (None, task))

    def _remove(self, task: Task) -> None:
        task.holds = False
        self._holders = tuple(weakref.ref(holder) for holder in self.holders if holder is not task)
        self._released(task)
        task.wake.notify_all()  # whoever waits for it has to queue again
