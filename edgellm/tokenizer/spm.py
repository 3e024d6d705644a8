"""SPM and unigram vocabularies (llama, gemma; t5): sentencepiece with a model built from a GGUF file's tokens, scores, types."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from edgellm.errors import BadVocab
from edgellm.tokenizer.encoders import Spelling
from edgellm.tokenizer.vocabulary import TokenType, Vocabulary, stood_in
from edgellm.tokenizer.windows import OVERLAP, WINDOW, encode_in_windows

SPACE = "▁"  # U+2581, sentencepiece's visible space
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # sentencepiece_model.proto, SentencePiece.Type; as in GGUF
MAX_PIECE = 7999  # bytes of a text that sentencepiece takes; longer tokens are only decoded
BYTE_TEXTS = tuple(f"<0x{byte:02X}>" for byte in range(256))


@dataclass(frozen=True, slots=True)
class SpmOptions:
    """Sentencepiece's treatment of a text. charsmap: replacements of characters, as it compiled them itself."""

    unigram: bool = False  # the most probable cut, instead of merging pairs by score
    byte_fallback: bool = True
    space_prefix: bool = True  # a text begins with one more space
    merge_spaces: bool = False  # runs of spaces are one, and none stand at the ends
    charsmap: bytes = b""


class SpmEncoder:
    """Bigram merging by score with byte fallback, or unigram models, done by sentencepiece.

    Spaces are U+2581 in these vocabularies, and nothing tells the two apart: a text that holds U+2581 decodes to one with spaces.
    """

    spelling = Spelling(byte_tokens=True, space=SPACE)

    def __init__(self, vocabulary: Vocabulary, options: SpmOptions) -> None:
        self.vocabulary, self.options, self.space_prefix = vocabulary, options, options.space_prefix
        self._processor: Any = None  # sentencepiece ships no types
        self._beyond: dict[int, int | None] = {}  # ids that only the model has, and what stands for them
        self._sizes: list[int] = []  # bytes of tokens, where texts can be cut into windows
        self._lock = threading.Lock()

    def prepare(self) -> None:
        with self._lock:
            if self._processor is None:
                self._processor = self._build()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if self._processor is None:
            self.prepare()
        return [stood_in(self._ids(text), self._beyond, self.vocabulary.file) for text in texts]

    def _ids(self, text: str) -> list[int]:
        if len(text) > WINDOW and self._sizes:
            return encode_in_windows(text.replace(" ", SPACE), self._tokens)
        ids: list[int] = self._processor.encode(text)
        return ids

    def _tokens(self, text: str) -> tuple[list[int], list[int]]:
        """Ids of a text with visible spaces, and where they end."""
        ids: list[int] = self._processor.encode(text)
        return ids, list(accumulate(map(self._sizes.__getitem__, ids)))

    def _build(self) -> Any:
        import sentencepiece

        pieces = list(self._pieces())
        merges = self.options.byte_fallback and not self.options.unigram and not self.options.merge_spaces
        if merges and all(len(text) < OVERLAP for text, _, kind in pieces if kind == TokenType.USER_DEFINED):
            self._sizes = [1 if kind == BYTE else len(text) for text, _, kind in pieces]
        processor = sentencepiece.SentencePieceProcessor()
        try:
            processor.LoadFromSerializedProto(model_proto(pieces, self.options))
        except (RuntimeError, ValueError) as error:
            raise BadVocab(
                f"sentencepiece refuses the vocabulary: {error}; convert the model again",
                file=self.vocabulary.file,
                field="tokenizer.ggml.tokens",
            ) from error
        return processor

    def _pieces(self) -> Iterator[tuple[bytes, float, int]]:
        """Pieces as sentencepiece accepts them: each text once, one UNKNOWN, all 256 bytes."""
        vocabulary, seen_unknown = self.vocabulary, False
        count, shadowed = len(vocabulary), vocabulary.texts.shadowed
        scores = vocabulary.scores or (0.0,) * count
        for i, (text, kind) in enumerate(zip(vocabulary.texts, vocabulary.types, strict=True)):
            if i in shadowed or not text or "\0" in text or len(text.encode("utf-8", "replace")) > MAX_PIECE:
                yield _placeholder(i), 0.0, CONTROL
            elif kind == TokenType.UNKNOWN:
                yield text.encode("utf-8", "replace"), 0.0, CONTROL if seen_unknown else UNKNOWN
                seen_unknown = True
            elif kind == TokenType.BYTE:
                yield text.upper().replace("X", "x").encode(), 0.0, BYTE
            elif i in vocabulary.control:
                yield text.encode("utf-8", "replace"), 0.0, CONTROL
            else:
                kind = NORMAL if kind == TokenType.UNDEFINED else kind
                yield text.encode("utf-8", "replace"), scores[i], kind
        yield from self._missing(count, seen_unknown)

    def _missing(self, count: int, seen_unknown: bool) -> Iterator[tuple[bytes, float, int]]:
        """Pieces that sentencepiece insists on and the vocabulary lacks, numbered after its own."""
        vocabulary, unknown = self.vocabulary, self.vocabulary.special.unknown
        if not seen_unknown:
            self._beyond[count] = unknown
            yield _placeholder(count), 0.0, UNKNOWN
        if not self.options.byte_fallback:
            return
        bytes_ = (i for i, kind in enumerate(vocabulary.types) if kind == TokenType.BYTE)
        present = {vocabulary.texts[i].upper() for i in bytes_}
        for byte, text in enumerate(BYTE_TEXTS):
            if text.upper() not in present:
                letter = vocabulary.find(chr(byte)) if byte < 128 else None
                stand_in = unknown if letter is None else letter
                self._beyond[count + len(self._beyond)] = stand_in
                yield text.encode(), 0.0, BYTE


def _placeholder(token: int) -> bytes:
    """A text that no token has, for entries that must exist but never match."""
    return f"\uf8ff{token}\uf8ff".encode()


def model_proto(pieces: list[tuple[bytes, float, int]], options: SpmOptions) -> bytes:
    """sentencepiece's ModelProto (sentencepiece_model.proto) in protobuf's wire format.

    `pieces`: (text, score, type). Spaces become U+2581; `Tokenizer` puts the one before a text, or, where they are merged,
    sentencepiece.
    """
    unknown = next(i for i, (_, _, kind) in enumerate(pieces) if kind == UNKNOWN)
    trainer = (
        _integer(3, 1 if options.unigram else 2)
        + _integer(4, len(pieces))
        + _integer(35, options.byte_fallback)
        + _integer(40, unknown)
        + _integer(41, -1)
        + _integer(42, -1)
        + _integer(43, -1)
    )
    normalizer = (
        _bytes(1, b"identity")
        + (_bytes(2, options.charsmap) if options.charsmap else b"")
        + _integer(3, options.space_prefix and options.merge_spaces)
        + _integer(4, options.merge_spaces)
        + _integer(5, 1)
    )
    body = (_bytes(1, _bytes(1, text) + b"\x15" + struct.pack("<f", score) + _integer(3, kind)) for text, score, kind in pieces)
    return b"".join(body) + _bytes(2, trainer) + _bytes(3, normalizer)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
