"""RWKV's world vocabulary: at each place the longest token that fits, byte by byte."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

from edgellm.errors import BadVocab
from edgellm.tokenizer.encoders import Spelling
from edgellm.tokenizer.trie import Trie, codes_of
from edgellm.tokenizer.vocabulary import Vocabulary

ESCAPE = re.compile(rb"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
LETTERS = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


class RwkvEncoder:
    """Tokens are bytes, which the file writes as in a Python literal: "\\n", "\\xe4"."""

    space_prefix = False
    spelling = Spelling(unescape=lambda text: unescaped(text))

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._ids = {key: i for i, text in enumerate(vocabulary.texts) if i not in vocabulary.control and (key := unescaped(text))}
        if not self._ids:
            raise BadVocab(
                "has no token that stands for text; convert the model again", file=vocabulary.file, field="tokenizer.ggml.tokens"
            )
        self._trie: Trie | None = None
        self._lock = threading.Lock()

    def prepare(self) -> None:
        with self._lock:
            if self._trie is None:
                self._trie = Trie(self._ids)
                self._ids = {}  # the trie has them

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if self._trie is None:
            self.prepare()
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> list[int]:
        assert self._trie is not None
        ids, lengths = self._trie.longest(codes_of(text.encode()))
        at, out, unknown = 0, list[int](), self.vocabulary.special.unknown
        while at < len(ids):
            if lengths[at]:
                out.append(ids[at])
            elif unknown is not None:  # a byte that the vocabulary lacks
                out.append(unknown)
            at += lengths[at] or 1
        return out


def unescaped(text: str) -> bytes:
    """The bytes that a token's text stands for."""

    def one(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        return bytes([int(escape[1:], 16)]) if len(escape) == 3 else LETTERS.get(escape, escape)

    return ESCAPE.sub(one, text.encode("utf-8", "surrogateescape"))
