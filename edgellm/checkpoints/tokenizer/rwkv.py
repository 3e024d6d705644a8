"""GGUF's tokenizer keys of RWKV's world vocabulary, a text file of bytes in Python's notation."""

from __future__ import annotations

import ast
import os
from typing import Any

from edgellm.checkpoints.tokenizer.tokenizer_json import CONTROL, NORMAL, UNUSED
from edgellm.errors import BadVocab
from edgellm.formats.mapped import MappedFile

VOCABULARY = "rwkv_vocab_v20230424.txt"
END = "<s>"  # token 0, before and behind texts
TURN = "\\n\\n"  # what ends a turn in conversations, as a token's text
MAX_BYTES = 16 << 20


def rwkv_keys(folder: str, rows: int) -> dict[str, Any]:
    """Keys without their prefix; {} for a folder without such a file. Raises BadVocab."""
    path = os.path.join(folder, VOCABULARY)
    if not os.path.isfile(path):
        return {}
    texts, types = [f"[PAD{i}]" for i in range(rows)], [UNUSED] * rows
    texts[0], types[0] = END, CONTROL
    for number, line in enumerate(_lines(path), 1):
        token, text = _entry(line, number, path)
        if not 0 < token < rows:
            raise BadVocab(
                f"line {number} has the id {token}, but the embedding has {rows} rows; download the folder again", file=path
            )
        texts[token], types[token] = repr(text)[2:-1], NORMAL
    keys = {"model": "rwkv", "tokens": texts, "token_type": types, "bos_token_id": 0, "eos_token_id": 0}
    return keys | ({"eot_token_id": texts.index(TURN)} if TURN in texts else {})


def _lines(path: str) -> list[str]:
    file = MappedFile(path)
    try:
        if file.size > MAX_BYTES:
            raise BadVocab(f"has {file.size} bytes, more than any vocabulary", file=path)
        return bytes(file.data).decode("utf-8", "replace").splitlines()
    finally:
        file.close()


def _entry(line: str, number: int, path: str) -> tuple[int, bytes]:
    """The id and the bytes of a line: id, a literal of str or bytes, and how many bytes that are."""
    token, _, rest = line.partition(" ")
    literal, _, length = rest.rpartition(" ")
    try:
        value = ast.literal_eval(literal)
        text = value.encode() if isinstance(value, str) else value
        if not isinstance(text, bytes) or len(text) != int(length):
            raise ValueError("no literal of so many bytes")
        return int(token), text
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise BadVocab(
            f"line {number} is not an entry of a vocabulary ({str(error)[:60]}); download the folder again", file=path
        ) from error
