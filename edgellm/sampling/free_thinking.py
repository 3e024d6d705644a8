"""Thinking before a constrained answer stays free, and may be given a number of tokens after which it is closed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from edgellm.sampling.constraint import Mask, TokenConstraint

MAX_ROLLBACK = 256  # tokens
MAX_GAP = 4  # tokens of white space between thinking and answer


class ThinkingTokens:
    """What the constraint must know of a vocabulary; the answers of a model share it."""

    def __init__(
        self, pieces: Sequence[bytes], *, opening: int | None, closing: Sequence[int], close: bytes, ends: Collection[int]
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


@dataclass(frozen=True, slots=True)
class _State:
    part: Literal["start", "thinking", "gap", "answer"]
    tail: bytes = b""  # of the thinking, as long as the closing marker at most
    count: int = 0  # tokens of thinking, then of the gap
    forced: int = 0  # tokens of the closing marker that were forced


ANSWER = _State("answer")


class FreeThinking:
    """A constraint that begins to hold behind the thinking: `start` (may still open it), `thinking`, `gap`, `answer`.

    Thinking may not end the answer, and is closed after `budget` tokens. A token that closes it ends with the marker or in white
    space, so that the answer begins with a token of its own.
    """

    def __init__(
        self, inner: TokenConstraint | None, tokens: ThinkingTokens, *, inside: bool, may_open: bool, budget: int | None
    ) -> None:
        self._inner, self._tokens, self._budget = inner, tokens, budget
        self._may_open = may_open and tokens.opening is not None
        self._states = [_State("thinking" if inside else "start" if self._may_open else "answer")]

    @property
    def complete(self) -> bool:
        state = self._states[-1]
        return state.part in ("gap", "answer") and self._inner is not None and self._inner.complete

    def mask(self) -> Mask | None:
        state = self._states[-1]
        if state.part == "thinking":
            return self._thinking_mask(state)
        inner = self._inner.mask() if self._inner is not None else None
        if inner is None or state.part == "answer":
            return inner
        more: Collection[int] = self._tokens.blanks if state.part == "gap" and state.count < MAX_GAP else ()
        if state.part == "start" and self._tokens.opening is not None:
            more = [self._tokens.opening]
        mask = inner.copy()
        _set(mask, more)
        return mask

    def accept(self, token: int) -> None:
        state = self._states[-1]
        match state.part:
            case "start" if token == self._tokens.opening:
                following = _State("thinking")
            case "thinking":
                following = self._thought(state, token)
            case "gap" if state.count < MAX_GAP and token in self._tokens.blanks:
                following = replace(state, count=state.count + 1)
            case _:
                following = ANSWER
                if self._inner is not None:
                    self._inner.accept(token)
        self._states.append(following)
        if len(self._states) > 2 * MAX_ROLLBACK:
            del self._states[:MAX_ROLLBACK]

    def rollback(self, n: int) -> None:
        answered = sum(state.part == "answer" for state in self._states[len(self._states) - n :])
        if answered and self._inner is not None:
            self._inner.rollback(answered)
        del self._states[len(self._states) - n :]

    def _thought(self, state: _State, token: int) -> _State:
        close = self._tokens.close
        text = state.tail + self._tokens.pieces[token]
        if close in text:
            return _State("gap")
        forced = state.forced + 1 if self._closes(state) else 0
        return _State("thinking", text[max(0, len(text) - len(close) + 1) :], state.count + 1, forced)

    def _closes(self, state: _State) -> bool:
        """Whether the budget is used up."""
        return self._budget is not None and state.count >= self._budget

    def _thinking_mask(self, state: _State) -> Mask:
        tokens = self._tokens
        if self._closes(state):
            mask = np.zeros(tokens.n_words, np.uint32)
            _set(mask, [tokens.closing[min(state.forced, len(tokens.closing) - 1)]])
            return mask
        mask = np.full(tokens.n_words, 0xFFFFFFFF, np.uint32)
        barred = list(tokens.ends)
        if self._inner is not None:
            barred += tokens.straddling(state.tail)
        for token in barred:
            mask[token // 32] &= np.uint32(~(1 << token % 32) & 0xFFFFFFFF)
        return mask


def _set(mask: Mask, tokens: Collection[int]) -> None:
    for token in tokens:
        mask[token // 32] |= np.uint32(1 << token % 32)
