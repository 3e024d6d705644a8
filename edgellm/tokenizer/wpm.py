"""WordPiece vocabularies (BERT and its kin): words of a normalised text, cut greedily into the longest known tokens."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from edgellm.tokenizer.encoders import Spelling
from edgellm.tokenizer.spm import SPACE
from edgellm.tokenizer.trie import NO_CODE, Trie, codes_of
from edgellm.tokenizer.vocabulary import Vocabulary, stood_in

NO_TOKEN = -1
NO_PIECE = "\uf8ff"  # for a visible space of the text, which is no beginning of a word
MAX_WORD = 100  # characters of a word that is cut: BERT's
MAX_KNOWN = 30_000  # characters that are kept: 4 MB
# Ranges that BERT's normaliser takes for Chinese characters, each a word of its own.
CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


@dataclass(frozen=True, slots=True)
class WpmOptions:
    """BertNormalizer's options: lower case, and accents taken off; and how many characters a word may have at most."""

    lowercase: bool = True
    strip_accents: bool = True
    max_word: int = MAX_WORD


class Letters(dict[int, str]):
    """Normalised characters, for `str.translate`: with blanks around those that stand alone, nothing of control characters."""

    def __init__(self, options: WpmOptions) -> None:
        self._options = options

    def __missing__(self, code: int) -> str:
        letters = unicodedata.normalize("NFD", chr(code)) if self._options.strip_accents else chr(code)
        left = "".join(map(self._left, letters))
        if len(self) < MAX_KNOWN:
            self[code] = left
        return left

    def _left(self, letter: str) -> str:
        cased = letter.lower() if self._options.lowercase else letter
        if letter.isascii():
            if letter.isalnum():
                return cased
            if letter in " \t\n\r":
                return " "
            return f" {letter} " if letter.isprintable() else ""
        category, code = unicodedata.category(letter), ord(letter)
        if category[0] == "Z":
            return " "
        if category in ("Cc", "Cf", "Co", "Cs") or code == 0xFFFD or (category == "Mn" and self._options.strip_accents):
            return ""
        alone = category[0] == "P" or any(first <= code <= last for first, last in CHINESE)
        return f" {cased} " if alone else cased


class WpmEncoder:
    """Greedy longest match. Lossy: case, accents and runs of white space are gone after decoding."""

    spelling = Spelling(space=SPACE)
    space_prefix = True  # decoding drops the first word's space; encoding needs none before a text

    def __init__(self, vocabulary: Vocabulary, options: WpmOptions) -> None:
        self.vocabulary, self._letters, self._longest = vocabulary, Letters(options), options.max_word
        self._trie: Trie | None = None
        self._lock = threading.Lock()

    def prepare(self) -> None:
        with self._lock:
            if self._trie is None:
                hidden = self.vocabulary.control | self.vocabulary.texts.shadowed.keys()
                self._trie = Trie({text: token for token, text in enumerate(self.vocabulary.texts) if token not in hidden})

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if self._trie is None:
            self.prepare()
        known: dict[str, Sequence[int]] = {}
        out = []
        for text in texts:
            words = list(filter(None, text.translate(self._letters).split(" ")))
            new = list(set(words).difference(known))
            known.update(zip(new, self._pieces(new), strict=True))
            out.append(list(chain.from_iterable(map(known.__getitem__, words))))
        return out

    def _pieces(self, words: list[str]) -> Iterator[Sequence[int]]:
        """Ids of words; of one with an unknown part, or that is too long, only the unknown token."""
        assert self._trie is not None
        ends = np.cumsum([len(word) + 2 for word in words], dtype=np.int64)
        codes = codes_of("".join(f"{SPACE}{word.replace(SPACE, NO_PIECE)} " for word in words))
        codes[ends - 1] = NO_CODE
        ids, lengths = self._trie.longest(codes)
        at = 0
        for end in ends.tolist():
            out, short = [], end - at - 2 <= self._longest
            while short and at < end - 1 and lengths[at]:
                out.append(ids[at])
                at += lengths[at]
            if at < end - 1:
                out = stood_in([NO_TOKEN], {NO_TOKEN: self.vocabulary.special.unknown}, self.vocabulary.file)
            yield tuple(out)
            at = end
