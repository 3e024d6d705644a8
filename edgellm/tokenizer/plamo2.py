"""PLaMo 2 vocabularies: the cut of a text into tokens whose scores add up highest, with bytes for what no token covers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from edgellm.errors import BadVocab
from edgellm.tokenizer.encoders import Spelling
from edgellm.tokenizer.vocabulary import TokenType, Vocabulary

HEAD = 2  # letters of a key by which lengths are kept apart
UNKNOWN_COST = 10_000_000  # of a character in bytes; scores count in ten-thousandths
INVALID = -20_000_000
MARK = "\ufeff"  # a byte order mark at the start is dropped


class Prefixes:
    """Keys of a vocabulary, found at a position of a text by the lengths that keys with its beginning have: no trie of objects."""

    def __init__(self, keys: Iterable[str]) -> None:
        found: dict[str, set[int]] = {}
        for key in keys:
            found.setdefault(key[:HEAD], set()).add(len(key))
        alone = {head for head in found if len(head) < HEAD}
        self._lengths: dict[str, Sequence[int]] = {
            head: sorted(lengths | ({1} if head[:1] in alone else set()), reverse=True) for head, lengths in found.items()
        }

    def lengths(self, text: str, at: int) -> Sequence[int]:
        """Lengths, longest first, that a key which begins as `text` does at `at` may have; some may reach past its end."""
        return self._lengths.get(text[at : at + HEAD]) or self._lengths.get(text[at : at + 1], ())


class Plamo2Encoder:
    """Scores are rounded to ten-thousandths, so that sums are exact; of equal cuts the one with the longer token first wins."""

    space_prefix = False
    spelling = Spelling(byte_tokens=True)

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        scores, shadowed = vocabulary.scores or (0.0,) * len(vocabulary), vocabulary.texts.shadowed
        self._bytes: dict[int, int] = {}
        self._pieces: dict[str, tuple[int, int]] = {}  # id and cost
        for i, (text, kind, score) in enumerate(zip(vocabulary.texts, vocabulary.types, scores, strict=True)):
            if kind == TokenType.BYTE:
                self._bytes[int(text[3:5], 16)] = i
            elif text and i not in vocabulary.control and i not in shadowed and math.isfinite(score):
                cost = math.floor(abs(score) * 1e4 + 0.5) * (-1 if score > 0 else 1)
                if -cost > INVALID:
                    self._pieces[text] = i, cost
        missing = next((byte for byte in range(256) if byte not in self._bytes), None)
        if missing is not None:
            raise BadVocab(
                f"has no token <0x{missing:02X}>, which texts that it does not know need; convert the model again",
                file=vocabulary.file,
                field="tokenizer.ggml.tokens",
            )
        self._prefixes = Prefixes(self._pieces)

    def prepare(self) -> None:
        """Nothing to build."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> list[int]:
        text = text.removeprefix(MARK)
        lengths = self._best(text)
        out: list[int] = []
        at = 0
        while at < len(text):
            length = lengths[at]
            if length:
                out.append(self._pieces[text[at : at + length]][0])
            else:
                out += [self._bytes[byte] for byte in text[at].encode()]
            at += length or 1
        return out

    def _best(self, text: str) -> list[int]:
        """From each place on, the length of the first token of the best cut; 0 where that is a character in bytes."""
        end = len(text)
        costs, lengths = [0] * (end + 1), [0] * end
        for at in range(end - 1, -1, -1):
            best, chosen = costs[at + 1] + UNKNOWN_COST + 1, 0  # any token wins a tie with it
            for length in self._prefixes.lengths(text, at):  # the longest first: it wins a tie
                if at + length <= end:
                    piece = self._pieces.get(text[at : at + length])
                    if piece is not None and costs[at + length] + piece[1] < best:
                        best, chosen = costs[at + length] + piece[1], length
            costs[at], lengths[at] = best if chosen else best - 1, chosen
        return lengths
