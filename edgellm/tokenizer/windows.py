"""Long texts in overlapping windows, for encoders that merge pairs in the order of their ranks: the cost stays linear.

Such merging is local. Neighbours are tokens of a text if and only if merging leaves them so where the two stand alone: nothing else
is merged with them before, and among pairs of one rank the leftmost comes first everywhere. So where two windows share a token at
the same place, the tokens of the first up to it and those of the second from it on are the tokens of both.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

WINDOW = 1 << 14                            # bytes; merging 1 MiB at once takes three times as long per byte
OVERLAP = 64                                # tokens; mostly the first one is shared

Ids = Sequence[int]
Encode = Callable[[str], tuple[Ids, Sequence[int]]]      # ids of a text, and where each token ends in its UTF-8 bytes


def encode_in_windows(text: str, encode: Encode) -> list[int]:
    """The ids that `encode` has for `text`. It is given WINDOW bytes or more at once, unless `text` is shorter."""
    data = text.encode()
    if len(data) < 2 * WINDOW:
        return list(encode(text)[0])
    out, stop = list[int](), _boundary(data, WINDOW)
    ids, ends = _encoded(data, 0, stop, encode)
    while stop < len(data):
        first = max(len(ids) - OVERLAP, 1)
        begin = _boundary(data, ends[first - 1])
        stop = len(data) if len(data) - stop < 2 * WINDOW else _boundary(data, stop + WINDOW)
        more, more_ends = _encoded(data, begin, stop, encode)
        shared = _shared(ids, ends, first, more, more_ends)
        if shared is None:
            return list(encode(text)[0])
        out += ids[: shared[0]]
        ids, ends = more[shared[1] :], more_ends[shared[1] :]
    return [*out, *ids]


def _encoded(data: bytes, begin: int, stop: int, encode: Encode) -> tuple[Ids, list[int]]:
    ids, ends = encode(data[begin:stop].decode())
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
