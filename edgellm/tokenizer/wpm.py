"""WordPiece vocabularies (BERT and its kin): words of a normalised text, cut greedily into the longest known tokens."""
from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgellm.tokenizer.prefixes import Prefixes
from edgellm.tokenizer.spm import SPACE
from edgellm.tokenizer.vocabulary import Vocabulary, stood_in

NO_TOKEN = -1
# Ranges that BERT's normaliser takes for Chinese characters, each a word of its own.
CHINESE = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
           (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


@dataclass(frozen=True, slots=True)
class WpmOptions:
    """BertNormalizer's options: lower case, and accents taken off."""

    lowercase: bool = True
    strip_accents: bool = True


class WpmEncoder:
    """Greedy longest match. Lossy: case, accents and runs of white space are gone after decoding."""

    space_prefix = True                     # decoding drops the first word's space; encoding needs none before a text

    def __init__(self, vocabulary: Vocabulary, options: WpmOptions) -> None:
        self.vocabulary, self.options = vocabulary, options
        self._ids = {text: token for text, token in vocabulary.ids.items() if token not in vocabulary.control}
        self._prefixes = Prefixes(self._ids)

    def prepare(self) -> None:
        """Nothing to build."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        known: dict[str, list[int]] = {}
        return [self._encode(text, known) for text in texts]

    def _encode(self, text: str, known: dict[str, list[int]]) -> list[int]:
        out: list[int] = []
        for word in self._words(text):
            if word not in known:
                known[word] = self._pieces(SPACE + word)
            out += known[word]
        return out

    def piece(self, token: int) -> bytes:
        return self.vocabulary.texts[token].replace(SPACE, " ").encode("utf-8", "surrogateescape")

    def _pieces(self, word: str) -> list[int]:
        out, at = [], 0
        while at < len(word):
            for length in self._prefixes.lengths(word, at):
                token = self._ids.get(word[at:at + length]) if at + length <= len(word) else None
                if token is not None:
                    break
            else:                            # a word with one unknown part is unknown as a whole
                return stood_in([NO_TOKEN], {NO_TOKEN: self.vocabulary.special.unknown}, self.vocabulary.file)
            out.append(token)
            at += length
        return out

    def _words(self, text: str) -> Iterator[str]:
        """Words between white space; punctuation and Chinese characters stand alone."""
        word = ""
        for letter, alone, blank in map(self._classify, self._normalised(text)):
            if blank or alone:
                if word:
                    yield word
                word = ""
            if alone:
                yield letter
            elif not blank:
                word += letter
        if word:
            yield word

    def _normalised(self, text: str) -> str:
        if self.options.strip_accents:
            text = unicodedata.normalize("NFD", text)
        return text

    def _classify(self, letter: str) -> tuple[str, bool, bool]:
        """(what is left of the letter, stands alone, is white space); control characters and accents vanish."""
        if letter.isascii():
            if letter.isalnum():
                return (letter.lower() if self.options.lowercase else letter), False, False
            if letter in " \t\n\r":
                return "", False, True
            return (letter, True, False) if letter.isprintable() else ("", False, False)
        category, code = unicodedata.category(letter), ord(letter)
        if category[0] == "Z":
            return "", False, True
        if category in ("Cc", "Cf", "Co", "Cs") or code == 0xFFFD or (category == "Mn" and self.options.strip_accents):
            return "", False, False
        alone = category[0] == "P" or any(first <= code <= last for first, last in CHINESE)
        return (letter.lower() if self.options.lowercase else letter), alone, False
