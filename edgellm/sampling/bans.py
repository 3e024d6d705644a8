"""Texts that an answer must not contain: found while it is written, which then returns to the token that they begin with."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence

MAX_BYTES = 200  # of a text: channels can take back 256 tokens
MAX_TRIES = 1000  # at one place of an answer


class Bans:
    """Follows an answer's bytes. Tokens that may be the beginning of a banned text are not for readers yet.

    `stepwise`: the answer has a form, which may leave no way round the token that a text begins with: the last token of the text
    goes first, and one more wherever nothing else can follow.
    """

    def __init__(self, texts: Sequence[str], piece: Callable[[int], bytes], *, stepwise: bool = False) -> None:
        self._stepwise = stepwise
        self._texts, self._piece = [text.encode() for text in texts], piece
        self._longest = max(map(len, self._texts))
        self._data, self._tokens, self._ends = bytearray(), list[int](), list[int]()  # where each token's bytes end
        self._barred: dict[int, set[int]] = {}  # tokens that may not come at a place in the answer

    @property
    def barred(self) -> Collection[int]:
        """Tokens that may not come next."""
        return self._barred.get(len(self._tokens), ())

    @property
    def stuck(self) -> bool:
        """True if too many tokens were tried here."""
        return len(self.barred) > MAX_TRIES

    def push(self, token: int) -> int:
        """How many tokens, this one included, are to be taken back: 0 where they contain no banned text."""
        before = len(self._data)
        self._tokens.append(token)
        self._data += self._piece(token)
        self._ends.append(len(self._data))
        places = [self._data.find(text, max(0, before - self._longest + 1)) for text in self._texts]
        if not (found := [at for at in places if at >= 0]):
            return 0
        first = len(self._tokens) - 1 if self._stepwise else bisect_right(self._ends, min(found))
        return self._back_to(first)

    def retreat(self) -> int:
        """How many tokens are to be taken back where none can follow: the newest, if it may be part of a banned text, else 0."""
        return self._back_to(len(self._tokens) - 1) if self._stepwise and self.pending else 0

    def _back_to(self, first: int) -> int:
        """Bar the token at a place, and forget it with those behind it: so many."""
        n = len(self._tokens) - first
        self._barred = {place: tokens for place, tokens in self._barred.items() if place <= first}
        self._barred.setdefault(first, set()).add(self._tokens[first])
        del self._tokens[first:], self._ends[first:]
        del self._data[self._ends[-1] if self._ends else 0 :]
        return n

    @property
    def pending(self) -> int:
        """How many of the newest tokens may become part of a banned text."""
        for length in range(min(self._longest - 1, len(self._data)), 0, -1):
            end = self._data[-length:]
            if any(text.startswith(end) for text in self._texts):
                return len(self._tokens) - bisect_right(self._ends, len(self._data) - length)
        return 0
