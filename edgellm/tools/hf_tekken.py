"""GGUF's tokenizer keys of Mistral's tekken.json: the bytes of tokens in the order in which they are merged."""
from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from typing import Any

from edgellm.errors import BadVocab
from edgellm.formats.mapped import MappedFile
from edgellm.formats.mlx_tokenizer import CONTROL, NORMAL, UNUSED, USER
from edgellm.formats.safetensors import read_json
from edgellm.tokenizer.bpe import LETTERS

Json = Mapping[str, Any]         # Any: parsed JSON
TEKKEN = "tekken.json"
# Tokens of files that do not list them, as in mistral_common.
SPECIAL = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
           "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
           "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]")
ROLES = {"bos": "<s>", "eos": "</s>", "unknown": "<unk>", "padding": "<pad>"}
LETTER = dict(enumerate(LETTERS.tobytes().decode("utf-16-le")))


def tekken_keys(folder: str, rows: int) -> tuple[dict[str, Any], Json]:
    """Keys without their prefix but `pre`, and how words are cut in tokenizer.json's form; both {} without such a file.

    Raises BadVocab.
    """
    path = os.path.join(folder, TEKKEN)
    if not os.path.isfile(path):
        return {}, {}
    whole = read_json(MappedFile(path))
    config, vocab = whole.get("config"), whole.get("vocab")
    listed = whole.get("special_tokens") or [{"rank": i, "token_str": text} for i, text in enumerate(SPECIAL)]
    if not isinstance(config, Mapping) or not isinstance(config.get("pattern"), str) or not isinstance(vocab, list) or \
            not isinstance(listed, list):
        raise BadVocab("has no vocabulary or does not say how words are cut; download the folder again", file=path)
    n_special, n = config.get("default_num_special_tokens", len(listed)), config.get("default_vocab_size", rows)
    if type(n_special) is not int or type(n) is not int or not 0 <= n_special <= n <= rows:
        raise BadVocab(f"says that {str(n_special)[:40]} of {str(n)[:40]} tokens are special, but the embedding has {rows} rows; "
                       "download the folder again", file=path, field="config")
    texts = [f"<SPECIAL_{i}>" if i < n_special else f"[PAD{i}]" for i in range(rows)]
    types = [CONTROL if i < n_special else UNUSED for i in range(rows)]
    for entry in listed:
        rank, text = _entry(entry, "token_str", n_special, path)
        texts[rank], types[rank] = text, USER if entry.get("is_control") is False else CONTROL
    pieces: list[bytes] = []
    for entry in vocab[:n - n_special]:
        rank, text = _entry(entry, "token_bytes", len(vocab), path)
        if rank != len(pieces):
            raise BadVocab(f"has the rank {rank} at place {len(pieces)}; download the folder again", file=path, field="vocab")
        pieces.append(_bytes(text, path))
    texts[n_special:n_special + len(pieces)] = [letters(piece) for piece in pieces]
    types[n_special:n_special + len(pieces)] = [NORMAL] * len(pieces)
    ids = {text: i for i, text in enumerate(texts[:n_special])}
    keys = {"model": "gpt2", "tokens": texts, "token_type": types, "merges": merges_of(pieces), "add_bos_token": "<s>" in ids}
    keys |= {f"{role}_token_id": ids[text] for role, text in ROLES.items() if text in ids}
    split = {"type": "Split", "pattern": {"Regex": config["pattern"]}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return keys, {"model": {"ignore_merges": True}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}}


def letters(piece: bytes) -> str:
    """Bytes as GPT-2 writes them."""
    return "".join(map(LETTER.__getitem__, piece))


def merges_of(pieces: Sequence[bytes]) -> list[str]:
    """Every pair of tokens that is a token, in the order of these: what merging by the rank of the whole does."""
    rank = {piece: i for i, piece in enumerate(pieces)}
    found = []
    for piece in pieces:
        pairs = [(rank[piece[:at]], rank[piece[at:]]) for at in range(1, len(piece)) if piece[:at] in rank and piece[at:] in rank]
        found += [f"{letters(pieces[left])} {letters(pieces[right])}" for left, right in sorted(pairs)]
    return found


def _entry(entry: Any, key: str, n: int, path: str) -> tuple[int, str]:
    """Rank and text of a token."""
    rank, text = (entry.get("rank"), entry.get(key)) if isinstance(entry, Mapping) else (None, None)
    if type(rank) is not int or not 0 <= rank < n or not isinstance(text, str):
        raise BadVocab(f"{str(entry)[:60]!r} is not one of {n} tokens with rank and {key}; download the folder again", file=path)
    return rank, text


def _bytes(text: str, path: str) -> bytes:
    try:
        piece = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadVocab(f"{text[:40]!r} is not base64; download the folder again", file=path, field="token_bytes") from error
    if not piece:
        raise BadVocab("has a token without bytes; download the folder again", file=path, field="token_bytes")
    return piece
