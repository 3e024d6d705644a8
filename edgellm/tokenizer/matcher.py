"""Finds texts of special tokens inside a text: leftmost first, then longest, in time linear in the text."""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST = 1000  # characters; a longer token is never found in a text, only decoded
DEPTH = 120  # nested groups that `re` compiles; real vocabularies need 40


def compile_matcher(texts: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern that matches any of `texts`, the longest at each place; None where there are none.

    The alternatives are folded into a trie: a flat alternation of thousands costs thousands of tries at every "<".
    """
    wanted = sorted({text for text in texts if 0 < len(text) <= LONGEST})
    if not wanted:
        return None
    return re.compile(_fold(wanted, 0, DEPTH), re.DOTALL)


def _fold(texts: list[str], start: int, depth: int) -> str:
    """Pattern of sorted `texts` from column `start` on; all agree before it."""
    common = _common(texts[0], texts[-1], start)
    head = re.escape(texts[0][start:common])
    if len(texts) == 1:
        return head
    if depth == 0:
        return head + "(?:" + "|".join(re.escape(text[common:]) for text in reversed(texts)) + ")"
    optional = len(texts[0]) == common
    branches, rest = [], texts[1:] if optional else texts
    at = 0
    while at < len(rest):
        to = at
        while to < len(rest) and rest[to][common] == rest[at][common]:
            to += 1
        branches.append(_fold(rest[at:to], common, depth - 1))
        at = to
    return head + "(?:" + "|".join(branches) + ")" + ("?" if optional else "")


def _common(first: str, last: str, start: int) -> int:
    """The length of two texts' common prefix; that of a sorted list's ends is common to all between."""
    end = min(len(first), len(last))
    while start < end and first[start] == last[start]:
        start += 1
    return start
