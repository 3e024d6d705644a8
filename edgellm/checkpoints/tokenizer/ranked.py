"""GGUF's tokenizer keys of folders that list tokens' bytes by rank: Mistral's tekken.json, and Kimi's tiktoken.model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from edgellm.checkpoints.tokenizer.tekken import tekken_keys
from edgellm.checkpoints.tokenizer.tokenizer_json import CONTROL, NORMAL, UNUSED, USER, optional, whole_metadata
from edgellm.errors import BadVocab
from edgellm.formats.mapped import MappedFile
from edgellm.tokenizer.byte_pairs import bytes_of, letters, merges_of

Json = Mapping[str, Any]  # Any: parsed JSON
TIKTOKEN = "tiktoken.model"
PRE = {"tokenization_kimi": "kimi-k2"}  # by the module that cuts words, which the list itself does not say
N_RESERVED = 256  # special tokens behind those that are listed, named or not


def ranked_metadata(folder: str, config: Json, *, rows: int) -> dict[str, Any]:
    """Tokenizer keys for a vocabulary of `rows` tokens, and the chat template; {} where the folder has no such list."""
    beside = optional(folder, "tokenizer_config.json")
    keys = tekken_keys(folder, rows) or _tiktoken_keys(folder, rows, beside)
    return whole_metadata(keys, folder, config, beside) if keys else {}


def _tiktoken_keys(folder: str, rows: int, beside: Json) -> dict[str, Any]:
    """Keys without their prefix; {} where nobody knows how words are cut. Raises BadVocab."""
    path, code = os.path.join(folder, TIKTOKEN), str(beside.get("auto_map"))
    pre = next((pre for module, pre in PRE.items() if module in code), None)
    if pre is None or not os.path.isfile(path):
        return {}
    pieces = _pieces(path, rows)
    n = len(pieces)
    texts = [letters(piece) for piece in pieces]
    texts += [f"<|reserved_token_{i}|>" if i < n + N_RESERVED else f"[PAD{i}]" for i in range(n, rows)]
    types = [NORMAL if i < n else CONTROL if i < n + N_RESERVED else UNUSED for i in range(rows)]
    named = beside.get("added_tokens_decoder")
    for token, entry in named.items() if isinstance(named, Mapping) else ():
        if token.isdecimal() and n <= int(token) < rows and isinstance(entry, Mapping) and isinstance(entry.get("content"), str):
            texts[int(token)], types[int(token)] = entry["content"], CONTROL if entry.get("special") else USER
    return {"model": "gpt2", "pre": pre, "tokens": texts, "token_type": types, "merges": merges_of(pieces)}


def _pieces(path: str, rows: int) -> list[bytes]:
    """The bytes of tokens, which stand in the order of their ranks."""
    file = MappedFile(path)
    try:
        lines = bytes(file.data).splitlines()
    finally:
        file.close()
    if len(lines) > rows:
        raise BadVocab(f"has {len(lines)} tokens, but the embedding has {rows} rows; download the folder again", file=path)
    pieces = []
    for number, line in enumerate(lines):
        text, _, rank = line.partition(b" ")
        if rank != str(number).encode():
            raise BadVocab(f"has {line[:60]!r} where the token of rank {number} belongs; download the folder again", file=path)
        pieces.append(bytes_of(text, path))
    return pieces
