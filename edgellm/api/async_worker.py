"""An answer for an event loop: begun in a thread of a few, read by the one thread that reads all answers of its model."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any  # what a task returns

from edgellm.api.answer import Piece
from edgellm.api.records import Eviction, Generation, PromptRead
from edgellm.api.stream import Stream
from edgellm.engine.readers import NAME, RequestReader
from edgellm.errors import OptionError

AHEAD = 8  # pieces that may be computed before they are asked for
MOST_BEGINNING = 2  # threads that encode prompts
Item = Piece | PromptRead | Generation | BaseException


class AsyncWorker:
    """One answer, and the queue that brings its pieces to the event loop. It knows no AsyncStream."""

    def __init__(self, begin: Callable[[Callable[[], bool]], Stream], *, reports: bool, drains: bool) -> None:
        """`reports`: also report how far the prompt is read. `drains`: the result is wanted, and no pieces.

        Raises OptionError outside asyncio's event loop.
        """
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise OptionError(
                "there is no event loop of asyncio here; under trio call generate or chat in a thread (trio.to_thread.run_sync)"
            ) from None
        self._begin, self._reports, self._drains = begin, reports, drains
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self._stream: Stream | None = None
        self._reader: StreamReader | None = None
        self._cancelled = False
        self._tasks: set[asyncio.Task[Any]] = set()
        BEGINNING.add(self._begun)

    async def next(self) -> Item:
        """The next item: pieces, and at the end the result, or the error that ended it."""
        task = asyncio.current_task()
        if task is not None and task not in self._tasks:  # it may be cancelled while it does something else with a piece
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        try:
            item = await self._items.get()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if isinstance(item, Generation | BaseException):
            self._items.put_nowait(item)  # the end is for all that wait: one may close what another reads
        elif self._reader is not None:
            self._reader.make_room()
        return item

    @property
    def prompt_tokens(self) -> int:
        """As `Stream.prompt_tokens`; 0 before the prompt is encoded."""
        return self._stream.prompt_tokens if self._stream is not None else 0

    @property
    def cached_tokens(self) -> int:
        """As `Stream.cached_tokens`."""
        return self._stream.cached_tokens if self._stream is not None else 0

    def evicted(self) -> Eviction | None:
        """As `Stream.evicted`."""
        return self._stream.evicted() if self._stream is not None else None

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self.cancel()

    def cancel(self) -> None:
        """End the computing at the next token, from any thread, without waiting."""
        self._cancelled = True  # before the stream is looked for: `_begun` does it the other way round
        if self._reader is not None:
            self._reader.cancel()

    def _begun(self) -> None:
        """Encode the prompt, and let the model's thread read the answer."""
        try:
            self._stream = stream = self._begin(lambda: self._cancelled)
            self._reader = StreamReader(stream, self._put, reports=self._reports, drains=self._drains)
            if self._cancelled:
                self._reader.cancel()
            stream.add_reader(self._reader)
        except BaseException as error:
            self._put(error)

    def _put(self, item: Item) -> bool:
        """Bring an item to the loop; False where it is closed, and nobody waits for anything."""
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:
            return False
        return True


class StreamReader(RequestReader):
    """Brings the items of a stream to their queue, as long as that has room."""

    def __init__(self, stream: Stream, put: Callable[[Item], bool], *, reports: bool, drains: bool) -> None:
        super().__init__(stream.request)
        self._stream, self._put = stream, put
        self._put_items = self._taken_items = 0  # each counted in one thread only
        stream.begin_reading(reports=reports, drains=drains)

    @property
    def wants(self) -> bool:
        return self.request.cancelled or self._put_items - self._taken_items < AHEAD

    def make_room(self) -> None:
        """The loop has taken an item."""
        self._taken_items += 1
        if self._put_items - self._taken_items == AHEAD - 1:
            self._stream.stir()

    def cancel(self) -> None:
        """End the answer at the next token."""
        self._stream.cancel()
        self._stream.stir()

    def take(self, error: BaseException | None) -> None:
        items, self.done = self._stream.taken(error)
        for item in items:
            self._put_items += 1
            if not self._put(item):
                self._stream.cancel()


class Beginning:
    """Encodes prompts in a few threads, which end when there is nothing to do."""

    def __init__(self) -> None:
        self._lock, self._jobs, self._threads = threading.Lock(), deque[Callable[[], None]](), 0

    def add(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._jobs.append(job)
            if self._threads < MOST_BEGINNING:
                self._threads += 1
                threading.Thread(target=self._run, name=NAME, daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._threads -= 1
                    return
                job = self._jobs.popleft()
            job()
            del job


BEGINNING = Beginning()
