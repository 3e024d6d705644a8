"""Metadata of small vocabularies of every kind, as plain mappings, and slow tokenizers that are easy to believe."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import tiny_tokenizers

PREFIX = "tokenizer.ggml."
USER_DEFINED = "<think>"
WPM_TOKENS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "▁un",
    "aff",
    "able",
    "▁the",
    "▁cat",
    "s",
    "▁,",
    "▁中",
    "▁cafe",
    "▁1",
    "2",
)


def spm_metadata(**changes: Any) -> dict[str, Any]:
    """An SPM vocabulary with one user-defined token. `changes` replace keys; None drops one."""
    tokens, scores, types = tiny_tokenizers.spm_vocabulary()
    return _changed(
        {
            "model": "llama",
            "tokens": [*tokens, USER_DEFINED],
            "scores": np.array([*scores, -99.0], np.float32),
            "token_type": np.array([*types, 4], np.int32),
            "bos_token_id": 1,
            "eos_token_id": 2,
            "unknown_token_id": 0,
        },
        changes,
    )


def bpe_metadata(**changes: Any) -> dict[str, Any]:
    """A byte-level BPE vocabulary with one user-defined token."""
    tokens, types = tiny_tokenizers.bpe_vocabulary()
    end = tokens.index("<|endoftext|>")
    return _changed(
        {
            "model": "gpt2",
            "pre": "gpt-2",
            "tokens": [*tokens, USER_DEFINED],
            "token_type": np.array([*types, 4], np.int32),
            "merges": list(tiny_tokenizers.MERGES),
            "bos_token_id": end,
            "eos_token_id": end,
        },
        changes,
    )


def wpm_metadata(**changes: Any) -> dict[str, Any]:
    """A WordPiece vocabulary as GGUF has it: U+2581 at the start of words."""
    types = np.array([3] * 5 + [1] * (len(WPM_TOKENS) - 5), np.int32)
    return _changed(
        {
            "model": "bert",
            "tokens": list(WPM_TOKENS),
            "token_type": types,
            "cls_token_id": 2,
            "seperator_token_id": 3,
            "unknown_token_id": 1,
            "padding_token_id": 0,
            "mask_token_id": 4,
        },
        changes,
    )


def with_tokens(metadata: dict[str, Any], *added: tuple[str, int]) -> dict[str, Any]:
    """The same with more tokens: (text, type)."""
    more = dict(metadata)
    more[PREFIX + "tokens"] = [*metadata[PREFIX + "tokens"], *(text for text, _ in added)]
    more[PREFIX + "token_type"] = [*map(int, metadata[PREFIX + "token_type"]), *(kind for _, kind in added)]
    if PREFIX + "scores" in metadata:
        more[PREFIX + "scores"] = [*map(float, metadata[PREFIX + "scores"]), *(-9.0 for _ in added)]
    return more


def _changed(keys: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {PREFIX + key: value for key, value in {**keys, **changes}.items() if value is not None}


def slow_spm(text: str) -> list[str]:
    """Pieces by the definition: join the neighbours of the best score, leftmost first, until none joins; then bytes."""
    tokens, scores, _ = tiny_tokenizers.spm_vocabulary()
    known = dict(zip(tokens, scores, strict=True))
    parts = list(text.replace(" ", "▁"))
    while True:
        pairs = [(-known[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in known]
        if not pairs:
            break
        at = min(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [piece for part in parts for piece in ([part] if part in known else [f"<0x{b:02X}>" for b in part.encode()])]


def slow_bpe(word: str) -> list[str]:
    """Pieces of one word: join the pair of the lowest rank until none is left."""
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(tiny_tokenizers.MERGES)}
    parts = [tiny_tokenizers.byte_characters()[byte] for byte in word.encode()]
    while True:
        pairs = [(ranks[pair], i) for i, pair in enumerate(pairwise(parts)) if pair in ranks]
        if not pairs:
            return parts
        at = min(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
