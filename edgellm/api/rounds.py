"""Calls of tools carried out, round after round, until an answer calls none: at once, piece by piece, or under asyncio."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from inspect import isawaitable, iscoroutinefunction
from typing import Any  # what tools return

from edgellm.api.answer import Piece
from edgellm.api.chat_options import ChatKeywords, check_rounds
from edgellm.api.forms.schema import hints_of
from edgellm.api.forms.typed import as_json_value, typed
from edgellm.api.records import Event, Generation, PromptRead, Stats, ToolError
from edgellm.api.stream import EventMaker, Stream
from edgellm.api.tools import MAX_ROUNDS, Function, Toolbox
from edgellm.chat.templates import Message
from edgellm.chat.tools import ToolCall
from edgellm.errors import OptionError, SchemaError, shown

log = logging.getLogger("edgellm")
SUMMED = (
    "prompt_tokens",
    "cached_tokens",
    "generated_tokens",
    "prompt_seconds",
    "generation_seconds",
    "drafted_tokens",
    "accepted_tokens",
    "thinking_tokens",
    "skipped_tokens",
)


class Rounds:
    """The conversation of several rounds: what was added to it, and what it has cost."""

    def __init__(self, messages: Sequence[Message], tools: Toolbox, max_rounds: int) -> None:
        self._messages, self._tools, self._left = messages, tools, max_rounds
        self._added = list[Message]()
        self._errors = list[ToolError]()
        self._stats: Stats | None = None

    @property
    def messages(self) -> list[Message]:
        """Of the next round."""
        return [*self._messages, *self._added]

    def options(self, given: ChatKeywords) -> ChatKeywords:
        """The options of the next round: a call that must come comes in the first."""
        following: ChatKeywords = {**given, "run_tools": False}
        return {**following, "tool_choice": None} if self._added else following

    def finished(self, answer: Generation) -> Generation | None:
        """All of it, where an answer is the last; else its calls are to be carried out."""
        self._stats = answer.stats if self._stats is None else _sum(self._stats, answer.stats)
        runs = all(call.name in self._tools.functions or not self._knows(call) for call in answer.tool_calls)
        if not answer.tool_calls or not runs or self._left == 0 or answer.stop_reason == "cancelled":
            return replace(answer, messages=tuple(self._added), stats=self._stats, tool_errors=tuple(self._errors))
        self._left -= 1
        thought = {"reasoning_content": answer.thinking} if answer.thinking else {}
        calls = [call.message for call in answer.tool_calls]
        self._added.append({"role": "assistant", "content": answer.text, **thought, "tool_calls": calls})
        return None

    def _knows(self, call: ToolCall) -> bool:
        return any(tool.name == call.name for tool in self._tools.tools)

    def carry_out(self, call: ToolCall) -> Generator[Callable[[], Any], Any, None]:
        """Call its function: what is to be called is yielded, and what it returns or raises is sent back."""
        function = self._tools.functions.get(call.name)
        if function is None:
            self._add(call, f"error: there is no tool {call.name}; there are {', '.join(self._tools.functions)}")
            return
        if (problem := self._tools.problem_of(call)) is not None:
            self._errors.append(ToolError(call, SchemaError(f"the arguments of {call.name} break its schema: {problem}")))
            self._add(call, f"error: {problem}")
            return
        try:
            found = yield functools.partial(function, **arguments_for(function, call.arguments))
        except Exception as error:
            log.warning("the tool %s raised %s: %s", call.name, type(error).__name__, error, exc_info=error)
            self._errors.append(ToolError(call, error))
            self._add(call, f"error: {type(error).__name__}: {error}")
            return
        self._add(call, result_text(call.name, found))

    def _add(self, call: ToolCall, content: str) -> None:
        self._added.append({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content})


def rounds_of(messages: Sequence[Message], tools: Toolbox | None, options: ChatKeywords) -> Rounds:
    """Rounds under the options of `chat`. Raises OptionError."""
    if tools is None:
        raise OptionError("run_tools needs tools; give functions, or leave it out.")
    return Rounds(messages, tools, check_rounds(options.get("max_rounds", MAX_ROUNDS)))


def _sum(one: Stats, other: Stats) -> Stats:
    """The counts of two answers; how the last one ended."""
    return replace(
        other,
        time_to_first_token=one.time_to_first_token,
        **{field.name: getattr(one, field.name) + getattr(other, field.name) for field in fields(Stats) if field.name in SUMMED},
    )


def arguments_for(function: Function, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments in the types of a function's annotations. Raises what they do not fit."""
    hints = hints_of(function)
    return {name: typed(hints.get(name, Any), value) for name, value in arguments.items()}


def result_text(name: str, found: object) -> str:
    """The result of a tool, as the model reads it. Raises OptionError for what JSON cannot hold."""
    if isinstance(found, str):
        return found
    try:
        return json.dumps(found, ensure_ascii=False, default=as_json_value, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        why = "JSON has no NaN and no infinity" if "float values" in str(error) else str(error).rstrip(".")
        raise OptionError(
            f"{name} returned {shown(found)}, which is no JSON ({why}); return a text, or None for a missing number."
        ) from error


def in_thread(step: Generator[Callable[[], Any], Any, None]) -> None:
    """A call carried out in this thread; a coroutine runs in an event loop of its own."""

    async def result(found: Awaitable[Any]) -> Any:
        return await found

    for function in step:
        try:
            found = function()
            if isawaitable(found):
                import asyncio  # 3 MB

                found = asyncio.run(result(found))
        except Exception as error:
            _end(step.throw, error)
        else:
            _end(step.send, found)
        return


async def in_loop(step: Generator[Callable[[], Any], Any, None]) -> None:
    """A call carried out under asyncio: a coroutine in the running loop, a plain function in a thread."""
    from asyncio import to_thread

    for function in step:
        try:
            found = function() if _is_async(function) else await to_thread(function)
            if isawaitable(found):
                found = await found
        except Exception as error:
            _end(step.throw, error)
        else:
            _end(step.send, found)
        return


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _end(resume: Callable[[Any], object], found: object) -> None:
    with suppress(StopIteration):
        resume(found)


class RoundStream(Stream):
    """The pieces of all rounds; between them tools are called, in the thread that reads."""

    def __init__(self, rounds: Rounds, ask: Callable[[], Stream]) -> None:
        self._rounds, self._ask = rounds, ask
        self._stream: Stream | None = None
        self._whole: Generation | None = None
        self._stopped = False

    @property
    def prompt_tokens(self) -> int:
        return self._now().prompt_tokens

    @property
    def result(self) -> Generation:
        if self._whole is None:
            raise OptionError("result is there when the stream has ended; read it to its end or close it first.")
        return self._whole

    def _now(self) -> Stream:
        """The answer that is being written."""
        if self._stream is None:
            self._stream = self._ask()
            if self._stopped:
                self._stream.cancel()
        return self._stream

    def _next_round(self) -> bool:
        """Carry out the calls of the answer that has ended; whether another follows."""
        answer = self._now().result
        self._whole = self._rounds.finished(answer)
        for call in answer.tool_calls if self._whole is None else ():
            if not self._stopped:
                in_thread(self._rounds.carry_out(call))
        self._stream = self._stream if self._whole is not None else None
        return self._whole is None

    def __next__(self) -> Piece:
        while self._whole is None:
            for piece in self._now():
                return piece
            self._next_round()
        raise StopIteration

    def items(self) -> Iterator[Piece | PromptRead]:
        while self._whole is None:
            yield from self._now().items()
            self._next_round()

    def events(self) -> Iterator[Event]:
        while self._whole is None:
            maker = EventMaker(self._now().evicted)
            for item in self._now().items():
                yield from maker.push(item)
            self._next_round()
        yield Event("done", result=self._whole)

    def cancel(self) -> None:
        self._stopped = True
        if self._stream is not None:
            self._stream.cancel()

    def close(self) -> None:
        self.cancel()
        if self._whole is None:
            self._now().close()
            self._whole = self._rounds.finished(self._now().result)

    def drain(self) -> Generation:
        while self._whole is None:
            self._now().drain()
            self._next_round()
        return self._whole
