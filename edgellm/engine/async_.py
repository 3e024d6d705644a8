"""Generation under asyncio: each answer is computed in a thread of its own, and cancelling its task ends the computing."""
from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self, Unpack, overload  # Any: what a task returns

import numpy as np
import numpy.typing as npt

from edgellm.chat import Message
from edgellm.engine.chat_options import ChatKeywords
from edgellm.engine.events import EventMaker
from edgellm.engine.generation_options import GenerationKeywords
from edgellm.engine.records import Event, Eviction, Generation, Piece, PromptRead
from edgellm.engine.stream import Stream
from edgellm.errors import OptionError

AHEAD = 8                                        # pieces that may be computed before they are asked for

Prompt = str | Sequence[int] | npt.NDArray[np.integer]


class _Model(Protocol):
    """What the twins need: the calls that they are twins of."""

    def stream(self, prompt: Prompt, **options: Unpack[GenerationKeywords]) -> Stream: ...

    @overload
    def chat(self, messages: Sequence[Message], *, stream: Literal[True], **options: Unpack[ChatKeywords]) -> Stream: ...
    @overload
    def chat(self, messages: Sequence[Message], *, stream: Literal[False] = False,
             **options: Unpack[ChatKeywords]) -> Generation: ...


class AsyncTwins:
    """The calls of a model for programs that run on asyncio; their arguments, results and errors are those of their twins."""

    async def agenerate(self: _Model, prompt: Prompt, **options: Unpack[GenerationKeywords]) -> Generation:
        """`generate` without blocking the event loop; cancelling the task ends the computing."""
        return await AsyncStream(lambda: self.stream(prompt, **options)).drain()

    def astream(self: _Model, prompt: Prompt, **options: Unpack[GenerationKeywords]) -> AsyncStream:
        """`stream` for `async for`; cancelling the task that reads it ends the computing."""
        return AsyncStream(lambda: self.stream(prompt, **options))

    @overload
    async def achat(self: _Model, messages: Sequence[Message], *, stream: Literal[False] = False,
                    **options: Unpack[ChatKeywords]) -> Generation: ...
    @overload
    async def achat(self: _Model, messages: Sequence[Message], *, stream: Literal[True],
                    **options: Unpack[ChatKeywords]) -> AsyncStream: ...

    async def achat(self: _Model, messages: Sequence[Message], *, stream: bool = False,
                    **options: Unpack[ChatKeywords]) -> Generation | AsyncStream:
        """`chat` without blocking the event loop: a Generation, or an AsyncStream with `stream=True`."""
        if options.get("run_tools") and not stream:
            return await asyncio.to_thread(lambda: self.chat(messages, **options))
        answer = AsyncStream(lambda: self.chat(messages, stream=True, **options))
        return answer if stream else await answer.drain()


class AsyncStream:
    """Iterate over it with `async for` for the pieces; after the end `result` is the whole Generation.

    `aclose()`, or leaving its `async with` block, ends it early; so does cancelling the task that reads it, or dropping it.
    Computing is at most `AHEAD` tokens ahead of the reader.
    """

    def __init__(self, begin: Callable[[], Stream]) -> None:
        self._begin: Callable[[], Stream] = begin
        self._worker: _Worker | None = None
        self._result: Generation | None = None
        self._failed = self._reports = False

    @property
    def result(self) -> Generation:
        """The finished answer. Raises OptionError before the end."""
        if self._result is None:
            raise OptionError("result is there when the stream has ended; read it to its end or close it first.")
        return self._result

    def _started(self) -> _Worker:
        self._worker = self._worker or _Worker(self._begin, self._reports)
        return self._worker

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        """The next piece. Raises what the twin raises, and StopAsyncIteration at the end."""
        while isinstance(item := await self._next(), PromptRead):
            pass
        if item is None:
            raise StopAsyncIteration
        return item

    async def _next(self) -> Piece | PromptRead | None:
        """What comes next, None at the end."""
        if self._result is not None or self._failed:
            return None
        item = await self._started().next()
        if isinstance(item, BaseException):
            self._failed = True
            raise item
        if isinstance(item, Generation):
            self._result = item
            return None
        return item

    async def events(self) -> AsyncIterator[Event]:
        """As `Stream.events`."""
        self._reports, maker = True, EventMaker(lambda: self._started().evicted())
        while (item := await self._next()) is not None:
            for event in maker.push(item):
                yield event
        yield Event("done", result=self.result)

    async def drain(self) -> Generation:
        """Read to the end and return the result. Raises what the twin raises."""
        async for _ in self:
            pass
        return self.result

    async def aclose(self) -> None:
        """End the answer; `result` then holds what there is. Waits for the token that is being computed."""
        if self._result is None and not self._failed:
            self._started().cancel()
            await self.drain()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            await self.aclose()
        elif self._worker is not None:
            self._worker.cancel()

    def __del__(self) -> None:
        if self._worker is not None:
            self._worker.cancel()


class _Worker:
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
        if task is not None and task not in self._tasks:     # it may be cancelled while it does something else with a piece
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        try:
            item = await self._items.get()
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._room.release()
        return item

    def evicted(self) -> Eviction | None:
        """As `Stream.evicted`."""
        return self._stream.evicted() if self._stream is not None else None

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self.cancel()

    def cancel(self) -> None:
        """End the computing at the next token, from any thread, without waiting."""
        self._cancelled = True                   # before the stream is looked for: `_run` does it the other way round
        if self._stream is not None:
            self._stream.cancel()
        self._room.release()

    def _run(self) -> None:
        with contextlib.suppress(RuntimeError):              # the event loop is closed: nobody waits for anything
            try:
                self._stream = stream = self._begin()
                if self._cancelled:
                    stream.cancel()
                for item in stream.items() if self._reports else stream:
                    self._tell(item)
                    self._room.acquire()
                self._tell(stream.result)
            except BaseException as error:
                if self._stream is not None:
                    self._stream.cancel()
                self._tell(error)

    def _tell(self, item: Piece | PromptRead | Generation | BaseException) -> None:
        self._loop.call_soon_threadsafe(self._items.put_nowait, item)
