"""GGUF's tokenizer keys of Kimi's tiktoken.model, which lists tokens' bytes in base64 by rank."""

from __future__ import annotations

import os
import re
from typing import Any

from edgellm.checkpoints.tokenizer.tokens import CONTROL, NORMAL, USER, Json, Tokens, listed_by_id, text_file
from edgellm.errors import BadVocab
from edgellm.formats.mapped import MappedFile
from edgellm.tokenizer.byte_pairs import bytes_of, letters, merges_of

TIKTOKEN = "tiktoken.model"
NAMES = ("tokenizer.model", TIKTOKEN, "qwen.tiktoken")  # Llama's makers give such lists the name of SentencePiece's models
PRE = {"tokenization_kimi": "kimi-k2"}  # by the module that cuts words, which the list itself does not say
N_RESERVED = 256  # special tokens behind those that are listed, named or not


def tiktoken_keys(folder: str, settings: Json, rows: int) -> dict[str, Any]:
    """Keys without their prefix; {} where nothing says how words are cut. Raises BadVocab."""
    path, code = os.path.join(folder, TIKTOKEN), str(settings.get("auto_map"))
    pre = next((pre for module, pre in PRE.items() if module in code), None)
    if pre is None or not os.path.isfile(path):
        return {}
    pieces, tokens = _pieces(path, rows), Tokens(rows, path)
    for token, piece in enumerate(pieces):
        tokens.put(token, letters(piece), NORMAL)
    for token in range(len(pieces), min(len(pieces) + N_RESERVED, rows)):
        tokens.put(token, f"<|reserved_token_{token}|>", CONTROL)
    for token, entry in listed_by_id(settings):
        if len(pieces) <= token < rows:
            tokens.put(token, entry["content"], CONTROL if entry.get("special") else USER)
    return {"model": "gpt2", "pre": pre, **tokens.keys, "merges": merges_of(pieces)}


def tiktoken_name(folder: str) -> str:
    """The name of a list of base64 and ranks, "" where there is none."""
    for name in NAMES:
        if os.path.isfile(os.path.join(folder, name)):
            file = MappedFile(os.path.join(folder, name))
            try:
                if re.match(rb"[A-Za-z0-9+/]+=* \d+\r?\n", bytes(file.data[: 1 << 10])):
                    return name
            finally:
                file.close()
    return ""


def _pieces(path: str, rows: int) -> list[bytes]:
    """The bytes of tokens, which stand in the order of their ranks."""
    lines = text_file(path).splitlines()
    if len(lines) > rows:
        raise BadVocab(f"has {len(lines)} tokens, but the embedding has {rows} rows; download the folder again", file=path)
    pieces = []
    for number, line in enumerate(lines):
        text, _, rank = line.partition(" ")
        if rank != str(number):
            raise BadVocab(f"has {line[:60]!r} where the token of rank {number} belongs; download the folder again", file=path)
        pieces.append(bytes_of(text, path))
    return pieces
