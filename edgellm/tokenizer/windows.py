"""Long texts in overlapping windows, for encoders that merge pairs in the order of their ranks: the cost stays linear.

Such merging is local. Neighbours are tokens of a text if and only if merging leaves them so where the two stand alone: nothing else
is merged with them before, and among pairs of one rank the leftmost comes first everywhere. So where two windows share a token at
the same place, the tokens of the first up to it and those of the second from it on are the tokens of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

WINDOW = 1 << 14  # bytes; merging 1 MiB at once takes three times as long per byte
OVERLAP = 64  # tokens; mostly the first one is shared

Ids = Sequence[int]
Tokens = tuple[Ids, Sequence[int]]  # ids, and where each token ends
Encode = Callable[[str], Tokens]  # of a text, ends in its UTF-8 bytes


def encode_in_windows(text: str, encode: Encode) -> list[int]:
    """The ids that `encode` has for `text`. It is given WINDOW bytes or more at once, unless `text` is shorter."""
    data = text.encode()
    return in_windows(len(data), lambda begin, end: encode(data[begin:end].decode()), lambda at: _boundary(data, at))


def in_windows(n: int, encode: Callable[[int, int], Tokens], boundary: Callable[[int], int] = int) -> list[int]:
    """The ids of a sequence of n, of which `encode` has the tokens from one place to another, and where each ends from the first.

    `boundary`: the first place from one on where a window may begin or end.
    """
    if n < 2 * WINDOW:
        return list(encode(0, n)[0])
    out, stop = list[int](), boundary(WINDOW)
    ids, ends = _encoded(0, stop, encode)
    while stop < n:
        first = max(len(ids) - OVERLAP, 1)
        begin = boundary(ends[first - 1])
        stop = n if n - stop < 2 * WINDOW else boundary(stop + WINDOW)
        more, more_ends = _encoded(begin, stop, encode)
        shared = _shared(ids, ends, first, more, more_ends)
        if shared is None:
            return list(encode(0, n)[0])
        out += ids[: shared[0]]
        ids, ends = more[shared[1] :], more_ends[shared[1] :]
    return [*out, *ids]


def _encoded(begin: int, stop: int, encode: Callable[[int, int], Tokens]) -> tuple[Ids, list[int]]:
    ids, ends = encode(begin, stop)
    return ids, [begin + end for end in ends]


def _shared(ids: Ids, ends: Sequence[int], first: int, more: Ids, more_ends: Sequence[int]) -> tuple[int, int] | None:
    """Where in `ids`, from `first` on, and where in `more` the same token stands at the same place of the text."""
    places = {(ends[at - 1], ends[at], ids[at]): at for at in range(first, len(ids))}
    for at in range(1, len(more)):
        found = places.get((more_ends[at - 1], more_ends[at], more[at]))
        if found is not None:
            return found, at
        if more_ends[at] > ends[-1]:
            break
    return None


def _boundary(data: bytes, at: int) -> int:
    """The first place from `at` on where a character of UTF-8 begins."""
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return at
