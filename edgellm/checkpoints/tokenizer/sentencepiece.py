"""Reads a SentencePiece model (tokenizer.model): pieces, scores, types, and what is done to a text before it is cut.

Fields and numbers: sentencepiece_model.proto. Types of pieces have the numbers of GGUF's token types.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from edgellm.errors import BadVocab
from edgellm.formats.mapped import MappedFile

UNIGRAM, BPE = 1, 2
MAX_BYTES = 64 << 20  # the largest published ones have 5 MiB
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """`normalizer`: the rule's name, "identity" where texts stay as they are."""

    texts: tuple[str, ...]
    scores: tuple[float, ...]
    types: tuple[int, ...]
    kind: int  # UNIGRAM, BPE, ...
    normalizer: str
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool


def read_sentencepiece(path: str) -> SentencePieceModel:
    """Raises BadVocab for a damaged file, Unreadable."""
    file = MappedFile(path)
    try:
        if file.size > MAX_BYTES:
            _fail(path, f"has {file.size} bytes, more than any tokenizer")
        return _model(path, file.buffer[:])
    finally:
        file.close()


def _model(path: str, data: bytes) -> SentencePieceModel:
    pieces: list[tuple[str, float, int]] = []
    kind, normalizer, prefix, extra = UNIGRAM, "", True, True
    for field, value in _fields(path, data):
        if field == 1 and isinstance(value, bytes):
            pieces.append(_piece(path, value))
        elif field == 2 and isinstance(value, bytes):
            kind = next((int(v) for f, v in _fields(path, value) if f == 3 and isinstance(v, int)), kind)
        elif field == 3 and isinstance(value, bytes):
            found = dict(_fields(path, value))
            name = found.get(1, b"")
            normalizer = name.decode("utf-8", "replace") if isinstance(name, bytes) else ""
            prefix, extra = bool(found.get(3, 1)), bool(found.get(4, 1))
    if not pieces:
        _fail(path, "has no pieces")
    texts, scores, types = zip(*pieces, strict=True)
    return SentencePieceModel(texts, scores, types, kind, normalizer, prefix, extra)


def _piece(path: str, data: bytes) -> tuple[str, float, int]:
    text, score, kind = "", 0.0, 1
    for field, value in _fields(path, data):
        if field == 1 and isinstance(value, bytes):
            text = value.decode("utf-8", "replace")
        elif field == 2 and isinstance(value, float):
            score = value
        elif field == 3 and isinstance(value, int):
            kind = value
    if not 1 <= kind <= 6:
        _fail(path, f"has a piece of the unknown type {kind}")
    return text, score, kind


def _fields(path: str, data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Field numbers and values of one message in protobuf's wire format."""
    at = 0
    while at < len(data):
        tag, at = _varint(path, data, at)
        wire, value = tag & 7, 0
        if wire == _VARINT:
            value, at = _varint(path, data, at)
            yield tag >> 3, value
            continue
        length = {_DOUBLE: 8, _FLOAT: 4}.get(wire, -1)
        if wire == _BYTES:
            length, at = _varint(path, data, at)
        if length < 0 or at + length > len(data):
            _fail(path, "ends within a field")
        raw, at = data[at : at + length], at + length
        yield tag >> 3, struct.unpack("<f", raw)[0] if wire == _FLOAT else raw


def _varint(path: str, data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    _fail(path, "ends within a number")


def _fail(path: str, problem: str) -> NoReturn:
    raise BadVocab(f"is not a SentencePiece model: it {problem}; download it again", file=path)
