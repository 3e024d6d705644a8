"""Events of a stream: what comes, by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from edgellm.api.records import Event, Eviction, Piece, PromptRead, TokenLogprobs


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
