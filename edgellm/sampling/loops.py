"""Finds answers that repeat themselves word for word, for so long that nothing else can be expected of them."""

from __future__ import annotations

from array import array

import numpy as np

EVERY = 64  # tokens between two looks
LONGEST = 512  # tokens of a span that repeats
TIMES, LEAST = 8, 512  # it was repeated so often, and over so many tokens
NEEDLE = 16  # tokens by which places are found where it may have begun


def repeats(ids: array[int], first: int) -> bool:
    """True if the tokens of `ids` from `first` on end in one span, repeated exactly, again and again."""
    n = len(ids) - first
    if n < LEAST:
        return False
    tail = np.array(ids[max(first, len(ids) - TIMES * LONGEST) :], np.int32)
    head = tail[-LONGEST - NEEDLE :]
    windows = np.lib.stride_tricks.sliding_window_view(head[:-1], NEEDLE)
    starts = np.flatnonzero((windows == head[-NEEDLE:]).all(axis=1))
    for start in starts[::-1]:  # the shortest span first
        period = len(head) - NEEDLE - int(start)
        length = max(LEAST, TIMES * period)
        end = tail[-length:]
        if length <= len(tail) and np.array_equal(end[period:], end[:-period]):
            return True
    return False
