"""The thread that computes an answer for an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any  # what a task returns

from edgellm.api.records import Eviction, Generation, Piece, PromptRead
from edgellm.api.stream import Stream

AHEAD = 8  # pieces that may be computed before they are asked for


class AsyncWorker:
    """The thread that computes one answer, and the queue that brings its pieces to the event loop. It knows no AsyncStream."""

    def __init__(self, begin: Callable[[], Stream], reports: bool) -> None:
        """`reports`: also tell how far the prompt is read."""
        self._begin, self._loop, self._reports = begin, asyncio.get_running_loop(), reports
        self._items: asyncio.Queue[Piece | PromptRead | Generation | BaseException] = asyncio.Queue()
        self._room = threading.Semaphore(AHEAD)
        self._stream: Stream | None = None
        self._cancelled = False
        self._tasks: set[asyncio.Task[Any]] = set()
        # A thread for each: one that reads several streams in turn would let each take the other's place in the model's queue.
        threading.Thread(target=self._run, name="edgellm-async", daemon=True).start()

    async def next(self) -> Piece | PromptRead | Generation | BaseException:
        """What comes next: pieces, and at the end the result, or what the computing raised."""
        task = asyncio.current_task()
        if task is not None and task not in self._tasks:  # it may be cancelled while it does something else with a piece
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        try:
            item = await self._items.get()
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._room.release()
        if isinstance(item, Generation | BaseException):
            self._items.put_nowait(item)  # the end is for all that wait: one may close what another reads
        return item

    @property
    def prompt_tokens(self) -> int:
        """As `Stream.prompt_tokens`; 0 before the prompt is encoded."""
        return self._stream.prompt_tokens if self._stream is not None else 0

    def evicted(self) -> Eviction | None:
        """As `Stream.evicted`."""
        return self._stream.evicted() if self._stream is not None else None

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self.cancel()

    def cancel(self) -> None:
        """End the computing at the next token, from any thread, without waiting."""
        self._cancelled = True  # before the stream is looked for: `_run` does it the other way round
        if self._stream is not None:
            self._stream.cancel()
        self._room.release()

    def _run(self) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits for anything
            try:
                self._stream = stream = self._begin()
                if self._cancelled:
                    stream.cancel()
                for item in stream.items() if self._reports else stream:
                    self._tell(item)
                    if not self._cancelled:
                        self._room.acquire()
                self._tell(stream.result)
            except BaseException as error:
                if self._stream is not None:
                    self._stream.cancel()
                self._tell(error)

    def _tell(self, item: Piece | PromptRead | Generation | BaseException) -> None:
        self._loop.call_soon_threadsafe(self._items.put_nowait, item)
