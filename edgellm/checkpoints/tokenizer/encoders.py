"""GGUF's tokenizer keys of WordPiece and Unigram vocabularies, from tokenizer.json or vocab.txt."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from edgellm.checkpoints.tokenizer.bpe import metaspace_keys
from edgellm.checkpoints.tokenizer.tokens import BYTE, CONTROL, NORMAL, UNKNOWN, Json, Tokens, is_number, steps, text_file
from edgellm.errors import BadVocab
from edgellm.tokenizer.wpm import MAX_WORD

SPACE, INNER = "\u2581", "##"
PIECES, UNIGRAM, VOCABULARY = "WordPiece", "Unigram", "vocab.txt"
UNSEEN = -1000.0  # score of rows without a piece
LONGEST = "max_input_chars_per_word"


def encoder_keys(folder: str, whole: Json, settings: Json, rows: int) -> dict[str, Any]:
    """Keys without their prefix; {} for other kinds of tokenizers. Raises BadVocab."""
    model, path = whole.get("model"), os.path.join(folder, "tokenizer.json")
    kind = model.get("type") if isinstance(model, Mapping) else None
    if kind == PIECES and isinstance(model, Mapping) and isinstance(model.get("vocab"), Mapping):
        return _word_pieces(model["vocab"].items(), whole, _bert_normalizer(whole), rows, path)
    if kind == UNIGRAM and isinstance(model, Mapping):
        return _unigram(model, whole, rows, path)
    listed = os.path.join(folder, VOCABULARY)
    if whole or not os.path.isfile(listed):
        return {}
    lowercase = settings.get("do_lower_case") is not False
    accents = settings.get("strip_accents")
    flags = (lowercase, lowercase if accents is None else bool(accents))
    lines = text_file(listed).removesuffix("\n").split("\n")
    return _word_pieces(zip(lines, range(len(lines)), strict=True), whole, flags, rows, listed)


def _word_pieces(
    vocab: Iterable[tuple[str, Any]], whole: Json, normalised: tuple[bool, bool], rows: int, path: str
) -> dict[str, Any]:
    """Words begin with a visible space in GGUF; what continues one loses its mark."""
    tokens, model = Tokens(rows, path), whole.get("model")
    for text, token in vocab:
        special = text.startswith("[") and text.endswith("]")
        ours = text if special else text.removeprefix(INNER) if text.startswith(INNER) else SPACE + text
        tokens.put(token, ours, CONTROL if special and text[1:-1].isupper() else NORMAL)
    tokens.add(whole)
    found = {
        "model": "bert",
        "pre": "default",
        **tokens.keys,
        "token_type_count": 2,
        "normalizer.lowercase": normalised[0],
        "normalizer.strip_accents": normalised[1],
    }
    longest = model.get(LONGEST, MAX_WORD) if isinstance(model, Mapping) else MAX_WORD
    return found if longest == MAX_WORD or type(longest) is not int else found | {LONGEST: longest}


def _bert_normalizer(whole: Json) -> tuple[bool, bool]:
    """Of BertNormalizer, whether it makes lower case and takes accents off."""
    found = next((each for each in steps(whole.get("normalizer"), "normalizers") if each.get("type") == "BertNormalizer"), {})
    lowercase, accents = bool(found.get("lowercase")), found.get("strip_accents")
    return lowercase, lowercase if accents is None else bool(accents)


def _unigram(model: Json, whole: Json, rows: int, path: str) -> dict[str, Any]:
    vocab, unknown = model.get("vocab"), model.get("unk_id")
    if not isinstance(vocab, list) or len(vocab) > rows:
        raise BadVocab(
            f"its vocabulary is not a list of at most {rows} pieces; download the folder again", file=path, field="vocab"
        )
    tokens, scores = Tokens(rows, path), [UNSEEN] * rows
    for token, entry in enumerate(vocab):
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and is_number(entry[1])):
            raise BadVocab(f"{str(entry)[:40]!r} is not a piece with a score; download the folder again", file=path, field="vocab")
        byte = bool(model.get("byte_fallback")) and len(entry[0]) == 6 and entry[0].startswith("<0x")
        tokens.put(token, entry[0], UNKNOWN if token == unknown else BYTE if byte else NORMAL)
        scores[token] = float(entry[1])
    tokens.add(whole, but=unknown)
    cuts = list(steps(whole.get("pre_tokenizer"), "pretokenizers"))
    normalizers = list(steps(whole.get("normalizer"), "normalizers"))
    found = {
        "model": "t5",
        "pre": "default",
        **tokens.keys,
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
    if found["add_space_prefix"] and not found["remove_extra_whitespaces"]:
        found |= metaspace_keys(whole)
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
