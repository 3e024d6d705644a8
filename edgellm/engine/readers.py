"""Readers that must not block, such as event loops: one thread waits for the requests of all of them."""

from __future__ import annotations

import threading
import weakref

from edgellm.engine.monitor import Monitor
from edgellm.engine.request import Request

NAME = "edgellm-async"
SOON = 0.01  # seconds that a caller waits for the lock to wake the thread, which looks again by itself a little later


class RequestReader:
    """Takes the output of one request, in the thread."""

    done = False  # the end was taken

    def __init__(self, request: Request) -> None:
        self.request = request

    @property
    def wants(self) -> bool:
        """More output may come now."""
        raise NotImplementedError

    def take(self, error: BaseException | None) -> None:
        """Output was delivered, or an `error` ended all requests; sets `done` at the end."""
        raise NotImplementedError


class Readers:
    """Waits for output of many requests and drives the engine meanwhile. The thread lives while there are readers."""

    def __init__(self, engine: Monitor) -> None:
        self._engine = weakref.ref(engine)
        self._wake = threading.Condition(engine.lock)
        self._lock = threading.Lock()  # of the list and the thread
        self._readers: list[RequestReader] = []
        self._stirred = False
        self._thread: threading.Thread | None = None

    def add(self, reader: RequestReader) -> None:
        """Wait for a request, until it is finished. Raises BackendError in a forked process."""
        engine = self._engine()
        if engine is not None:
            engine.check_process()
        with self._lock:
            self._readers.append(reader)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)
                self._thread.start()
        self.stir()

    def stir(self) -> None:
        """Look at the readers again: one was added, wants more, or was cancelled."""
        self._stirred = True
        engine = self._engine()
        if engine is not None and engine.lock.acquire(timeout=SOON):
            try:
                self._wake.notify_all()
            finally:
                engine.lock.release()

    def _run(self) -> None:
        while (engine := self._engine()) is not None:
            with self._lock:
                self._readers = [reader for reader in self._readers if not reader.done]
                if not self._readers:
                    self._thread = None
                    return
                self._stirred = False
                active = [reader for reader in self._readers if reader.wants]
            self._wait(engine, active)
            del engine, active

    def _wait(self, engine: Monitor, active: list[RequestReader]) -> None:
        """Wait for output and hand it out."""
        error: BaseException | None = None
        try:
            engine.run_many([reader.request for reader in active], self._wake, lambda: self._stirred)
        except BaseException as failure:  # the model was closed
            error = failure
        for reader in active:
            if error is not None or not reader.request.awaited:
                reader.take(error)
