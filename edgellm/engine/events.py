"""Events of a stream of pieces: what comes, by kind."""
from __future__ import annotations

from collections.abc import Iterator

from edgellm.engine.records import Event, Piece, TokenLogprobs


class EventMaker:
    """Turns pieces into events; empty ones are left out, but their log probabilities are kept for the next."""

    def __init__(self) -> None:
        self._logprobs: list[TokenLogprobs] = []

    def push(self, piece: Piece) -> Iterator[Event]:
        """The events of the next piece."""
        if piece.logprobs is not None:
            self._logprobs.append(piece.logprobs)
        if piece.thinking:
            yield Event("thinking", piece.thinking, self._taken())
        if piece:
            yield Event("text", str(piece), self._taken())
        for call in piece.tool_calls:
            yield Event("tool_call", "", self._taken(), call)

    def _taken(self) -> tuple[TokenLogprobs, ...]:
        taken, self._logprobs = tuple(self._logprobs), []
        return taken
