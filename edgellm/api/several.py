"""Several answers to one prompt, which share the prompt's computing and the steps of the model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, Self, TypeVar  # Any: of coroutines

from edgellm.api.generation_options import GenerationKeywords, Tries
from edgellm.api.records import Generation
from edgellm.api.stream import Stream
from edgellm.arguments import as_int
from edgellm.engine.engine import Engine
from edgellm.errors import OptionError
from edgellm.options.choices import of_choice

Keywords = TypeVar("Keywords", bound=GenerationKeywords)


class AsyncAnswer(Protocol):
    """An AsyncStream."""

    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> object: ...
    async def drain(self) -> Generation: ...


def check_several(n: object, *, session: bool, stream: bool, run_tools: bool) -> int:
    """A number of answers. Raises OptionError, also where a call cannot have several."""
    number = as_int(n)
    if number is None or number < 1:
        raise OptionError(option="n", value=n, advice="give a number of answers, 1 or greater")
    if stream:
        raise OptionError("n and stream=True exclude each other; begin a stream for each answer, or leave one of them out.")
    if run_tools:
        raise OptionError("n and run_tools=True exclude each other; leave one of them out.")
    if number > 1 and session:
        raise OptionError("a session continues one conversation; call the model itself for n answers, or fork the session.")
    return number


def several(n: int, engine: Engine, begin: Callable[[Keywords], Stream], options: Keywords) -> list[Generation]:
    """`n` answers, as many at a time as the model computes: the first reads the prompt, the others continue from there.

    Raises what one of them raises; the others end then.
    """
    wake, streams, most = threading.Condition(engine.lock), list[Stream](), engine.core.parallel
    try:
        while True:
            left = [stream for stream in streams if stream.request.result is None]
            while len(left) < most and len(streams) < n:
                streams.append(stream := begin(of_choice(options, len(streams))))
                if len(streams) == 1:
                    next(stream, None)  # the prompt is computed
                stream.begin_reading(reports=False, drains=True)
                if stream.request.result is None:
                    left.append(stream)
            if not left:
                break
            engine.run_many([stream.request for stream in left], wake)
            for stream in left:
                if stream.request.error is not None:
                    raise stream.request.error
    finally:
        for stream in streams:
            stream.close()
    answers = [stream.result for stream in streams]
    for k, answer in enumerate(answers):
        tries = Tries(of_choice(options, k))
        while tries.again(answer):
            answer = answers[k] = begin(tries.options).drain()
    return answers


async def aseveral(n: int, engine: Engine, begin: Callable[[Keywords], AsyncAnswer], options: Keywords) -> list[Generation]:
    """`several` for an event loop; cancelling it ends all of them."""
    import asyncio

    places, read = asyncio.Semaphore(engine.core.parallel), asyncio.Event()

    async def answer(k: int) -> Generation:
        tries = Tries(of_choice(options, k))
        if k:
            await read.wait()
        async with places:
            stream = begin(tries.options)
            try:
                if k == 0:
                    await anext(stream, None)
            finally:
                read.set()
            while tries.again(found := await stream.drain()):
                stream = begin(tries.options)
        return found

    return await together([answer(k) for k in range(n)])


async def together(work: list[Coroutine[Any, Any, Generation]]) -> list[Generation]:
    """The results of all; where one fails or is cancelled, the others are."""
    import asyncio

    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
