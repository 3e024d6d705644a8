r"""Cuts texts into words as the expressions of `pre_tokenizers` say, by Python's `re`, which is several times as fast as Oniguruma.

`re` knows no \p{L}, and large sets are slow in it. So each set of an expression becomes a short list: its ASCII characters, and one
symbol for all other characters that are in the same sets. Oniguruma itself says which characters are in a set, when they
first appear: words are the same whatever Unicode either package knows.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from edgellm.tokenizer.byte_pairs import BYTE_OF_LETTER
from edgellm.tokenizer.pre_tokenizers import library_cuts
from edgellm.tokenizer.spans import code_points

SEPARATOR, MARK = "\x80", "\x81"  # stand between words and pieces while expressions cut them; in no set
ALONE = SEPARATOR + MARK + SEPARATOR
UNKNOWN = ord(SEPARATOR)  # in the table of symbols: of a character not yet seen
FIRST_SYMBOL, LAST_SYMBOL = 0x82, 0xFF  # no other character above ASCII is left in a text of symbols
ASCII = "".join(map(chr, range(128)))
REPEATED = 4  # how often pieces come on average, from which it pays to cut each once
AT_ONCE = 8192  # words per call of `re`, which keeps other threads waiting for a millisecond
ONLY_ASCII = re.compile(r"\[(?:[^^\\\[\]&\x80-\U0010ffff]|\\[rnt])+\]", re.DOTALL)  # sets without other characters
TOKEN = re.compile(
    r"(?P<set>\[(?:\\.|[^\[\]\\]|\[(?:\\.|[^\[\]\\])*\])*\]|\\p\{\w+\}|\\[sSd])"
    r"|(?P<group>\((?!\?))|(?P<edge>\\b)|(?P<end>\$)|\\.|.",
    re.DOTALL,
)


class WordCutter:
    """Cuts by one expression after the other: what it matches and what lies between both go to the next one."""

    def __init__(self, expressions: Sequence[str]) -> None:
        self._expressions = tuple(expressions)
        self._sets = tuple(
            dict.fromkeys(name for expression in expressions for token in TOKEN.finditer(expression) for name in _sets_of(token))
        )
        self._members = {name: "".join(sorted(set(ASCII).difference(outside(name, ASCII)))) for name in self._sets}
        self._shapes = self._shapes_of_ascii()
        self._shaped = len(self._expressions) > 1  # one expression alone cuts no piece again
        self._symbols: dict[int, int] = {}  # by the sets that a character is in, a bit for each
        self._table = np.full(0x11_0000, UNKNOWN, np.uint8)  # symbols of characters
        self._table[:128] = list(map(ord, self._shapes))
        self._patterns = self._compiled()
        self._lock = threading.Lock()

    def _shapes_of_ascii(self) -> str:
        """For each character of ASCII the first one that is in the same sets, or itself where an expression names it."""
        named = {token[0] for expression in self._expressions for token in TOKEN.finditer(expression) if not token.lastgroup}
        first: dict[tuple[bool, ...], str] = {}
        sets = [tuple(letter in members for members in self._members.values()) for letter in ASCII]
        return "".join(
            letter if letter in named else first.setdefault(inside, letter) for letter, inside in zip(ASCII, sets, strict=True)
        )

    def words(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """All words of the texts in their order, in lists of some thousand, with an empty word between two texts."""
        text = "".join(texts)
        if text.isascii():
            symbols = text.translate(self._shapes) if self._shaped else text
        else:
            symbols = self._in_symbols(text)
        if len(texts) > 1:
            symbols = ALONE.join(symbols[start:end] for start, end in pairwise(accumulate(map(len, texts), initial=0)))
            text = MARK.join(texts)
        at = 0
        for pieces in _cut(symbols.split(SEPARATOR), self._patterns):
            words = pieces = list(filter(None, pieces))
            if self._shaped or not text.isascii():
                ends = list(accumulate(map(len, pieces), initial=at))
                words, at = [text[start:end] for start, end in pairwise(ends)], ends[-1]
            yield words if len(texts) == 1 else ["" if piece == MARK else word for piece, word in zip(pieces, words, strict=True)]

    def _in_symbols(self, text: str) -> str:
        """`text` with symbols for its characters above ASCII."""
        codes = code_points(text)
        symbols = self._table[codes]
        new = symbols == UNKNOWN
        if new.any():
            with self._lock:
                self._learn(np.array(sorted(set(codes[new].tolist())), np.uint32))  # np.unique would import numpy.ma
            symbols = self._table[codes]
        return symbols.tobytes().decode("latin-1")

    def _learn(self, codes: npt.NDArray[np.uint32]) -> None:
        """Enter sorted characters. Patterns know new symbols before any text can hold them."""
        letters = codes.tobytes().decode("utf-32-le")
        sets = np.zeros(len(codes), np.int64)  # (letters,) a bit for each set
        for bit, name in enumerate(self._sets):
            if not ONLY_ASCII.fullmatch(name):
                inside = np.ones(len(codes), bool)
                inside[np.searchsorted(codes, code_points(outside(name, letters)))] = False
                sets |= inside.astype(np.int64) << bit
        kinds, which = np.unique(sets, return_inverse=True)
        count = len(self._symbols)
        symbols = [self._symbols.setdefault(kind, FIRST_SYMBOL + len(self._symbols)) for kind in kinds.tolist()]
        if len(self._symbols) > count:
            assert FIRST_SYMBOL + len(self._symbols) <= LAST_SYMBOL + 1
            self._patterns = self._compiled()
        self._table[codes] = np.array(symbols, np.uint8)[which]

    def _compiled(self) -> tuple[re.Pattern[str], ...]:
        sets = {}
        for bit, name in enumerate(self._sets):
            members = self._members[name] + "".join(chr(symbol) for kind, symbol in self._symbols.items() if kind >> bit & 1)
            sets[name] = f"[{re.escape(members)}]" if members else "(?!)"
        return tuple(
            re.compile(f"({''.join(_translated(token, sets) for token in TOKEN.finditer(expression))})")
            for expression in self._expressions
        )


class LibraryCutter:
    """Cuts as the pre_tokenizer of a tokenizer.json says, by the tokenizers library. Raises ValueError."""

    def __init__(self, settings: str) -> None:
        self._cuts = library_cuts(json.loads(settings))

    def words(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """All words of the texts in their order, in lists, with an empty word between two texts."""
        for at, text in enumerate(texts):
            pieces = self._cuts.pre_tokenize_str(text)
            words = [bytes(map(BYTE_OF_LETTER.__getitem__, piece)).decode("utf-8", "surrogateescape") for piece, _ in pieces]
            yield ["", *words] if at else words


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
    return rf"(?=[\n{SEPARATOR}{MARK}]|\Z)" if token["end"] else token[0]


def _cut(pieces: list[str], patterns: Sequence[re.Pattern[str]]) -> Iterator[list[str]]:
    """Pieces as the patterns cut them, one after the other. Where most of them come again, each is cut once."""
    if not patterns:
        yield pieces
        return
    first, others = patterns[0], patterns[1:]
    distinct = set(pieces).difference(MARK)
    if len(distinct) <= len(pieces) // REPEATED:
        parts = SEPARATOR.join(map(SEPARATOR.join, _batches(MARK.join(distinct), first))).replace(MARK, ALONE)
        cut = SEPARATOR.join(map(SEPARATOR.join, _cut(parts.split(SEPARATOR), others)))
        known = dict(zip(distinct, cut.split(ALONE), strict=True))
        known[MARK] = MARK
        yield SEPARATOR.join(map(known.__getitem__, pieces)).split(SEPARATOR)
    else:
        for batch in _batches(SEPARATOR.join(pieces), first):
            yield from _cut(batch if len(pieces) == 1 else SEPARATOR.join(batch).split(SEPARATOR), others)


def _batches(symbols: str, pattern: re.Pattern[str]) -> Iterator[list[str]]:
    """The matches of the pattern and the texts between them, in lists of some thousand."""
    while symbols:
        *words, symbols = pattern.split(symbols, AT_ONCE)
        if len(words) < 2 * AT_ONCE:
            words, symbols = [*words, symbols], ""
        yield list(filter(None, words))
