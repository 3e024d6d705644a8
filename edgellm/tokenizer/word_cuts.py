r"""Cuts texts into words as the expressions of `pre_tokenizers` say, by Python's `re`, which is several times as fast as Oniguruma.

`re` knows no \p{L}, and large sets are slow in it. So each set of an expression becomes a short list: its ASCII characters, and one
symbol for all other characters that are in the same sets. Oniguruma itself says which characters are in a set, when they
first appear: words are the same whatever Unicode either package knows.
"""
from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise, repeat

import numpy as np

SEPARATOR = "\x80"                          # stands between words while later expressions cut them; in no set
FIRST_SYMBOL = 0x81                         # no other character above ASCII is left in a text of symbols
ASCII = "".join(map(chr, range(128)))
AT_ONCE = 8192                              # words per call of `re`, which keeps other threads waiting for a millisecond
MAX_KNOWN = 30_000                          # characters whose symbols are kept: 4 MB
TOKEN = re.compile(r"(?P<set>\[(?:\\.|[^\[\]\\]|\[(?:\\.|[^\[\]\\])*\])*\]|\\p\{\w+\}|\\[sSd])"
                   r"|(?P<group>\((?!\?))|(?P<edge>\\b)|(?P<end>\$)|\\.|.", re.DOTALL)


class WordCutter:
    """Cuts by one expression after the other: what it matches and what lies between both go to the next one."""

    def __init__(self, expressions: Sequence[str]) -> None:
        self._expressions = tuple(expressions)
        self._sets = tuple(dict.fromkeys(
            name for expression in expressions for token in TOKEN.finditer(expression) for name in _sets_of(token)))
        self._members = {name: re.escape("".join(sorted(set(ASCII).difference(outside(name, ASCII))))) for name in self._sets}
        self._symbols: dict[int, str] = {}           # by the sets that a character is in, a bit for each
        self._known: dict[int, str] = {}             # symbols of characters
        self._patterns = self._compiled()
        self._lock = threading.Lock()

    def words(self, text: str) -> Iterator[list[str]]:
        """All words of `text` in their order, in lists of some thousand."""
        symbols = text if text.isascii() else text.translate(self._table(text))
        at = 0
        for batch in _cut(symbols, self._patterns):
            words = list(filter(None, batch.split(SEPARATOR)))
            if symbols is not text:
                ends = list(accumulate(map(len, words), initial=at))
                words, at = [text[start:end] for start, end in pairwise(ends)], ends[-1]
            yield words

    def _table(self, text: str) -> dict[int, str]:
        """Symbols for the characters of `text` above ASCII."""
        letters = set(text).difference(ASCII)
        new = "".join(sorted(letter for letter in letters if ord(letter) not in self._known))
        if not new:
            return self._known
        with self._lock:
            if len(self._known) + len(new) > MAX_KNOWN:
                return self._learnt("".join(sorted(letters)))
            self._known.update(self._learnt(new))
        return self._known

    def _learnt(self, letters: str) -> dict[int, str]:
        """Symbols for sorted letters. Patterns know new ones before any text can hold them."""
        codes = _codes(letters)
        sets = np.zeros(len(codes), np.int64)        # (letters,) a bit for each set
        for bit, name in enumerate(self._sets):
            inside = np.ones(len(codes), bool)
            inside[np.searchsorted(codes, _codes(outside(name, letters)))] = False
            sets |= inside.astype(np.int64) << bit
        kinds, which = np.unique(sets, return_inverse=True)
        count = len(self._symbols)
        symbols = [self._symbols.setdefault(kind, chr(FIRST_SYMBOL + len(self._symbols))) for kind in kinds.tolist()]
        if len(self._symbols) > count:
            self._patterns = self._compiled()
        return {code: symbols[kind] for code, kind in zip(codes.tolist(), which.tolist(), strict=True)}

    def _compiled(self) -> tuple[re.Pattern[str], ...]:
        sets = {}
        for bit, name in enumerate(self._sets):
            members = self._members[name] + "".join(symbol for kind, symbol in self._symbols.items() if kind >> bit & 1)
            sets[name] = f"[{members}]" if members else "(?!)"
        return tuple(re.compile(f"({''.join(_translated(token, sets) for token in TOKEN.finditer(expression))})")
                     for expression in self._expressions)


def outside(name: str, letters: str) -> str:
    """Those of sorted `letters` that Oniguruma's set `name` lacks."""
    from tokenizers import NormalizedString, Regex

    return "".join(part.normalized for part in NormalizedString(letters).split(Regex(f"{name}+"), "removed"))


def _sets_of(token: re.Match[str]) -> tuple[str, ...]:
    return (token[0],) if token["set"] else (r"\w",) if token["edge"] else ()


def _translated(token: re.Match[str], sets: dict[str, str]) -> str:
    """A part of an expression in `re`'s terms: a set, the start of a group, the edge of a word, the end of a line."""
    if token["set"]:
        return sets[token[0]]
    if token["group"]:
        return "(?:"
    if token["edge"]:
        word = sets[r"\w"]
        return f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))"
    return rf"(?=[\n{SEPARATOR}]|\Z)" if token["end"] else token[0]


def _cut(symbols: str, patterns: Sequence[re.Pattern[str]]) -> Iterable[str]:
    """Symbols with separators where one of the patterns starts or ends, long ones in several texts."""
    texts: Iterable[str] = [symbols]
    for pattern in patterns:
        if len(symbols) > AT_ONCE:
            texts = chain.from_iterable(map(_batches, texts, repeat(pattern)))
        else:
            texts = [SEPARATOR.join(pattern.split(text)) for text in texts]
    return texts


def _batches(symbols: str, pattern: re.Pattern[str]) -> Iterator[str]:
    while symbols:
        *words, symbols = pattern.split(symbols, AT_ONCE)
        if len(words) < 2 * AT_ONCE:
            words, symbols = [*words, symbols], ""
        yield SEPARATOR.join(words)


def _codes(letters: str) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return np.frombuffer(letters.encode("utf-32-le"), np.uint32)
