"""GGUF's tokenizer keys of Mistral's tekken.json: the bytes of tokens in the order in which they are merged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from edgellm.checkpoints.tokenizer.tokens import CONTROL, NORMAL, USER, Json, Tokens
from edgellm.errors import BadVocab
from edgellm.formats.mapped import MappedFile
from edgellm.formats.safetensors import read_json
from edgellm.tokenizer.byte_pairs import bytes_of, letters, merges_of

TEKKEN = "tekken.json"
# Tokens of files that do not list them, as in mistral_common.
SPECIAL = (
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
)
NO_VOCABULARY = "has no vocabulary or does not say how words are cut; download the folder again"
ROLES = {"bos": "<s>", "eos": "</s>", "unknown": "<unk>", "padding": "<pad>"}


def tekken_keys(folder: str, rows: int) -> dict[str, Any]:
    """Keys without their prefix; {} without such a file. Raises BadVocab."""
    path = os.path.join(folder, TEKKEN)
    if not os.path.isfile(path):
        return {}
    whole = read_json(MappedFile(path))
    config, vocab = _config(whole, path), whole.get("vocab")
    listed = whole.get("special_tokens") or [{"rank": i, "token_str": text} for i, text in enumerate(SPECIAL)]
    if not isinstance(vocab, list) or not isinstance(listed, list):
        raise BadVocab(NO_VOCABULARY, file=path)
    n_special, n = config.get("default_num_special_tokens", len(listed)), config.get("default_vocab_size", rows)
    if type(n_special) is not int or type(n) is not int or not 0 <= n_special <= n <= rows:
        raise BadVocab(
            f"says that {str(n_special)[:40]} of {str(n)[:40]} tokens are special, but the embedding has {rows} rows; "
            "download the folder again",
            file=path,
            field="config",
        )
    tokens = Tokens(rows, path)
    for token in range(n_special):
        tokens.put(token, f"<SPECIAL_{token}>", CONTROL)
    for entry in listed:
        rank, text = _entry(entry, "token_str", n_special, path)
        tokens.put(rank, text, USER if entry.get("is_control") is False else CONTROL)
    pieces: list[bytes] = []
    for entry in vocab[: n - n_special]:
        rank, text = _entry(entry, "token_bytes", len(vocab), path)
        if rank != len(pieces):
            raise BadVocab(f"has the rank {rank} at place {len(pieces)}; download the folder again", file=path, field="vocab")
        pieces.append(bytes_of(text, path))
        tokens.put(n_special + rank, letters(pieces[-1]), NORMAL)
    ids = {text: i for i, text in enumerate(tokens.texts[:n_special])}
    keys = {"model": "gpt2", "pre": "tekken", **tokens.keys, "merges": merges_of(pieces), "add_bos_token": "<s>" in ids}
    return keys | {f"{role}_token_id": ids[text] for role, text in ROLES.items() if text in ids}


def tekken_cuts(folder: str) -> Json:
    """The file's pre-tokenizer, in tokenizer.json's form; {} without such a file. Raises BadVocab."""
    path = os.path.join(folder, TEKKEN)
    if not os.path.isfile(path):
        return {}
    pattern = _config(read_json(MappedFile(path)), path)["pattern"]
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"model": {"ignore_merges": True}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}}


def _config(whole: Json, path: str) -> Json:
    config = whole.get("config")
    if not isinstance(config, Mapping) or not isinstance(config.get("pattern"), str):
        raise BadVocab(NO_VOCABULARY, file=path)
    return config


def _entry(entry: Any, key: str, n: int, path: str) -> tuple[int, str]:
    """Rank and text of a token."""
    rank, text = (entry.get("rank"), entry.get(key)) if isinstance(entry, Mapping) else (None, None)
    if type(rank) is not int or not 0 <= rank < n or not isinstance(text, str):
        raise BadVocab(f"{str(entry)[:60]!r} is not one of {n} tokens with rank and {key}; download the folder again", file=path)
    return rank, text
