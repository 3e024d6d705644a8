"""GGUF's tokenizer keys of the BPE vocabularies of tokenizer.json: of bytes, or of visible spaces and letters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from edgellm.checkpoints.tokenizer.tokens import BYTE, NORMAL, USER, Json, Tokens, steps
from edgellm.errors import BadVocab

UNSCORED = -1000.0  # of tokens whose order merges give, as llama.cpp's converter has it
# Control tokens of Gemma 4 that files show as text, so that parsers see them.
MARKERS = ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>')


def bpe_keys(folder: str, whole: Json, rows: int, merged: str) -> dict[str, Any]:
    """Keys without their prefix; {} for other kinds of tokenizers. Raises BadVocab.

    `merged`: GGUF's name for a tokenizer that joins visible spaces and letters by merges; SentencePiece's scores else.
    """
    model, path = whole.get("model"), os.path.join(folder, "tokenizer.json")
    vocab = model.get("vocab") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or model.get("type", "BPE") != "BPE" or not isinstance(vocab, Mapping):
        return {}
    tokens = Tokens(rows, path)
    for text, token in vocab.items():
        tokens.put(token, text, NORMAL)
    tokens.add(whole)
    merges = _merges(model.get("merges") or [], path)
    if not model.get("byte_fallback"):
        return tokens.keys | {"model": "gpt2", "merges": merges}
    for token, text in enumerate(tokens.texts):
        if text in MARKERS and merged:
            tokens.types[token] = USER
        elif tokens.types[token] == NORMAL and len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            tokens.types[token] = BYTE
    if merged:
        own = {"model": merged, "merges": merges, "scores": [UNSCORED] * rows, "add_space_prefix": False, "add_bos_token": True}
        return tokens.keys | own
    own = {"model": "llama", "scores": _scores(tokens.texts, merges), "add_space_prefix": _prefixes(whole)}
    return tokens.keys | own | metaspace_keys(whole)


def _merges(values: Any, path: str) -> list[str]:
    """Merges as "left right", from either way of writing them."""
    pairs: list[Any] = values if isinstance(values, list) else [values]
    pairs = [" ".join(pair) if isinstance(pair, list) and all(isinstance(part, str) for part in pair) else pair for pair in pairs]
    if wrong := [pair for pair in pairs if not isinstance(pair, str)]:
        raise BadVocab(f"{str(wrong[0])[:40]!r} is not a merge of two texts; download the folder again", file=path, field="merges")
    return pairs


def _scores(texts: list[str], merges: list[str]) -> list[float]:
    """Scores that make SentencePiece join pairs in the order of the merges: the earlier, the higher."""
    rank: dict[str, float] = {}
    for index, pair in enumerate(merges):
        rank.setdefault(pair.replace(" ", ""), float(-index))
    lowest = float(-len(merges) - 1)
    return [rank.get(text, lowest) for text in texts]


def _prefixes(whole: Json) -> bool:
    """True if a space is put before a text: by a normalizer's Prepend, or a Metaspace."""
    text = str(whole.get("normalizer")) + str(whole.get("pre_tokenizer"))
    return "'Prepend'" in text or ("'Metaspace'" in text and "'prepend_scheme': 'never'" not in text)


def metaspace_keys(whole: Json) -> dict[str, Any]:
    """Keys of edgellm's own for a Metaspace: it puts no second space before a text, and may put one before the first text alone."""
    found = [each for each in steps(whole.get("pre_tokenizer"), "pretokenizers") if each.get("type") == "Metaspace"]
    return {
        **({"space_prefix_once": True} if found else {}),
        **({"space_prefix_first": True} if any(each.get("prepend_scheme") == "first" for each in found) else {}),
    }
