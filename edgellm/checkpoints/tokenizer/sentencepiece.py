"""Reads a SentencePiece model (tokenizer.model): pieces, scores, types, and what is done to a text before it is cut.

Fields and numbers: sentencepiece_model.proto. Types of pieces have the numbers of GGUF's token types.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from edgellm.checkpoints.tokenizer.tokens import CONTROL, NORMAL, UNUSED, USER, Json, Tokens, entries, listed_by_id, optional
from edgellm.errors import BadVocab, Unsupported
from edgellm.formats.mapped import MappedFile

MODEL = "tokenizer.model"
ADDED_SCORE = -1000.0  # of tokens that were added to a SentencePiece vocabulary, as llama.cpp's converter gives them
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


def sentencepiece_keys(folder: str, whole: Json, settings: Json, rows: int) -> tuple[dict[str, Any], str]:
    """Keys without their prefix, and the rule by which the model normalises texts, "" for none. Raises Unsupported, BadVocab."""
    path = os.path.join(folder, MODEL)
    model = read_sentencepiece(path)
    if model.kind != BPE:
        raise Unsupported("is a SentencePiece model of another kind than BPE; edgellm cannot convert it", file=path)
    n, tokens, scores = len(model.texts), Tokens(rows, path), [ADDED_SCORE] * rows
    if n > rows:
        raise BadVocab(f"has {n} pieces, but the embedding has {rows} rows; download the folder again", file=path)
    tokens.texts[:n], tokens.types[:n], scores[:n] = model.texts, model.types, model.scores
    for token, text, special in _added(folder, whole, settings):
        kind = tokens.types[token] if 0 <= token < rows else UNUSED
        if 0 <= token < rows and (text != tokens.texts[token] or kind == NORMAL or (special and kind == USER)):
            tokens.texts[token], tokens.types[token], scores[token] = text, CONTROL if special else USER, ADDED_SCORE
    asked = settings.get("add_prefix_space")
    keys = {
        "model": "llama",
        "pre": "default",
        "tokens": tokens.texts,
        "scores": scores,
        "token_type": tokens.types,
        "add_space_prefix": asked if isinstance(asked, bool) else model.add_dummy_prefix,
    }
    return keys | ({"remove_extra_whitespaces": True} if model.remove_extra_whitespaces else {}), (
        "" if model.normalizer == "identity" else model.normalizer
    )


def _added(folder: str, whole: Json, settings: Json) -> list[tuple[int, str, bool]]:
    """Tokens beside the model's own: id, text, whether they are control tokens. What is said last counts."""
    added = [(token, text, False) for text, token in optional(folder, "added_tokens.json").items() if type(token) is int]
    listed = [(entry.get("id"), entry) for entry in entries(whole.get("added_tokens"))] + [*listed_by_id(settings)]
    return added + [
        (token, entry["content"], bool(entry.get("special")))
        for token, entry in listed
        if type(token) is int and isinstance(entry.get("content"), str)
    ]


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
