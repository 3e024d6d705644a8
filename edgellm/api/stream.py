"""Streams: iterators over the pieces of an answer, which can be stopped at any time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Self

from edgellm.api.answer import Answer, AnswerSpec, Piece
from edgellm.api.records import Event, Eviction, Generation, PromptRead, TokenLogprobs
from edgellm.engine.conversation import SessionCache
from edgellm.engine.engine import Engine
from edgellm.engine.readers import RequestReader
from edgellm.errors import ModelClosed, OptionError
from edgellm.formats.closing import Closing


class Stream(Closing):
    """Iterate over it for the pieces, one per token; after the end `result` is the Generation.

    `events()` has more: how far the prompt is read, thinking apart from the answer, calls of tools, what was evicted, the end.

    `close()` ends it early, from any thread, as does leaving its `with` block. Then, and after an error, the model is ready
    for the next call. Between two pieces other calls may preempt it; it resumes with the same result.
    """

    def __init__(self, engine: Engine, spec: AnswerSpec, *, session: SessionCache | None = None, background: bool = False) -> None:
        self._engine: Engine | None = engine
        self._answer = Answer(
            spec,
            context=engine.layout.context,
            sinks=engine.layout.classes[0].kept,
            positions=engine.positions,
            session=session,
            background=background,
        )
        self._reading = threading.RLock()  # held while a piece is waited for

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, as the model reads it."""
        return self._answer.n_prompt

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that need not be computed; 0 before that is known."""
        return self._answer.cached_tokens

    @property
    def result(self) -> Generation:
        """The finished answer. Raises OptionError before the end."""
        if self._answer.result is None:
            raise OptionError("result is there when the stream has ended; read it to its end or close it first.")
        return self._answer.result

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Piece:
        """The next piece. Raises StopIteration at the end, NumericError, ModelClosed, FormatError (file changed on disk)."""
        with self._reading:
            self._run()
            piece = self._answer.take()
        if piece is None:
            raise StopIteration
        return piece

    def _run(self) -> None:
        engine, answer = self._engine, self._answer
        if engine is None:
            return
        try:
            engine.run(answer)
        finally:
            if answer.result is not None:
                self._engine = None  # a kept stream must not keep a closed model's memory

    # --- for readers that do not block ---------------------------------------------------------------------------------------
    @property
    def request(self) -> Answer:
        """The request that the engine computes."""
        return self._answer

    def begin_reading(self, *, reports: bool, drains: bool) -> None:
        """`reports`: prompt progress is wanted; `drains`: no pieces are, only the result."""
        self._answer.reports, self._answer.draining = reports, drains

    def add_reader(self, reader: RequestReader) -> None:
        """Let the engine's thread read the answer. Raises BackendError in a forked process."""
        if self._engine is not None:
            self._engine.readers.add(reader)

    def stir(self) -> None:
        """Let the engine's thread look at its readers again."""
        engine = self._engine
        if engine is not None:
            engine.readers.stir()

    def taken(self, error: BaseException | None) -> tuple[list[Piece | PromptRead | Generation | BaseException], bool]:
        """The items that were delivered, and whether the answer is complete; `error` ends it where it is not."""
        answer, items = self._answer, list[Piece | PromptRead | Generation | BaseException]()
        if (read := answer.take_read()) is not None and answer.reports:
            items.append(read)
        if (piece := answer.take()) is not None:
            items.append(piece)
        if error is not None and answer.result is None:
            answer.abort()
            answer.error = answer.error or (error if isinstance(error, Exception) else ModelClosed(str(error)))
        if answer.result is not None:
            items.append(answer.error or answer.result)
            self._engine = None  # a kept stream must not keep a closed model's memory
        return items, answer.result is not None

    def cancel(self) -> None:
        """End the answer at the next token (or step of the prompt) without waiting for it; from any thread."""
        self._answer.cancelled = True

    def close(self) -> None:
        """End the answer; `result` then holds what there is. Waits for the token that another thread computes."""
        engine = self._engine
        self._answer.cancelled = True
        if engine is not None:
            engine.end(self._answer)
            if self._answer.result is not None:
                self._engine = None

    def events(self) -> Iterator[Event]:
        """Events by kind, see `Event`; empty pieces are left out. An alternative to iterating, with the same errors."""
        maker = EventMaker(self.evicted)
        for item in self.items():
            yield from maker.push(item)
        yield Event("done", result=self.result)

    def items(self) -> Iterator[Piece | PromptRead]:
        """Pieces, and before them how far the prompt is read, step by step."""
        self._answer.reports = True
        try:
            while True:
                with self._reading:
                    self._run()
                    read, piece = self._answer.take_read(), self._answer.take()
                if read is not None:
                    yield read
                if piece is not None:
                    yield piece
                elif read is None:
                    return
        finally:
            self._answer.reports = False

    def evicted(self) -> Eviction | None:
        """The tokens and messages that the model no longer sees, as far as the answer was read; None where it sees all."""
        return self._answer.eviction()

    def drain(self) -> Generation:
        """Read to the end and return the result."""
        self._answer.draining = True
        with self._reading:
            self._run()
        return self.result


class EventMaker:
    """Turns pieces into events; empty ones are left out, but their log probabilities are kept for the next."""

    def __init__(self, evicted: Callable[[], Eviction | None]) -> None:
        """`evicted` says what the model no longer sees, None where it sees all."""
        self._logprobs: list[TokenLogprobs] = []
        self._evicted: Callable[[], Eviction | None] | None = evicted

    def push(self, item: Piece | PromptRead) -> Iterator[Event]:
        """The events of what comes next."""
        if isinstance(item, PromptRead):
            yield Event("prompt", prompt=item)
            return
        if self._evicted is not None and (evicted := self._evicted()) is not None:
            self._evicted = None
            yield Event("evicted", evicted=evicted)
        if item.logprobs is not None:
            self._logprobs.append(item.logprobs)
        if item.thinking:
            yield Event("thinking", item.thinking, self._taken())
        if item:
            yield Event("text", str(item), self._taken())
        for delta in item.call_deltas:
            yield Event("call_delta", call_delta=delta)
        for call in item.tool_calls:
            yield Event("tool_call", "", self._taken(), call)

    def _taken(self) -> tuple[TokenLogprobs, ...]:
        taken, self._logprobs = tuple(self._logprobs), []
        return taken
