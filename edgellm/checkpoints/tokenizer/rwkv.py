"""GGUF's tokenizer keys of RWKV's world vocabulary, a text file of bytes in Python's notation."""

from __future__ import annotations

import ast
import os
from typing import Any

from edgellm.checkpoints.tokenizer.tokens import CONTROL, NORMAL, Tokens, text_file
from edgellm.errors import BadVocab

VOCABULARY = "rwkv_vocab_v20230424.txt"
END = "<s>"  # token 0, before and behind texts
TURN = "\\n\\n"  # what ends a turn in conversations, as a token's text


def rwkv_keys(folder: str, rows: int) -> dict[str, Any]:
    """Keys without their prefix; {} for a folder without such a file. Raises BadVocab."""
    path = os.path.join(folder, VOCABULARY)
    if not os.path.isfile(path):
        return {}
    tokens = Tokens(rows, path)
    tokens.put(0, END, CONTROL)
    for number, line in enumerate(text_file(path).splitlines(), 1):
        token, text = _entry(line, number, path)
        if not 0 < token < rows:
            raise BadVocab(
                f"line {number} has the id {token}, but the embedding has {rows} rows; download the folder again", file=path
            )
        tokens.put(token, repr(text)[2:-1], NORMAL)
    keys = {"model": "rwkv", **tokens.keys, "bos_token_id": 0, "eos_token_id": 0}
    return keys | ({"eot_token_id": tokens.texts.index(TURN)} if TURN in tokens.texts else {})


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
