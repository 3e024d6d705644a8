"""BPE vocabularies (gpt-2, llama 3, qwen, gemma 4): words of a text, merged with a file's merges."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise

import numpy as np
import numpy.typing as npt

from edgellm.tokenizer.byte_pairs import BYTE_OF_LETTER
from edgellm.tokenizer.encoders import Spelling
from edgellm.tokenizer.joints import Joints
from edgellm.tokenizer.merges import Merges, Pairs
from edgellm.tokenizer.merging import merge_words
from edgellm.tokenizer.pre_tokenizers import PreTokenizer
from edgellm.tokenizer.spans import Spans, batches, code_points
from edgellm.tokenizer.spm import BYTE_TEXTS, SPACE
from edgellm.tokenizer.vocabulary import Vocabulary, stood_in
from edgellm.tokenizer.word_cuts import LibraryCutter, WordCutter

MAX_DIGITS = 900  # of a run that expressions look ahead over, which is quadratic
LONG_DIGITS = re.compile(rf"\d{{{MAX_DIGITS + 1},}}")
LETTERS = np.array([ord(letter) for letter in sorted(BYTE_OF_LETTER, key=BYTE_OF_LETTER.__getitem__)], "<u2")  # of each byte
BETWEEN = -1  # in the place of an id between two texts
NO_BYTE = b"\xff"  # in no UTF-8
NO_WORDS: dict[str, tuple[int, ...]] = {"": (BETWEEN,)}
WORD_BYTES, ID_BYTES = 256, 40  # that a word and each of its ids take in a dict of tuples
REMEMBERED = 1 << 20  # bytes of words and their ids that are kept for the next text


class BpeEncoder:
    """Byte-pair merging by rank within words. A word that comes again, in this text or the next, is merged once."""

    space_prefix = False

    def __init__(
        self, vocabulary: Vocabulary, pre: PreTokenizer, merges: Sequence[str], unmerged: frozenset[int] = frozenset()
    ) -> None:
        """`unmerged`: tokens that no merge and no word of a text leads to."""
        self.vocabulary, self.pre = vocabulary, pre
        letters = None if pre.visible_spaces or pre.drops_spaces else BYTE_OF_LETTER
        self.spelling = Spelling(byte_tokens=True, space=SPACE if pre.visible_spaces else "", letters=letters)
        self._merges: Merges | None = Merges(merges, vocabulary.file)
        self._as = np.arange(len(vocabulary) + 1, dtype=np.int32)  # what texts with an id become; the last one has none
        self._as[[*vocabulary.control, *unmerged, -1]] = -1
        self._others: dict[str, int] = {}  # ids of texts that the vocabulary lacks
        self._beyond: dict[int, int | None] = {}  # these ids, and what stands for them
        self._of_byte = np.zeros(256, np.uint32)
        self._built: tuple[WordCutter | LibraryCutter, Pairs] | None = None
        self._joints: Joints | None = None  # of vocabularies whose words are lines
        self._known = NO_WORDS.copy()  # the ids of words that came before
        self._known_bytes = 0
        self._lock = threading.Lock()

    def prepare(self) -> None:
        with self._lock:
            if self._merges is not None:
                self._add_bytes()
                pairs = self._merges.table(self._find_spans)
                if self.pre.visible_spaces and not pairs.have_any(self._of_byte):
                    self._joints = Joints(pairs, self.vocabulary.texts.spans(np.arange(len(self.vocabulary))))
                cuts = LibraryCutter(self.pre.settings) if self.pre.settings else WordCutter(self.pre.expressions)
                self._built = cuts, pairs
                self._merges = None  # of no use any more

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

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        known, ids = self._known, list[int]()
        for words in self._words(texts):
            new = list(set(words).difference(known))
            merged = self._merged(new)
            known.update(zip(new, merged, strict=True))
            self._known_bytes += WORD_BYTES * len(new) + ID_BYTES * sum(map(len, merged))
            ids += chain.from_iterable(map(known.__getitem__, words))
        if self._known_bytes > REMEMBERED:  # other threads go on with the words that they began with
            self._known, self._known_bytes = NO_WORDS.copy(), 0
        if len(texts) == 1:
            return [ids]
        ends = [-1, *np.flatnonzero(np.array(ids) == BETWEEN).tolist(), len(ids)]
        return [ids[start + 1 : end] for start, end in pairwise(ends)][: len(texts)]

    def _words(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Words of all texts, with an empty one between two texts."""
        assert self._built is not None
        if not self.pre.drops_spaces:
            lists = self._built[0].words(texts)
            yield from lists if self._joints is None else chain.from_iterable(map(self._joints.cut, lists))
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

    def _merged(self, words: list[str]) -> list[tuple[int, ...]]:
        assert self._built is not None
        whole = self._whole(words) if words else {}
        others = [word for word in words if word not in whole] if whole else words
        merged = merge_words(self._built[1], *self._symbols(others)) if others else []
        if not whole:
            return merged
        each = iter(merged)
        return [(whole[word],) if word in whole else next(each) for word in words]

    def _whole(self, words: list[str]) -> dict[str, int]:
        """Words that are tokens whatever the merges say."""
        if self.pre.whole_words:
            ids = self._find(self._spelled(words)).tolist()
        elif self.pre.visible_spaces:  # merges of these vocabularies know no newlines
            words = [word for word in words if word[0] == "\n"]
            ids = self._find(words).tolist() if words else []
        else:
            return {}
        return {word: token for word, token in zip(words, ids, strict=True) if token >= 0}

    def _symbols(self, words: list[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """The ids that words are merged from, and how many each has."""
        if not self.pre.visible_spaces and not self.pre.drops_spaces:
            encoded = list(map(str.encode, words))
            counts = np.fromiter(map(len, encoded), np.int64, len(encoded))
            return self._of_byte[np.frombuffer(b"".join(encoded), np.uint8)], counts
        text = "".join(words)
        letters = "".join(sorted(set(text)))
        tokens = self._find(letters)[code_points(letters).searchsorted(code_points(text))]  # (letters of the text,)
        data = np.frombuffer(text.encode(), np.uint8)
        begins = (data & 0xC0) != 0x80  # of letters
        ids = tokens[np.cumsum(begins) - 1]  # of each byte's letter
        if self.pre.visible_spaces:  # a letter without a token becomes its bytes
            kept, ids = begins | (ids < 0), np.where(ids < 0, self._of_byte[data], ids)
        else:  # the unknown token, if any
            unknown = self.vocabulary.special.unknown
            known = unknown is not None and bool(self.vocabulary.texts[unknown])
            kept, ids = begins & (known | (ids >= 0)), np.where(ids < 0, unknown or 0, ids)
        ends = np.append(np.flatnonzero(begins), len(data))[np.cumsum(np.fromiter(map(len, words), np.int64, len(words)))]
        return ids[kept].astype(np.uint32), np.diff(np.append(0, np.cumsum(kept))[ends], prepend=0)

    def _find(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        return np.concatenate([np.zeros(0, np.int64), *map(self._find_spans, batches(texts))])

    def _find_spans(self, texts: Spans) -> npt.NDArray[np.int64]:
        """Ids of texts, -1 for those of no token and of control tokens: no user's text can become one, not even through a merge."""
        ids = self._as[self.vocabulary.texts.find_spans(texts)].astype(np.int64)
        if self._others:
            for i in np.flatnonzero(ids < 0).tolist():
                ids[i] = self._others.get(texts[i], -1)
        return ids

    def _add_bytes(self) -> None:
        """Bytes that the vocabulary lacks get ids of their own, and words without bytes their unknown token."""
        special, texts = self.vocabulary.special, BYTE_TEXTS if self.pre.visible_spaces else list(map(chr, LETTERS))
        unknown = None if special.unknown in special.end | {special.bos} else special.unknown  # starcoder's is its end
        for text, token in zip(texts, self._find(texts).tolist(), strict=True):
            if token < 0:
                self._others[text] = len(self.vocabulary) + len(self._beyond)
                self._beyond[self._others[text]] = unknown
        if self.pre.drops_spaces and special.unknown is not None and self.vocabulary.texts[special.unknown]:
            self._as[self.vocabulary.find(self.vocabulary.texts[special.unknown])] = special.unknown
        self._of_byte = self._find(texts).astype(np.uint32)


def _cut_digits(text: str) -> list[str]:
    """Cut runs of more than MAX_DIGITS digits into groups counted from their end: groups of three start there anyway."""
    parts, at = [], 0
    for run in LONG_DIGITS.finditer(text):
        first = run.start() + (run.end() - run.start()) % MAX_DIGITS
        parts.append(text[at:first])
        parts += [text[i : i + MAX_DIGITS] for i in range(first, run.end(), MAX_DIGITS)]
        at = run.end()
    return [part for part in (*parts, text[at:]) if part]
