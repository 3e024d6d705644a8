"""GGUF's tokenizer keys of WordPiece and Unigram vocabularies, from tokenizer.json or vocab.txt."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from edgellm.checkpoints.tokenizer.tokenizer_json import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER, beyond
from edgellm.errors import BadVocab, Unsupported
from edgellm.formats.mapped import MappedFile

Json = Mapping[str, Any]  # Any: parsed JSON
SPACE, INNER = "\u2581", "##"
PIECES, UNIGRAM, VOCABULARY = "WordPiece", "Unigram", "vocab.txt"
PLAIN = ("Precompiled", "Replace", "Strip")  # what GGUF can say of normalizers before Unigram, and what it implies
MAX_BYTES = 64 << 20
UNSEEN = -1000.0  # score of rows without a piece


def encoder_keys(folder: str, whole: Json, settings: Json, rows: int) -> dict[str, Any]:
    """Keys without their prefix; {} for other kinds of tokenizers. Raises BadVocab, Unsupported."""
    model, path = whole.get("model"), os.path.join(folder, "tokenizer.json")
    kind = model.get("type") if isinstance(model, Mapping) else None
    if kind == PIECES and isinstance(model, Mapping) and isinstance(model.get("vocab"), Mapping):
        texts = {token: text for text, token in model["vocab"].items()}
        return _word_pieces(texts, whole, _bert_normalizer(whole, path), rows, path)
    if kind == UNIGRAM and isinstance(model, Mapping):
        return _unigram(model, whole, rows, path)
    listed = os.path.join(folder, VOCABULARY)
    if whole or not os.path.isfile(listed):
        return {}
    lowercase = settings.get("do_lower_case") is not False
    accents = settings.get("strip_accents")
    flags = (lowercase, lowercase if accents is None else bool(accents))
    return _word_pieces(dict(enumerate(_lines(listed))), whole, flags, rows, listed)


def _lines(path: str) -> list[str]:
    file = MappedFile(path)
    try:
        if file.size > MAX_BYTES:
            raise BadVocab(f"has {file.size} bytes, more than any vocabulary", file=path)
        return bytes(file.data).decode("utf-8", "replace").removesuffix("\n").split("\n")
    finally:
        file.close()


def _word_pieces(texts: Mapping[Any, str], whole: Json, normalised: tuple[bool, bool], rows: int, path: str) -> dict[str, Any]:
    """Words begin with a visible space in GGUF; what continues one loses its mark."""
    tokens, types = [f"[PAD{i}]" for i in range(rows)], [UNUSED] * rows
    for token, text in texts.items():
        special = text.startswith("[") and text.endswith("]")
        _put(
            tokens,
            types,
            token,
            text if special else text.removeprefix(INNER) if text.startswith(INNER) else SPACE + text,
            CONTROL if special and text[1:-1].isupper() else NORMAL,
            path,
        )
    for entry in _added(whole, rows):
        _put(tokens, types, entry.get("id"), entry["content"], CONTROL if entry.get("special") else USER, path)
    return {
        "model": "bert",
        "pre": "default",
        "tokens": tokens,
        "token_type": types,
        "token_type_count": 2,
        "normalizer.lowercase": normalised[0],
        "normalizer.strip_accents": normalised[1],
    }


def _bert_normalizer(whole: Json, path: str) -> tuple[bool, bool]:
    found = whole.get("normalizer")
    if found is None:
        return False, False
    if not isinstance(found, Mapping) or found.get("type") != "BertNormalizer" or found.get("handle_chinese_chars") is False:
        raise Unsupported(
            "normalises texts in a way that GGUF has no keys for; edgellm cannot convert this tokenizer",
            file=path,
            field="normalizer",
        )
    lowercase, accents = bool(found.get("lowercase")), found.get("strip_accents")
    return lowercase, lowercase if accents is None else bool(accents)


def _unigram(model: Json, whole: Json, rows: int, path: str) -> dict[str, Any]:
    vocab, unknown = model.get("vocab"), model.get("unk_id")
    if not isinstance(vocab, list) or len(vocab) > rows:
        raise BadVocab(
            f"its vocabulary is not a list of at most {rows} pieces; download the folder again", file=path, field="vocab"
        )
    tokens, types, scores = [f"[PAD{i}]" for i in range(rows)], [UNUSED] * rows, [UNSEEN] * rows
    for token, entry in enumerate(vocab):
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], (int, float))):
            raise BadVocab(f"{str(entry)[:40]!r} is not a piece with a score; download the folder again", file=path, field="vocab")
        byte = bool(model.get("byte_fallback")) and len(entry[0]) == 6 and entry[0].startswith("<0x")
        _put(tokens, types, token, entry[0], UNKNOWN if token == unknown else BYTE if byte else NORMAL, path)
        scores[token] = float(entry[1])
    for entry in _added(whole, rows):
        if entry.get("id") != unknown:
            _put(tokens, types, entry.get("id"), entry["content"], CONTROL if entry.get("special") else USER, path)
    cuts = list(steps(whole.get("pre_tokenizer"), "pretokenizers"))
    normalizers = list(steps(whole.get("normalizer"), "normalizers"))
    if wrong := next((str(each.get("type")) for each in normalizers if each.get("type") not in PLAIN), ""):
        raise Unsupported(
            f"normalises texts by {wrong[:40]}, which GGUF cannot say of Unigram; edgellm cannot convert this tokenizer",
            file=path,
            field="normalizer",
        )
    found = {
        "model": "t5",
        "pre": "default",
        "tokens": tokens,
        "token_type": types,
        "scores": scores,
        "add_space_prefix": any(
            each.get("type") == "Metaspace"
            and each.get("prepend_scheme", "always") != "never"
            and each.get("add_prefix_space") is not False
            for each in cuts
        ),
        "remove_extra_whitespaces": any(each.get("type") == "WhitespaceSplit" for each in cuts)
        or any(each.get("type") == "Replace" and " {2,}" in str(each.get("pattern")) for each in normalizers),
    }
    charsmap = next((each.get("precompiled_charsmap") for each in normalizers if each.get("type") == "Precompiled"), None)
    return (
        found
        | ({"precompiled_charsmap": _bytes(charsmap, path)} if charsmap else {})
        | ({"unknown_token_id": unknown} if type(unknown) is int else {})
    )


def _bytes(text: Any, path: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
    except (binascii.Error, TypeError, ValueError) as error:
        raise BadVocab("is not base64; download the folder again", file=path, field="precompiled_charsmap") from error


def steps(entry: Any, inner: str) -> Iterator[Json]:
    """The steps of a sequence, or the one that there is."""
    if isinstance(entry, Mapping):
        within = entry.get(inner)
        if entry.get("type") == "Sequence" and isinstance(within, list):
            for each in within:
                yield from steps(each, inner)
        else:
            yield entry


def _added(whole: Json, rows: int) -> Iterator[Json]:
    entries = whole.get("added_tokens")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and isinstance(entry.get("content"), str) and not beyond(entry.get("id"), rows):
            yield entry


def _put(texts: list[str], types: list[int], token: Any, text: str, kind: int, path: str) -> None:
    if type(token) is not int or not 0 <= token < len(texts) or not isinstance(text, str):
        raise BadVocab(
            f"the token {str(text)[:40]!r} has the id {str(token)[:40]!r}, but the embedding has {len(texts)} rows; "
            "download the folder again",
            file=path,
            field="vocab",
        )
    texts[token], types[token] = text, kind
