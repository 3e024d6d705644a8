"""Who may use a model now: one call at a time, in the order in which they came."""
from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

from edgellm.errors import BackendError

PATIENCE = 1.0                                   # seconds that others leave to a stream whose reader does not ask for more


class Turns:
    """A queue of calls. The holder is busy (computing) or paused (a stream between two pieces).

    A paused holder loses its turn to a call from the thread that read it last, which would otherwise wait for itself, and to
    any call once it has been paused for that call's patience. It queues again when it goes on. A dropped one is forgotten.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._holder: weakref.ref[object] | None = None
        self._thread = 0                         # the one in which the holder ran last
        self._paused: float | None = None        # since when (time.monotonic), None: busy
        self._process = os.getpid()

    @property
    def holder(self) -> object | None:
        """The call whose turn it is."""
        return self._holder() if self._holder is not None else None

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one that loaded the model: its threads did not come along."""
        return os.getpid() != self._process

    def take(self, call: object, *, patience: float = PATIENCE, hurry: Callable[[], None] | None = None) -> None:
        """Wait for the turn of `call`, or go on with it. Raises BackendError in a forked process.

        With `hurry` it goes before all that wait, and `hurry` is called once nobody can come in between.
        """
        if self.forked:
            raise BackendError("the model was loaded before this process was forked and cannot be used here; load it again.")
        with self._changed:
            if self.holder is not call:
                self._wait(call, patience, hurry)
                self._holder = weakref.ref(call)
            self._thread, self._paused = threading.get_ident(), None

    def _wait(self, call: object, patience: float, hurry: Callable[[], None] | None) -> None:
        if hurry is None:
            self._queue.append(call)
        else:
            self._queue.appendleft(call)
        try:
            if hurry is not None:
                hurry()
            while self._queue[0] is not call or not self._free(patience):
                self._changed.wait(PATIENCE)     # a bounded wait lets Ctrl-C through on every system
        finally:
            self._queue.remove(call)
            self._changed.notify_all()

    def _free(self, patience: float) -> bool:
        if self.holder is None or self._thread == threading.get_ident():
            return True
        return self._paused is not None and time.monotonic() - self._paused >= patience

    def pause(self, call: object) -> None:
        """The holder has nothing to compute until it takes its turn again."""
        with self._changed:
            if self.holder is call:
                self._paused = time.monotonic()
                if self._queue:
                    self._changed.notify_all()

    def leave(self, call: object) -> None:
        """The call is over."""
        with self._changed:
            if self.holder is call:
                self._holder = None
                self._changed.notify_all()
