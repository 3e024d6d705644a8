"""Answers that end when their client leaves, and streams that show signs of life while a prompt is read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol, TypeVar  # Any: of coroutines

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgellm import EdgeError, Event
from edgellm.server.bodies import ClientGone
from edgellm.server.problems import Problem, problem_of
from edgellm.server.settings import PING_SECONDS, PROGRESS_SECONDS

Result = TypeVar("Result")
Item = TypeVar("Item")
Chunks = AsyncGenerator[bytes, None]
log = logging.getLogger("edgellm.server")
compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
COMMENT = b": ping\n\n"  # which readers of server-sent events leave out
SSE, NDJSON = "text/event-stream; charset=utf-8", "application/x-ndjson"


class Answering(Protocol):
    """An answer of the library, or one that the server ends early."""

    def events(self) -> AsyncIterator[Event]: ...


Begin = Callable[[int], Awaitable[Answering]]


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled when the client leaves. Raises ClientGone."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        await _ended(task, gone)


async def _left(receive: Receive) -> None:
    """Comes back when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ended(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Spaces:
    """Leaves out white space that stands alone between calls, or between thinking and a call."""

    def __init__(self) -> None:
        self._held: Event | None = None
        self._in_text = False

    def push(self, event: Event) -> Iterator[Event]:
        """The bytes to send for an event."""
        held, self._held = self._held, None
        if event.kind == "text":
            if held is not None:
                event = event._replace(text=held.text + event.text, logprobs=(*held.logprobs, *event.logprobs))
            self._in_text = self._in_text or not event.text.isspace()
            if not self._in_text:
                self._held = event
                return
        elif event.kind in ("call_delta", "tool_call", "thinking"):
            self._in_text = False
        elif held is not None and event.result is not None and not event.result.tool_calls:
            yield held
        yield event


async def pinged(answer: Answering, *, progress: bool = False) -> AsyncGenerator[Event | None]:
    """The events of an answer; None where nothing came for `PING_SECONDS`, at first too.

    Events of the prompt count as nothing, unless `progress` asks for one every `PROGRESS_SECONDS`.
    """
    quiet = PROGRESS_SECONDS if progress else PING_SECONDS
    loop, spaces, since = asyncio.get_running_loop(), Spaces(), time.monotonic()
    found = asyncio.Queue[Event | Exception | None](1)

    timer: asyncio.TimerHandle

    async def pump() -> None:
        try:
            async for each in answer.events():
                await found.put(each)
        except Exception as error:
            await found.put(error)

    def tick() -> None:
        nonlocal timer
        left = since + PING_SECONDS - time.monotonic()
        if left <= 0 and found.empty():
            found.put_nowait(None)
        timer = loop.call_later(left if left > 0 else PING_SECONDS, tick)

    timer, reading = loop.call_later(PING_SECONDS, tick), asyncio.ensure_future(pump())
    try:
        while True:
            event = await found.get()
            if isinstance(event, Exception):
                raise event
            if event is not None and event.kind == "prompt" and time.monotonic() - since < quiet:
                continue
            since = time.monotonic()
            if event is None or event.kind == "prompt":
                yield event if progress else None
                continue
            for shown in spaces.push(event):
                yield shown
            if event.kind == "done":
                return
    finally:
        timer.cancel()
        await _ended(reading)


async def merged(sources: Sequence[AsyncGenerator[Item]], most: int) -> AsyncGenerator[tuple[int, Item]]:
    """The items of several generators, with their numbers; at most `most` of them run at a time, in their order."""
    places, found = asyncio.Semaphore(most), asyncio.Queue[tuple[int, Item] | BaseException | None]()

    async def drain(number: int, source: AsyncGenerator[Item]) -> None:
        try:
            async with places, contextlib.aclosing(source):
                async for item in source:
                    found.put_nowait((number, item))
            found.put_nowait(None)
        except Exception as error:
            found.put_nowait(error)

    tasks = [asyncio.ensure_future(drain(number, source)) for number, source in enumerate(sources)]
    try:
        left = len(tasks)
        while left:
            item = await found.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        await _ended(*tasks)


async def choices(begin: Begin, n: int, most: int, *, progress: bool = False) -> AsyncGenerator[tuple[int, Event | None]]:
    """The events of `n` answers to one prompt, with their numbers. It is computed once: the others begin with the first answer.

    `begin(k)` begins one; `most` are written at a time.
    """
    if n == 1:
        async with contextlib.aclosing(pinged(await begin(0), progress=progress)) as events:
            async for event in events:
                yield 0, event
        return
    read = asyncio.Event()

    async def choice(number: int) -> AsyncGenerator[Event | None]:
        try:
            if number:
                await read.wait()
            async for event in pinged(await begin(number), progress=progress):
                if event is not None and event.kind != "prompt":
                    read.set()
                yield event
        finally:
            read.set()

    async with contextlib.aclosing(merged([choice(number) for number in range(n)], most)) as found:
        async for each in found:
            yield each


class Streamed(Response):
    """A response whose parts come from a generator: it is closed, and so is the answer behind it, when the client leaves."""

    def __init__(self, first: bytes, rest: Chunks, media_type: str, failed: Callable[[Problem], bytes]) -> None:
        """`failed`: the last part where something goes wrong after the head was sent."""
        super().__init__(media_type=media_type, headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._first, self._rest, self._failed = first, rest, failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._send_all(send))
        finally:
            await self._rest.aclose()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        try:
            async for part in self._rest:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        except Exception as error:
            if not isinstance(error, EdgeError | Problem):
                log.exception("an answer failed")
            await send({"type": "http.response.body", "body": self._failed(problem_of(error)), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def streamed(request: Request, chunks: Chunks, media_type: str, failed: Callable[[Problem], bytes]) -> Response:
    """A response of `chunks`. What goes wrong before the first of them is raised here, while a status can still tell it, unless
    that takes long, as loading a model may: then comment lines show that the server is alive, where the protocol has such.
    """
    first: asyncio.Future[bytes] = asyncio.ensure_future(anext(chunks))
    try:
        await unless_gone(request.receive, _waited(first, PING_SECONDS if media_type == SSE else None))
        if first.done():
            return Streamed(first.result(), chunks, media_type, failed)
    except BaseException:
        await _ended(first)
        with contextlib.suppress(Exception):
            await chunks.aclose()
        raise
    return Streamed(COMMENT, _after(first, chunks), media_type, failed)


async def _waited(first: asyncio.Future[bytes], seconds: float | None) -> None:
    await asyncio.wait((first,), timeout=seconds)


async def _after(first: asyncio.Future[bytes], chunks: Chunks) -> Chunks:
    """Comment lines until the first chunk is there, then all chunks."""
    try:
        while not first.done():
            await _waited(first, PING_SECONDS)
            if not first.done():
                yield COMMENT
        yield first.result()
        async for chunk in chunks:
            yield chunk
    finally:
        await _ended(first)
        await chunks.aclose()
