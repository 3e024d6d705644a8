"""The engine: an executable and its weights from when they were loaded until they are closed, and the sessions that use them."""

from __future__ import annotations

import os
import threading
import weakref

from edgellm.backends.base import Executable
from edgellm.engine.conversation import SessionCache
from edgellm.engine.core import Core
from edgellm.engine.driver_role import WAIT
from edgellm.engine.monitor import Monitor
from edgellm.engine.readers import Readers
from edgellm.weights import WeightStore


class Engine(Monitor):
    """Runs requests from any thread, batched into shared steps."""

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
        super().__init__(Core(executable, weights, parallel, state_bytes, queue), executable, path)
        self.positions, self.layout = positions, executable.layout
        self.release = weakref.finalize(self, _release, executable, weights, self._stepping, os.getpid())
        self.readers = Readers(self)

    @property
    def closed(self) -> bool:
        return not self.release.alive

    @property
    def forked(self) -> bool:
        """This process is a fork of the one that loaded the model, whose threads do not exist here."""
        return os.getpid() != self._process

    def check_file(self) -> None:
        """Raises FormatError where the file was changed under its memory map, ModelClosed."""
        self.check()
        while not self._stepping.acquire(timeout=WAIT):  # a step is computed, or the model is closed and keeps the lock
            self.check()
        try:
            self.check()  # at the end of the program the file is closed by another thread
            self.core.check_file()
        finally:
            self._stepping.release()

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

    def close(self) -> None:
        """Cancel what runs, end the executable's threads, drop conversations and weights."""
        with self.lock:
            core = self.core
            core.closing = True
            try:
                for request in core.running:
                    request.cancelled = True
                self._role.reserve(lambda: self.closed)
            except BaseException:
                core.closing = False
                raise
            self._executable = core.ahead = None
            core.cache.clear()  # before the back end goes, which frees what conversations gave back
            self.release()
            for request in (*core.running, *core.waiting):
                core.remove(request)


def _release(executable: Executable, weights: WeightStore, stepping: threading.Lock, process: int) -> None:
    """Free what a model holds: when it is closed or forgotten, or when the program ends while it is open.

    At the end daemon threads may still compute: the step under way is waited for, and no thread begins another one, for the
    lock is never given back. A forked process has neither the threads nor a lock it could trust.
    """
    if os.getpid() == process:
        stepping.acquire()
        executable.close()
        weights.close()
