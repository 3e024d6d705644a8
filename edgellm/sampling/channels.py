"""Keeps an answer within what its channels accept: thinking and text are free, a form holds in the text, a grammar in each call."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import numpy as np

from edgellm.sampling.constraint import TokenConstraint
from edgellm.sampling.pieces import Mask, Pieces

MAX_ROLLBACK = 256  # tokens
MAX_GAP = 4  # tokens of white space between thinking and answer
MAX_TAIL = 600  # bytes in which the beginning of a call is looked for


class Headers(NamedTuple):
    """Of messages that are channels, as gpt-oss writes them: how the next begins, one of thinking and one of text, how one ends."""

    start: bytes  # the prompt has it for the first one
    thinking: bytes
    said: bytes
    end: bytes
    ending: tuple[int, ...]  # the same as tokens
    starting: tuple[int, ...]


class ChannelTokens:
    """The tokens of a vocabulary as the constraint needs them; the answers of a model share them."""

    def __init__(
        self,
        pieces: Pieces,
        *,
        opening: int | None = None,
        closing: Sequence[int] = (),
        close: bytes = b"",
        ends: Collection[int] = (),
        headers: Headers | None = None,
    ) -> None:
        """`pieces`: of each token, as text. `opening`: the token that opens thinking, where there is one. `closing`: the closing
        marker `close` as tokens. `ends`: tokens that end an answer. `headers`: of messages, where channels are messages."""
        self.pieces, self.opening, self.closing, self.close, self.ends = pieces, opening, tuple(closing), close, ends
        self.headers = headers
        self.n_words = pieces.n_words
        self._leading: dict[frozenset[bytes], list[int]] = {}
        self._straddling: dict[int, list[int]] = {}  # length of the marker's part that is there -> tokens

    @cached_property
    def blanks(self) -> frozenset[int]:
        """Tokens of white space."""
        return frozenset(token for token in self.pieces.having(rb"^[ \t\r\n]") if not self.pieces[token].strip(b" \t\r\n"))

    def leading_to(self, rests: frozenset[bytes]) -> list[int]:
        """Tokens with which one of some texts begins."""
        if rests not in self._leading:
            begins = {rest[:n] for rest in rests for n in range(1, len(rest) + 1)}
            self._leading[rests] = [token for token, piece in enumerate(self.pieces) if piece in begins]
        return self._leading[rests]

    def straddling(self, tail: bytes) -> list[int]:
        """Tokens that, after `tail`, would close the thinking and begin the answer at once."""
        close = self.close
        there = next((n for n in range(len(close) - 1, 0, -1) if tail.endswith(close[:n])), 0)
        if there not in self._straddling:
            rest, pieces = close[there:], self.pieces
            whole = [token for token in pieces.having(re.escape(close)) if pieces[token].partition(close)[2].strip()]
            ended = (
                [token for token in pieces.having(b"^" + re.escape(rest)) if pieces[token][len(rest) :].strip()] if there else []
            )
            self._straddling[there] = [*ended, *whole]
        return self._straddling[there]


class Calls(Protocol):
    """How the calls of an answer begin."""

    @property
    def addresses(self) -> Sequence[bytes]:
        """How headers of messages that are calls begin."""
        ...

    def begun(self, text: bytes, *, said: bool, mid_line: bool, thinking: bool) -> TokenConstraint | int:
        """The rest of the call that has begun at the end of a text, behind what is there of it; else of how many bytes at its
        beginning no call can be made any more. `said`: something came before the text; `mid_line`: also on its first line."""
        ...


class _Stage(NamedTuple):
    part: Literal["start", "thinking", "gap", "text", "call", "done"]
    tail: bytes = b""  # of the channel's text, in which a mark may begin
    tokens: int = 0  # of thinking, then of the gap
    thinks: bool = True  # in the channel "thinking": this message is one of thinking
    header: bytes | None = None  # of a message, as far as it is written
    forced: int = 0  # tokens of the message and the closing marker that were forced
    said: bool = False  # something stands before the tail
    mid_line: bool = False  # also on its first line
    call: TokenConstraint | None = None  # of the call that is being written
    may_be: tuple[TokenConstraint, ...] = ()  # what the text still fits: the form, the first call; free without any
    within: Literal["thinking", "text"] = "text"  # the channel that the call stands in
    fed: tuple[TokenConstraint, ...] = ()  # those that have taken the newest token


@dataclass(frozen=True, slots=True)
class Channels:
    """The tokens that an answer's channels accept.

    `form`: of the text. `first`: the call that the text may be instead, or without a form must be; text behind it is free.
    `inside`: the prompt has opened the thinking; `may_open`: the answer may. `budget`: tokens of thinking, then it is closed,
    behind the tokens of `message`.
    `once`: nothing follows a call.
    """

    tokens: ChannelTokens
    form: TokenConstraint | None = None
    calls: Calls | None = None
    first: TokenConstraint | None = None
    inside: bool = False
    may_open: bool = False
    budget: int | None = None
    message: tuple[int, ...] = ()
    once: bool = False


class ChannelConstraint:
    """Follows the channels of an answer: `start` (may still open the thinking), `thinking`, `gap`, `text`, `call`, `done`.

    A form begins to hold behind the thinking, which then may not end the answer; a token that closes it ends with the marker or
    in white space, so that the form begins with a token of its own. Calls may begin in the thinking and in the text. A call that is
    complete ends with the first token that its grammar does not take: closers may be missing.
    """

    def __init__(self, channels: Channels) -> None:
        self._channels, self._tokens = channels, channels.tokens
        may_open = channels.may_open and self._tokens.opening is not None
        wanted = tuple(each for each in (channels.form, channels.first) if each is not None)
        part: Literal["start", "thinking", "text"] = "thinking" if channels.inside else "start" if may_open else "text"
        headers = self._tokens.headers
        self._states = [_Stage(part, may_be=wanted, thinks=headers is None, header=headers.start if headers else None)]

    @property
    def complete(self) -> bool:
        state, form = self._states[-1], self._channels.form
        formed = state.part in ("gap", "text") and form in state.may_be
        return state.part == "done" or (formed and form is not None and form.complete)

    @property
    def accepting(self) -> bool:
        state = self._states[-1]
        if state.part == "call" and state.call is not None:
            return state.call.accepting
        return state.part != "thinking" and (not state.may_be or any(each.accepting for each in state.may_be))

    def takes(self, token: int) -> bool:
        """True if `token` may come next."""
        mask = self.mask()
        return mask is None or bool(mask[token // 32] >> np.uint32(token % 32) & np.uint32(1))

    def mask(self) -> Mask | None:
        state = self._states[-1]
        if state.part == "call" and state.call is not None:
            return self._call_mask(state, state.call)
        if state.part == "done":
            mask = np.zeros(self._tokens.n_words, np.uint32)
            _set(mask, self._tokens.ends)
            return mask
        if state.part == "thinking":
            return self._thinking_mask(state)
        masks = [each.mask() for each in state.may_be]
        inner = None
        for each in masks:
            inner = each if inner is None or each is None else inner | each
        if inner is None or state.part == "text":
            return inner
        more: Collection[int] = self._tokens.blanks if state.part == "gap" and state.tokens < MAX_GAP else ()
        if state.part == "start" and self._tokens.opening is not None:
            more = [self._tokens.opening]
        mask = inner.copy()
        _set(mask, more)
        return mask

    def _call_mask(self, state: _Stage, call: TokenConstraint) -> Mask | None:
        """The tokens that continue a call, or follow it once it is complete."""
        if self._channels.once or not call.accepting:
            return call.mask()
        others = self._thinking_mask(state._replace(may_be=())) if state.within == "thinking" else None
        mask = call.mask() if others is not None else None
        return others if others is None or mask is None else mask | others

    def accept(self, token: int) -> None:
        state = self._states[-1]
        match state.part:
            case "start" if token == self._tokens.opening:
                following = state._replace(part="thinking")
            case "thinking":
                following = self._thought(state, token)
            case "gap" if state.tokens < MAX_GAP and token in self._tokens.blanks:
                following = state._replace(tokens=state.tokens + 1, fed=())
            case "call":
                following = self._called(state, token)
            case "done":
                following = state._replace(fed=())
            case _:
                following = self._said(state if state.part == "text" else _Stage("text", may_be=state.may_be), token)
        self._states.append(following)
        if len(self._states) > 2 * MAX_ROLLBACK:
            del self._states[:MAX_ROLLBACK]

    def rollback(self, n: int) -> None:
        for state in reversed(self._states[len(self._states) - n :]):
            for each in state.fed:
                each.rollback(1)
        del self._states[len(self._states) - n :]

    def _said(self, state: _Stage, token: int) -> _Stage:
        """A token of the text: of its form or of the first call where it may be one, else a call may begin with it."""
        if not state.may_be:
            return self._next(state, token, "text")
        fitting = state.may_be
        if len(fitting) > 1:
            fitting = tuple(each for each in fitting if each.takes(token)) or fitting
        if fitting == (self._channels.first,):
            return self._called(_Stage("call", call=self._channels.first), token)
        for each in fitting:
            each.accept(token)
        return state._replace(may_be=fitting, fed=fitting)

    def _called(self, state: _Stage, token: int) -> _Stage:
        call = state.call
        assert call is not None
        if call.accepting and not self._channels.once and not call.takes(token):
            behind = _Stage(state.within, tokens=state.tokens, said=True)
            return self._thought(behind, token) if state.within == "thinking" else self._next(behind, token, "text")
        call.accept(token)
        if not call.complete:
            return state._replace(fed=(call,))
        if self._channels.once:
            return _Stage("done", fed=(call,))
        return _Stage(state.within, tokens=state.tokens, said=True, fed=(call,))

    def _next(self, state: _Stage, token: int, channel: Literal["thinking", "text"]) -> _Stage:
        """A free token, with which a call may begin."""
        text = state.tail + self._tokens.pieces[token]
        calls = self._channels.calls
        if calls is None:
            return state._replace(tail=text[-MAX_TAIL:], fed=())
        thinks = channel == "thinking" and self._tokens.headers is None
        found = calls.begun(text, said=state.said, mid_line=state.mid_line, thinking=thinks)
        if not isinstance(found, int):
            return _Stage("call", tokens=state.tokens, call=found, within=channel, may_be=state.may_be)
        cut = max(found, len(text) - MAX_TAIL)
        if cut > 0:
            before, text = text[:cut], text[cut:]
            state = state._replace(said=True, mid_line=not before.endswith(b"\n"))
        return state._replace(tail=text, fed=())

    def _thought(self, state: _Stage, token: int) -> _Stage:
        close = self._tokens.close
        text = state.tail + self._tokens.pieces[token]
        if close in text[-len(self._tokens.pieces[token]) - len(close) + 1 :]:
            return _Stage("gap", tokens=0 if self._tokens.headers is None else MAX_GAP, may_be=state.may_be)
        forced = state.forced + 1 if self._closes(state) else 0
        following = self._next(state, token, "thinking")._replace(tokens=state.tokens + state.thinks)
        if following.part == "call":
            return following
        return self._headed(following._replace(forced=forced), state, token)

    def _headed(self, following: _Stage, state: _Stage, token: int) -> _Stage:
        """Where a message begins or ends."""
        headers, piece = self._tokens.headers, self._tokens.pieces[token]
        if headers is None:
            return following
        if (state.tail + piece).endswith(headers.end):
            return following._replace(thinks=False, header=b"")
        thinks = state.thinks or (state.tail + piece).endswith(headers.thinking)
        header = state.header + piece if state.header is not None else None
        return following._replace(thinks=thinks, header=None if header in self._headers else header)

    @cached_property
    def _headers(self) -> frozenset[bytes]:
        """Of the messages that may come where a form or a call must."""
        headers, channels = self._tokens.headers, self._channels
        assert headers is not None
        kinds = [headers.thinking] * (channels.budget != 0) + [self._tokens.close] * (channels.form is not None)
        if channels.calls is not None:
            kinds += [headers.said, *channels.calls.addresses]
        return frozenset(headers.start + kind for kind in kinds)

    @cached_property
    def _closing(self) -> Sequence[int]:
        """The tokens that close the thinking, the message before them; of a message of thinking where a call may follow it."""
        headers, message = self._tokens.headers, self._channels.message
        if headers is None:
            return (*message, *self._tokens.closing)
        ending = (*message, *headers.ending)
        return ending if self._channels.calls is not None else (*ending, *headers.starting, *self._tokens.closing)

    def _closes(self, state: _Stage) -> bool:
        """True if the budget is used up."""
        if self._channels.budget is None or state.tokens < self._channels.budget:
            return False
        return state.thinks or 0 < state.forced < len(self._closing)

    def _thinking_mask(self, state: _Stage) -> Mask | None:
        tokens = self._tokens
        if self._closes(state):
            mask = np.zeros(tokens.n_words, np.uint32)
            _set(mask, [self._closing[min(state.forced, len(self._closing) - 1)]])
            return mask
        if not state.may_be:
            return None  # a model that ends its answer here wants to end it
        if (written := state.header) is not None:
            mask = np.zeros(tokens.n_words, np.uint32)
            rests = frozenset(header[len(written) :] for header in self._headers if header.startswith(written))
            _set(mask, tokens.leading_to(rests))
            return mask if mask.any() else None
        mask = np.full(tokens.n_words, 0xFFFFFFFF, np.uint32)
        for token in (*tokens.ends, *tokens.straddling(state.tail)):
            mask[token // 32] &= np.uint32(~(1 << token % 32) & 0xFFFFFFFF)
        return mask


def _set(mask: Mask, tokens: Collection[int]) -> None:
    for token in tokens:
        mask[token // 32] |= np.uint32(1 << token % 32)
