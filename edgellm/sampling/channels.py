"""Keeps an answer within what its channels accept: thinking and text are free, a form holds in the text, a grammar in each call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import numpy as np

from edgellm.sampling.constraint import Mask, TokenConstraint

MAX_ROLLBACK = 256  # tokens
MAX_GAP = 4  # tokens of white space between thinking and answer
MAX_TAIL = 600  # bytes in which the beginning of a call is looked for


class ChannelTokens:
    """The tokens of a vocabulary as the constraint needs them; the answers of a model share them."""

    def __init__(
        self,
        pieces: Sequence[bytes],
        *,
        opening: int | None = None,
        closing: Sequence[int] = (),
        close: bytes = b"",
        ends: Collection[int] = (),
    ) -> None:
        """`pieces`: of each token, as text. `opening`: the token that opens thinking, where there is one. `closing`: the closing
        marker `close` as tokens. `ends`: tokens that end an answer."""
        self.pieces, self.opening, self.closing, self.close, self.ends = pieces, opening, tuple(closing), close, ends
        self.n_words = (len(pieces) + 31) // 32
        self._straddling: dict[int, list[int]] = {}  # length of the marker's part that is there -> tokens

    @cached_property
    def blanks(self) -> frozenset[int]:
        """Tokens of white space."""
        return frozenset(token for token, piece in enumerate(self.pieces) if piece and not piece.strip(b" \t\r\n"))

    def straddling(self, tail: bytes) -> list[int]:
        """Tokens that, after `tail`, would close the thinking and begin the answer at once."""
        close = self.close
        there = next((n for n in range(len(close) - 1, 0, -1) if tail.endswith(close[:n])), 0)
        if there not in self._straddling:
            rest = close[there:]
            self._straddling[there] = [
                token
                for token, piece in enumerate(self.pieces)
                if (there and piece.startswith(rest) and piece[len(rest) :].strip()) or piece.partition(close)[2].strip()
            ]
        return self._straddling[there]


class Calls(Protocol):
    """How the calls of an answer begin."""

    def begun(self, text: bytes, *, said: bool, mid_line: bool, thinking: bool) -> TokenConstraint | int:
        """The rest of the call that has begun at the end of a text, behind what is there of it; else of how many bytes at its
        beginning no call can be made any more. `said`: something came before the text; `mid_line`: also on its first line."""
        ...


class _Stage(NamedTuple):
    part: Literal["start", "thinking", "gap", "text", "call", "done"]
    tail: bytes = b""  # of the channel's text, in which a mark may begin
    tokens: int = 0  # of thinking, then of the gap
    forced: int = 0  # tokens of the closing marker that were forced
    said: bool = False  # something stands before the tail
    mid_line: bool = False  # also on its first line
    call: TokenConstraint | None = None  # of the call that is being written
    free: bool = False  # the form is behind it
    within: Literal["thinking", "text"] = "text"  # the channel that the call stands in
    fed: TokenConstraint | None = None  # what has taken the newest token


@dataclass(frozen=True, slots=True)
class Channels:
    """The tokens that an answer's channels accept.

    `form`: of the text, or of the call that must come instead of it. `inside`: the prompt has opened the thinking; `may_open`: the
    answer may. `budget`: tokens of thinking, after which it is closed. `once`: nothing follows a call.
    """

    tokens: ChannelTokens
    form: TokenConstraint | None = None
    calls: Calls | None = None
    inside: bool = False
    may_open: bool = False
    budget: int | None = None
    once: bool = False


class ChannelConstraint:
    """Follows the channels of an answer: `start` (may still open the thinking), `thinking`, `gap`, `text`, `call`, `done`.

    A form begins to hold behind the thinking, which then may not end the answer; a token that closes it ends with the marker or
    in white space, so that the form begins with a token of its own. Calls may begin in the thinking and in the text.
    """

    def __init__(self, channels: Channels) -> None:
        self._channels, self._tokens = channels, channels.tokens
        may_open = channels.may_open and self._tokens.opening is not None
        self._states = [_Stage("thinking" if channels.inside else "start" if may_open else "text")]

    @property
    def complete(self) -> bool:
        state = self._states[-1]
        form = self._form(state)
        return state.part == "done" or (state.part in ("gap", "text") and form is not None and form.complete)

    def _form(self, state: _Stage) -> TokenConstraint | None:
        return None if state.free else self._channels.form

    def mask(self) -> Mask | None:
        state = self._states[-1]
        form = self._form(state)
        if state.part == "call" and state.call is not None:
            return state.call.mask()
        if state.part == "done":
            mask = np.zeros(self._tokens.n_words, np.uint32)
            _set(mask, self._tokens.ends)
            return mask
        if state.part == "thinking":
            return self._thinking_mask(state)
        inner = form.mask() if form is not None else None
        if inner is None or state.part == "text":
            return inner
        more: Collection[int] = self._tokens.blanks if state.part == "gap" and state.tokens < MAX_GAP else ()
        if state.part == "start" and self._tokens.opening is not None:
            more = [self._tokens.opening]
        mask = inner.copy()
        _set(mask, more)
        return mask

    def accept(self, token: int) -> None:
        state = self._states[-1]
        match state.part:
            case "start" if token == self._tokens.opening:
                following = _Stage("thinking")
            case "thinking":
                following = self._thought(state, token)
            case "gap" if state.tokens < MAX_GAP and token in self._tokens.blanks:
                following = state._replace(tokens=state.tokens + 1, fed=None)
            case "call":
                following = self._called(state, token)
            case "done":
                following = state._replace(fed=None)
            case _:
                following = self._said(state if state.part == "text" else _Stage("text"), token)
        self._states.append(following)
        if len(self._states) > 2 * MAX_ROLLBACK:
            del self._states[:MAX_ROLLBACK]

    def rollback(self, n: int) -> None:
        for state in reversed(self._states[len(self._states) - n :]):
            if state.fed is not None:
                state.fed.rollback(1)
        del self._states[len(self._states) - n :]

    def _said(self, state: _Stage, token: int) -> _Stage:
        """A token of the text: of its form where it has one, else a call may begin with it."""
        form = self._form(state)
        if form is not None:
            form.accept(token)
            if self._channels.calls is not None and form.complete:  # the call that had to come
                return _Stage("done" if self._channels.once else "text", fed=form, free=True)
            return state._replace(fed=form)
        return self._next(state, token, "text")

    def _called(self, state: _Stage, token: int) -> _Stage:
        call = state.call
        assert call is not None
        call.accept(token)
        if not call.complete:
            return state._replace(fed=call)
        if self._channels.once:
            return _Stage("done", fed=call)
        return _Stage(state.within, tokens=state.tokens, said=True, fed=call, free=state.free)

    def _next(self, state: _Stage, token: int, channel: Literal["thinking", "text"]) -> _Stage:
        """A free token, with which a call may begin."""
        text = state.tail + self._tokens.pieces[token]
        calls = self._channels.calls
        if calls is None:
            return state._replace(tail=text[-MAX_TAIL:], fed=None)
        found = calls.begun(text, said=state.said, mid_line=state.mid_line, thinking=channel == "thinking")
        if not isinstance(found, int):
            return _Stage("call", tokens=state.tokens, call=found, within=channel, free=state.free)
        cut = max(found, len(text) - MAX_TAIL)
        if cut > 0:
            before, text = text[:cut], text[cut:]
            state = state._replace(said=True, mid_line=not before.endswith(b"\n"))
        return state._replace(tail=text, fed=None)

    def _thought(self, state: _Stage, token: int) -> _Stage:
        close = self._tokens.close
        text = state.tail + self._tokens.pieces[token]
        if close in text[-len(self._tokens.pieces[token]) - len(close) + 1 :]:
            return _Stage("gap")
        forced = state.forced + 1 if self._closes(state) else 0
        following = self._next(state, token, "thinking")
        if following.part == "call":
            return following._replace(tokens=state.tokens + 1)
        return following._replace(tokens=state.tokens + 1, forced=forced)

    def _closes(self, state: _Stage) -> bool:
        """True if the budget is used up."""
        return self._channels.budget is not None and state.tokens >= self._channels.budget

    def _thinking_mask(self, state: _Stage) -> Mask | None:
        tokens = self._tokens
        if self._closes(state):
            mask = np.zeros(tokens.n_words, np.uint32)
            _set(mask, [tokens.closing[min(state.forced, len(tokens.closing) - 1)]])
            return mask
        if self._channels.form is None:
            return None  # a model that ends its answer here wants to end it
        mask = np.full(tokens.n_words, 0xFFFFFFFF, np.uint32)
        for token in (*tokens.ends, *tokens.straddling(state.tail)):
            mask[token // 32] &= np.uint32(~(1 << token % 32) & 0xFFFFFFFF)
        return mask


def _set(mask: Mask, tokens: Collection[int]) -> None:
    for token in tokens:
        mask[token // 32] |= np.uint32(1 << token % 32)
