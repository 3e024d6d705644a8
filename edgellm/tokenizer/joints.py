"""Cuts long words where no merge can join what stands on both sides: their parts are short, and most of them come again.

A merge joins two neighbours only if its left text ends with the character before the joint and its right one begins with the one
behind it. Where no merge does, the tokens on both sides are those of each side alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from edgellm.tokenizer.merges import Pairs
from edgellm.tokenizer.spans import Spans, code_points

BITS = 22  # of a hash: a table of 512 KiB
LEFT, MIX = np.uint32(0x9E3779B1), np.uint32(0x85EBCA77)
AT_ONCE = 1 << 17  # characters
PARTS = 8192  # in a list
NEWLINE = np.array([ord("\n")], np.uint32)

Codes = npt.NDArray[np.uint32]


class Joints:
    """Pairs of characters between which a merge may join two tokens. A few others share a hash with one: there words stay whole."""

    def __init__(self, pairs: Pairs, tokens: Spans) -> None:
        """`tokens`: the texts that ids of `pairs` stand for. Runs of newlines stay whole, which may be tokens without a merge."""
        data = np.append(tokens.data, np.zeros(4, np.uint8))  # of an empty text, or behind the last character
        first, last = _codes(data, tokens.starts), _codes(data, _last_characters(data, tokens))
        joined = np.zeros(1 << BITS, np.bool_)
        joined[_hashes(NEWLINE, NEWLINE)] = True
        for left, right in pairs.neighbours():
            joined[_hashes(last[left], first[right])] = True
        self._joined = np.packbits(joined, bitorder="little")

    def cut(self, words: Sequence[str]) -> Iterator[list[str]]:
        """The parts of all words in their order, in lists of some thousand; an empty one stays."""
        text, lengths = "".join(words), np.fromiter(map(len, words), np.int64, len(words))
        ends = np.cumsum(lengths)
        is_end = np.zeros(len(text) + 1, np.bool_)
        is_end[0] = is_end[ends] = True
        for at in range(0, len(text) - 1, AT_ONCE):
            codes = code_points(text[at : at + AT_ONCE + 1])
            hashes = _hashes(codes[:-1], codes[1:])
            is_end[at + 1 : at + len(codes)] |= self._joined[hashes >> 3] >> (hashes & 7).astype(np.uint8) & 1 == 0
        places = np.flatnonzero(is_end)
        if not lengths.all():
            places = np.sort(np.concatenate([places, ends[lengths == 0]]))
        for first in range(0, len(places) - 1, PARTS):
            yield [text[start:end] for start, end in pairwise(places[first : first + PARTS + 1].tolist())]


def _hashes(left: Codes, right: Codes) -> Codes:
    hashes: Codes = (left * LEFT ^ right) * MIX >> np.uint32(32 - BITS)
    return hashes


def _last_characters(data: npt.NDArray[np.uint8], texts: Spans) -> npt.NDArray[np.int64]:
    """Where in `data` the last character of each begins."""
    at = texts.starts + np.maximum(texts.lengths - 1, 0)
    for _ in range(3):
        at = at - ((data[at] & 0xC0) == 0x80)
    return at


def _codes(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> Codes:
    """The characters of UTF-8 that begin at these places."""
    lead = data[at].astype(np.uint32)
    n_more = (lead >= 0xC0).astype(np.uint32) + (lead >= 0xE0) + (lead >= 0xF0)
    codes = np.where(n_more > 0, lead & 0x3F >> n_more, lead)
    for i in (1, 2, 3):
        codes = np.where(n_more >= i, codes << 6 | data[at + i] & 0x3F, codes)
    return codes
