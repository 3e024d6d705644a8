"""BPE vocabularies (gpt-2, llama 3, qwen, gemma 4): words of a text, merged by the `tokenizers` package with a file's merges."""
from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice, pairwise
from operator import attrgetter
from typing import Any

import numpy as np

from edgellm.tokenizer.merges import Merges
from edgellm.tokenizer.pre_tokenizers import PreTokenizer
from edgellm.tokenizer.spm import BYTE_TEXTS, SPACE
from edgellm.tokenizer.vocabulary import TokenType, Vocabulary, stood_in
from edgellm.tokenizer.windows import WINDOW, encode_in_windows
from edgellm.tokenizer.word_cuts import WordCutter

MAX_DIGITS = 900                            # of a run that expressions look ahead over, which is quadratic
LONG_DIGITS = re.compile(rf"\d{{{MAX_DIGITS + 1},}}")


def byte_letters() -> dict[str, int]:
    """GPT-2's letters for bytes: printable Latin-1 stands for itself, the rest for U+0100 onwards."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF_LETTER = byte_letters()
LETTERS = np.array([ord(letter) for letter in sorted(BYTE_OF_LETTER, key=BYTE_OF_LETTER.__getitem__)], "<u2")   # of each byte
BETWEEN = -1                                # in the place of an id between two texts
NO_BYTE = b"\xff"                           # in no UTF-8
TOKEN_ID = attrgetter("id")


class BpeEncoder:
    """Byte-pair merging by rank within words, done by `tokenizers`. A word that comes again is merged once."""

    space_prefix = False

    def __init__(self, vocabulary: Vocabulary, pre: PreTokenizer, merges: Sequence[str]) -> None:
        self.vocabulary, self.pre = vocabulary, pre
        self._merges: Merges | None = Merges(merges, vocabulary.file)
        self._beyond: dict[int, int | None] = {}     # ids that only the model has, and what stands for them
        self._longest = 0                    # bytes of the longest token
        self._built: tuple[WordCutter, Any] | None = None    # Any: a model of `tokenizers`, whose stubs lack its methods
        self._lock = threading.Lock()

    def prepare(self) -> None:
        with self._lock:
            if self._built is None:
                self._built = WordCutter(self.pre.expressions), self._model()
                self._merges = None          # of no use any more

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if self._built is None:
            self.prepare()
        if self.pre.visible_spaces:
            texts = [text.replace(" ", SPACE) for text in texts]
        if not self.pre.long_digits:
            ids = self._ids(texts)
        else:
            parts = list(map(_cut_digits, texts))
            each = iter(self._ids(list(chain.from_iterable(parts))))
            ids = [list(chain.from_iterable(islice(each, len(some)))) for some in parts]
        return [stood_in(some, self._beyond, self.vocabulary.file) for some in ids]

    def piece(self, token: int) -> bytes:
        text, kind = self.vocabulary.texts[token], self.vocabulary.types[token]
        if kind == TokenType.BYTE:
            return bytes([int(text[3:5], 16)])
        if self.pre.visible_spaces:
            return text.replace(SPACE, " ").encode("utf-8", "surrogateescape")
        if kind == TokenType.USER_DEFINED or self.pre.drops_spaces:
            return text.encode("utf-8", "surrogateescape")
        try:
            return bytes([BYTE_OF_LETTER[letter] for letter in text])
        except KeyError:                     # a token that is not a byte string: added by somebody, or padding
            return text.encode("utf-8", "surrogateescape")

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        known: dict[str, Sequence[int]] = {"": (BETWEEN,)}
        ids: list[int] = []
        for words in self._words(texts):
            new = list(set(words).difference(known))
            known.update(zip(new, map(self._merged, self._spelled(new)), strict=True))
            ids += chain.from_iterable(map(known.__getitem__, words))
        if len(texts) == 1:
            return [ids]
        ends = [-1, *np.flatnonzero(np.array(ids) == BETWEEN).tolist(), len(ids)]
        return [ids[start + 1:end] for start, end in pairwise(ends)][:len(texts)]

    def _words(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Words of all texts, with an empty one between two texts."""
        assert self._built is not None
        if not self.pre.drops_spaces:
            yield from self._built[0].words(texts)
            return
        for at, text in enumerate(texts):
            words = [word.lower() if self.pre.lowercase else word for word in text.split()]
            yield ["", *words] if at else words

    def _spelled(self, words: list[str]) -> list[str]:
        """Words as tokens are written: in letters for bytes, but in vocabularies of plain UTF-8."""
        if self.pre.visible_spaces or self.pre.drops_spaces or not words:
            return words
        data = np.frombuffer(NO_BYTE.join(map(str.encode, words)), np.uint8)
        return LETTERS[data].tobytes().decode("utf-16-le").split(chr(LETTERS[NO_BYTE[0]]))

    def _merged(self, word: str) -> Sequence[int]:
        assert self._built is not None
        if self.pre.visible_spaces and word.startswith("\n"):
            token = self.vocabulary.find(word)    # merges of these vocabularies know no newlines
            if token is not None and token not in self.vocabulary.control:
                return [token]
        if len(word) > WINDOW > self._longest and not self.pre.drops_spaces:
            return encode_in_windows(word, self._tokens)
        return tuple(map(TOKEN_ID, self._built[1].tokenize(word)))      # a tuple: garbage collection leaves it alone

    def _tokens(self, word: str) -> tuple[list[int], list[int]]:
        """Ids of a word and where they end."""
        assert self._built is not None
        tokens = self._built[1].tokenize(word)
        return [token.id for token in tokens], [token.offsets[1] for token in tokens]

    def _model(self) -> Any:
        """BPE without control tokens, so that no user's text can become one, not even through a merge."""
        texts, control, special = self.vocabulary.texts, self.vocabulary.control, self.vocabulary.special
        hidden = control | texts.shadowed.keys()
        vocab = {text: token for token, text in enumerate(texts) if token not in hidden}
        unknown = None if special.unknown in special.end | {special.bos} else special.unknown    # starcoder's is its end
        for text in BYTE_TEXTS if self.pre.visible_spaces else BYTE_OF_LETTER:       # without them `tokenizers` drops characters
            if text not in vocab:
                vocab[text] = len(self.vocabulary) + len(self._beyond)
                self._beyond[vocab[text]] = unknown
        return self._with_merges(vocab)

    def _with_merges(self, vocab: dict[str, int]) -> Any:
        """BPE with all merges, or where some make tokens that `vocab` lacks, with those whose tokens are known."""
        from tokenizers import models

        assert self._merges is not None
        options: dict[str, Any] = {"ignore_merges": self.pre.whole_words, "byte_fallback": self.pre.visible_spaces}
        unknown = self.vocabulary.special.unknown
        self._longest = max(map(len, map(str.encode, vocab)), default=0)
        if self.pre.drops_spaces and unknown is not None and self.vocabulary.texts[unknown]:
            vocab[self.vocabulary.texts[unknown]] = unknown
            options["unk_token"] = self.vocabulary.texts[unknown]
        if self._merges.longest <= self._longest:        # at a longer one the package panics
            with suppress(Exception):        # it raises no narrower class for a merge of unknown tokens
                return models.BPE(vocab, self._merges, **options)
        return models.BPE(vocab, self._merges.among(vocab), **options)


def _cut_digits(text: str) -> list[str]:
    """Cut runs of more than MAX_DIGITS digits into groups counted from their end: groups of three start there anyway."""
    parts, at = [], 0
    for run in LONG_DIGITS.finditer(text):
        first = run.start() + (run.end() - run.start()) % MAX_DIGITS
        parts.append(text[at:first])
        parts += [text[i:i + MAX_DIGITS] for i in range(first, run.end(), MAX_DIGITS)]
        at = run.end()
    return [part for part in (*parts, text[at:]) if part]
