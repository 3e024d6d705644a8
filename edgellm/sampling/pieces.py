"""The texts of a vocabulary's tokens, searched all at once: a look at each of 150,000 would hold a step up for 100 ms."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.uint32]  # (ceil(n_vocab / 32),): bit i % 32 of word i // 32 is token i
SEPARATOR = b"\x00"  # before each piece
CHUNK = 4096  # pieces


class _Part(NamedTuple):
    """Pieces behind one another; other threads wait while one is searched."""

    data: bytes
    ends: array[int]  # of the pieces


class Pieces(Sequence[bytes]):
    """The bytes of each token."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = tuple(pieces)  # the garbage collector passes over it; of a list it reads each, and holds the GIL
        self.n_words = (len(self._pieces) + 31) // 32  # of a mask

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, token: int) -> bytes:  # type: ignore[override]  # no slices
        return self._pieces[token]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)

    @cached_property
    def _parts(self) -> list[_Part]:
        parts = (self._pieces[at : at + CHUNK] for at in range(0, len(self._pieces), CHUNK))
        return [_Part(SEPARATOR + SEPARATOR.join(part), array("q", accumulate(len(piece) + 1 for piece in part))) for part in parts]

    def having(self, pattern: bytes) -> list[int]:
        """Tokens in which a regular expression is found, ascending; `^` is where a piece begins.

        Without NumPy, which would give the GIL away and take it back at once in each part: a thread that waits for it then waits
        until the end.
        """
        expression, found = re.compile(pattern), list[int]()
        near = re.compile(pattern.replace(b"^", b"(?<=\x00)"))  # also finds what begins behind a zero byte
        for n, part in enumerate(self._parts):
            tokens = sorted({n * CHUNK + bisect_right(part.ends, match.start()) for match in near.finditer(part.data)})
            found += [token for token in tokens if token < len(self) and expression.search(self._pieces[token])]
        return found

    def mask_without(self, tokens: Sequence[int]) -> Mask:
        """All tokens but some."""
        mask, ids = np.full(self.n_words, 0xFFFFFFFF, np.uint32), np.array(tokens, np.uint32)
        np.bitwise_and.at(mask, ids // 32, ~(np.uint32(1) << ids % 32))
        return mask
