"""Generation under asyncio: a few threads compute all answers, and cancelling a task ends its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, Unpack, cast, overload  # Any: options

from edgellm.api.answer import Piece
from edgellm.api.chat_options import AnyFormChatKeywords, ChatKeywords
from edgellm.api.generation_options import AnyFormKeywords, GenerationKeywords, Tries
from edgellm.api.prompting import Prompt
from edgellm.api.records import Event, Eviction, Generation, Parsed, ParsedGeneration, PromptRead, Validates
from edgellm.api.several import aseveral
from edgellm.api.stream import EventMaker, Stream
from edgellm.arguments import check_flag
from edgellm.chat import Message
from edgellm.errors import OptionError

if TYPE_CHECKING:  # asyncio is 3 MB, which most programs never need
    from edgellm.api.async_worker import AsyncWorker
    from edgellm.api.infill import InfillKeywords
    from edgellm.api.rounds import Rounds
    from edgellm.chat.audio import Audio, Source
    from edgellm.engine.engine import Engine


Stop = Callable[[], bool]
Begin = Callable[[Stop], Stream]


class _Generator(Protocol):
    """The calls that the asynchronous ones are twins of."""

    def _several(self, n: object, *, stream: bool = False, run_tools: bool = False) -> tuple[int, Engine]: ...

    def stream_until(self, given_up: Stop, prompt: Prompt, **options: Unpack[GenerationKeywords]) -> Stream: ...

    def chat_until(
        self, given_up: Stop, messages: Sequence[Message], *, stream: bool = False, **options: Unpack[ChatKeywords]
    ) -> Generation | Stream: ...

    @overload
    def infill(
        self, prefix: str, suffix: str, *, stream: Literal[False] = False, **options: Unpack[InfillKeywords]
    ) -> Generation: ...
    @overload
    def infill(self, prefix: str, suffix: str, *, stream: Literal[True], **options: Unpack[InfillKeywords]) -> Stream: ...

    def rounds(self, messages: Sequence[Message], options: ChatKeywords) -> Rounds: ...


class AsyncTwins:
    """The calls of a model for programs that run on asyncio; their arguments, results and errors are those of their twins."""

    @overload
    async def agenerate(
        self: _Generator,
        prompt: Prompt,
        *,
        schema: type[Parsed] | Validates[Parsed],
        n: None = None,
        **options: Unpack[AnyFormKeywords],
    ) -> ParsedGeneration[Parsed]: ...
    @overload
    async def agenerate(
        self: _Generator, prompt: Prompt, *, n: None = None, **options: Unpack[GenerationKeywords]
    ) -> Generation: ...
    @overload
    async def agenerate(
        self: _Generator, prompt: Prompt, *, n: int, schema: type[Parsed] | Validates[Parsed], **options: Unpack[AnyFormKeywords]
    ) -> list[ParsedGeneration[Parsed]]: ...
    @overload
    async def agenerate(self: _Generator, prompt: Prompt, *, n: int, **options: Unpack[GenerationKeywords]) -> list[Generation]: ...

    async def agenerate(
        self: _Generator, prompt: Prompt, *, n: int | None = None, **options: Unpack[GenerationKeywords]
    ) -> Generation | Sequence[Generation]:
        """`generate` without blocking the event loop; cancelling the task ends the computing."""
        if n is not None:

            def begun(asked: GenerationKeywords) -> AsyncStream:
                return AsyncStream(lambda given_up: self.stream_until(given_up, prompt, **asked))

            return await aseveral(*self._several(n), begun, options)
        tries = Tries(options)
        while tries.again(
            answer := await AsyncStream(lambda given_up: self.stream_until(given_up, prompt, **tries.options)).drain()
        ):
            pass
        return answer

    def astream(self: _Generator, prompt: Prompt, **options: Unpack[GenerationKeywords]) -> AsyncStream:
        """`stream` for `async for`; cancelling the task that reads it ends the computing."""
        return AsyncStream(lambda given_up: self.stream_until(given_up, prompt, **options))

    @overload
    async def ainfill(
        self: _Generator, prefix: str, suffix: str, *, stream: Literal[False] = False, **options: Unpack[InfillKeywords]
    ) -> Generation: ...
    @overload
    async def ainfill(
        self: _Generator, prefix: str, suffix: str, *, stream: Literal[True], **options: Unpack[InfillKeywords]
    ) -> AsyncStream: ...
    @overload
    async def ainfill(
        self: _Generator, prefix: str, suffix: str, *, stream: bool, **options: Unpack[InfillKeywords]
    ) -> Generation | AsyncStream: ...

    async def ainfill(
        self: _Generator, prefix: str, suffix: str, *, stream: bool = False, **options: Unpack[InfillKeywords]
    ) -> Generation | AsyncStream:
        """`infill` without blocking the event loop: a Generation, or an AsyncStream with `stream=True`."""
        stream = check_flag("stream", stream)
        answer = AsyncStream(lambda given_up: self.infill(prefix, suffix, stream=True, **options))
        return answer if stream else await answer.drain()

    @overload
    async def achat(
        self: _Generator,
        messages: Sequence[Message],
        *,
        schema: type[Parsed] | Validates[Parsed],
        stream: Literal[False] = False,
        n: None = None,
        **options: Unpack[AnyFormChatKeywords],
    ) -> ParsedGeneration[Parsed]: ...
    @overload
    async def achat(
        self: _Generator,
        messages: Sequence[Message],
        *,
        stream: Literal[False] = False,
        n: None = None,
        **options: Unpack[ChatKeywords],
    ) -> Generation: ...
    @overload
    async def achat(
        self: _Generator,
        messages: Sequence[Message],
        *,
        n: int,
        schema: type[Parsed] | Validates[Parsed],
        stream: Literal[False] = False,
        **options: Unpack[AnyFormChatKeywords],
    ) -> list[ParsedGeneration[Parsed]]: ...
    @overload
    async def achat(
        self: _Generator, messages: Sequence[Message], *, n: int, stream: Literal[False] = False, **options: Unpack[ChatKeywords]
    ) -> list[Generation]: ...
    @overload
    async def achat(
        self: _Generator, messages: Sequence[Message], *, stream: Literal[True], **options: Unpack[ChatKeywords]
    ) -> AsyncStream: ...
    @overload
    async def achat(
        self: _Generator, messages: Sequence[Message], *, stream: bool, **options: Unpack[ChatKeywords]
    ) -> Generation | AsyncStream: ...

    async def achat(
        self: _Generator,
        messages: Sequence[Message],
        *,
        stream: bool = False,
        n: int | None = None,
        **options: Unpack[ChatKeywords],
    ) -> Generation | Sequence[Generation] | AsyncStream:
        """`chat` without blocking the event loop: a Generation, or an AsyncStream with `stream=True`."""
        stream, runs = check_flag("stream", stream), check_flag("run_tools", options.get("run_tools", False))
        if n is not None:
            several = self._several(n, stream=stream, run_tools=runs)
            return await aseveral(*several, lambda asked: _begun(self, messages, asked), options)
        answer: AsyncStream
        if runs:
            answer = AsyncRoundStream(lambda: self.rounds(messages, options), lambda *asked: _begun(self, *asked), options)
        else:
            answer = _begun(self, messages, options)
        if stream:
            return answer
        tries, found = Tries(options), await answer.drain()
        while tries.again(found):
            found = await _begun(self, messages, tries.options).drain()
        return found

    @overload
    async def atranscribe(
        self: _Generator,
        clip: Source | Audio,
        *,
        prompt: str | None = None,
        stream: Literal[False] = False,
        **options: Unpack[ChatKeywords],
    ) -> Generation: ...
    @overload
    async def atranscribe(
        self: _Generator, clip: Source | Audio, *, prompt: str | None = None, stream: Literal[True], **options: Unpack[ChatKeywords]
    ) -> AsyncStream: ...

    async def atranscribe(
        self: _Generator, clip: Source | Audio, *, prompt: str | None = None, stream: bool = False, **options: Unpack[ChatKeywords]
    ) -> Generation | AsyncStream:
        """`transcribe` without blocking the event loop; cancelling the task ends the computing. With `stream=True` an AsyncStream,
        which has all that the model writes, also the language that some name first, as in `language English<asr_text>`.
        """
        from edgellm.api.transcribe import Hearing, question, words_of

        stream = check_flag("stream", stream)
        raw, messages = question(cast(Hearing, self), clip, prompt)
        asked: dict[str, Any] = {"temperature": 0, **options}
        if raw is not None:
            answer = AsyncStream(lambda given_up: self.stream_until(given_up, raw, **asked))
            return answer if stream else await answer.drain()
        answer = _begun(self, messages, cast(ChatKeywords, asked))
        return answer if stream else words_of(await answer.drain())


def _begun(model: _Generator, messages: Sequence[Message], options: ChatKeywords) -> AsyncStream:
    return AsyncStream(lambda given_up: cast(Stream, model.chat_until(given_up, messages, stream=True, **options)))


class AsyncStream:
    """Iterate over it with `async for` for the pieces; after the end `result` is the Generation.

    `aclose()`, or leaving its `async with` block, ends it early; so does cancelling the task that reads it, or dropping it.
    Computing is at most `async_worker.AHEAD` tokens ahead of the reader.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin: Begin = begin
        self._worker: AsyncWorker | None = None
        self._result: Generation | None = None
        self._failed = self._reports = self._drains = False

    @property
    def result(self) -> Generation:
        """The finished answer. Raises OptionError before the end."""
        if self._result is None:
            raise OptionError("result is there when the stream has ended; read it to its end or close it first.")
        return self._result

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt; 0 before it was looked at."""
        return self._worker.prompt_tokens if self._worker is not None else 0

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that need not be computed; 0 before that is known."""
        return self._worker.cached_tokens if self._worker is not None else 0

    def _started(self) -> AsyncWorker:
        from edgellm.api.async_worker import AsyncWorker

        self._worker = self._worker or AsyncWorker(self._begin, reports=self._reports, drains=self._drains)
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
        """The next item, None at the end."""
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
        self._reports, maker = True, EventMaker(self._evicted)
        while (item := await self._next()) is not None:
            for event in maker.push(item):
                yield event
        yield Event("done", result=self.result)

    def _evicted(self) -> Eviction | None:
        return self._started().evicted()

    async def drain(self) -> Generation:
        """Read to the end and return the result. Raises what the twin raises."""
        self._drains = True
        async for _ in self:
            pass
        return self.result

    def cancel(self) -> None:
        """End the answer at the next token (or step of the prompt) without waiting for it; its reader gets the end."""
        if self._result is None and not self._failed:
            self._started().cancel()

    async def aclose(self) -> None:
        """End the answer; `result` then holds what there is. Waits for the token that is being computed."""
        self.cancel()
        if self._result is None and not self._failed:
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


class AsyncRoundStream(AsyncStream):
    """The pieces of all rounds; between them tools are called: coroutines in the running loop, plain functions in threads."""

    def __init__(
        self, rounds: Callable[[], Rounds], ask: Callable[[Sequence[Message], ChatKeywords], AsyncStream], options: ChatKeywords
    ) -> None:
        self._make, self._ask, self._options = rounds, ask, options
        self._rounds: Rounds | None = None
        self._stream: AsyncStream | None = None
        self._worker = None
        self._result: Generation | None = None
        self._failed = self._reports = self._drains = self._stopped = False

    def _now(self) -> tuple[Rounds, AsyncStream]:
        """The answer that is being written."""
        rounds = self._rounds = self._rounds or self._make()
        if self._stream is None:
            self._stream = self._ask(rounds.messages, rounds.options(self._options))
            self._stream._reports, self._stream._drains = self._reports, self._drains
            if self._stopped:
                self._stream.cancel()
        return rounds, self._stream

    @property
    def prompt_tokens(self) -> int:
        return self._stream.prompt_tokens if self._stream is not None else 0

    @property
    def cached_tokens(self) -> int:
        return self._stream.cached_tokens if self._stream is not None else 0

    def _evicted(self) -> Eviction | None:
        return self._stream._evicted() if self._stream is not None else None

    async def _next(self) -> Piece | PromptRead | None:
        from edgellm.api.rounds import in_loop

        while self._result is None:
            rounds, stream = self._now()
            if (item := await stream._next()) is not None:
                return item
            if stream._failed:
                return None
            self._result, self._stream = rounds.finished(stream.result), None
            for call in stream.result.tool_calls if self._result is None and not self._stopped else ():
                await in_loop(rounds.carry_out(call))
        return None

    def cancel(self) -> None:
        self._stopped = True
        if self._stream is not None:
            self._stream.cancel()

    async def aclose(self) -> None:
        if self._result is None:
            rounds, stream = self._now()
            await stream.aclose()
            self._result = rounds.finished(stream.result)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            await self.aclose()
        elif self._stream is not None:
            await self._stream.__aexit__(kind, error, trace)

    def __del__(self) -> None:
        return  # the answer that is being written ends itself
