"""What tokenizer.json and its neighbours say, in GGUF's keys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from edgellm.errors import BadVocab
from edgellm.formats.mapped import MappedFile
from edgellm.formats.safetensors import read_json

Json = Mapping[str, Any]  # Any: parsed JSON
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
PRE = {"llama": "llama-bpe", "mistral": "tekken", "qwen2": "qwen2", "qwen3": "qwen2", "gpt2": "gpt-2"}  # by model_type

UNSCORED = -1000.0  # of tokens whose order merges give, as llama.cpp's converter has it
# Control tokens of Gemma 4 that files show as text, so that parsers see them.
MARKERS = ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>')


def tokenizer_metadata(folder: str, config: Json, *, rows: int, merged: str = "") -> dict[str, Any]:
    """Tokenizer keys for a vocabulary of `rows` tokens, and the chat template; {} where the folder has no tokenizer.json.

    `merged`: GGUF's name for a tokenizer that joins visible spaces and letters by merges; SentencePiece's scores else.
    """
    path = os.path.join(folder, "tokenizer.json")
    if not os.path.isfile(path):
        return {}
    whole, beside = read_json(MappedFile(path)), optional(folder, "tokenizer_config.json")
    model = whole.get("model")
    vocab = model.get("vocab") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or model.get("type", "BPE") != "BPE" or not isinstance(vocab, Mapping):
        return {}  # such as Unigram: ids only, and text is refused with one sentence
    texts, types = _tokens(vocab, whole.get("added_tokens"), rows, path)
    merges = _merges(model.get("merges") or [], path)
    byte_fallback = bool(model.get("byte_fallback"))
    keys: dict[str, Any] = {"tokens": texts, "token_type": types}
    if byte_fallback:
        types[:] = [USER if text in MARKERS and merged else kind for text, kind in zip(texts, types, strict=True)]
        keys |= (
            {"model": merged, "merges": merges, "scores": [UNSCORED] * rows, "add_space_prefix": False, "add_bos_token": True}
            if merged
            else {"model": "llama", "scores": _scores(texts, merges), "add_space_prefix": _prefixes(whole)}
        )
        types[:] = [BYTE if kind == NORMAL and _is_byte(text) else kind for text, kind in zip(texts, types, strict=True)]
    else:
        keys |= {"model": "gpt2", "merges": merges, "pre": pre_of(config, whole)}
    return whole_metadata(keys, folder, config, beside)


def whole_metadata(keys: Json, folder: str, config: Json, beside: Json) -> dict[str, Any]:
    """Keys with their prefix, with what begins and ends a text and the chat template."""
    keys = {**keys, **special_keys(keys["tokens"], config, beside)}
    found = {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}
    template = chat_template(folder, beside)
    return found | ({"tokenizer.chat_template": template} if template and isinstance(template, str) else {})


def _merges(values: Any, path: str) -> list[str]:
    """Merges as "left right", from either way of writing them."""
    pairs: list[Any] = values if isinstance(values, list) else [values]
    pairs = [" ".join(pair) if isinstance(pair, list) and all(isinstance(part, str) for part in pair) else pair for pair in pairs]
    wrong = next((pair for pair in pairs if not isinstance(pair, str)), None)
    if wrong is not None:
        raise BadVocab(f"{str(wrong)[:40]!r} is not a merge of two texts; download the folder again", file=path, field="merges")
    return pairs


def pre_of(config: Json, whole: Json) -> str:
    """GGUF's name for how byte-level BPE cuts a text first. Of phi3 there are three kinds: GPT-4o's, GPT-4's and GPT-2's."""
    kind = str(config.get("model_type"))
    if kind == "phi3":
        rule = str(whole.get("pre_tokenizer"))
        return "gpt-4o" if "Lu}" in rule else "dbrx" if "{1,3}" in rule else "gpt-2"
    return PRE.get(kind, "default")


def _tokens(vocab: Json, added: Any, rows: int, path: str) -> tuple[list[str], list[int]]:
    texts, types = [f"[PAD{i}]" for i in range(rows)], [UNUSED] * rows
    for text, token in vocab.items():
        _put(texts, types, token, text, NORMAL, path)
    for entry in added if isinstance(added, list) else []:
        if isinstance(entry, Mapping) and isinstance(entry.get("content"), str) and not beyond(entry.get("id"), rows):
            _put(texts, types, entry.get("id"), entry["content"], CONTROL if entry.get("special") else USER, path)
    return texts, types


def beyond(token: Any, rows: int) -> bool:
    """Whether an added token has no row, and so never occurs: such as Gemma 3's for images in models that see none."""
    return type(token) is int and token >= rows


def _put(texts: list[str], types: list[int], token: Any, text: str, kind: int, path: str) -> None:
    if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < len(texts):
        raise BadVocab(
            f"the token {text[:40]!r} has the id {str(token)[:40]!r}, but the embedding has {len(texts)} rows; "
            "download the folder again",
            file=path,
            field="vocab",
        )
    texts[token], types[token] = text, kind


def _scores(texts: list[str], merges: list[str]) -> list[float]:
    """What makes SPM join pairs in the order of the merges: the earlier, the higher."""
    rank: dict[str, float] = {}
    for index, pair in enumerate(merges):
        rank.setdefault(pair.replace(" ", ""), float(-index))
    lowest = float(-len(merges) - 1)
    return [rank.get(text, lowest) for text in texts]


def _is_byte(text: str) -> bool:
    return len(text) == 6 and text.startswith("<0x") and text.endswith(">")


def _prefixes(whole: Json) -> bool:
    """Whether a space is put before a text: by a normalizer's Prepend, or a Metaspace."""
    text = str(whole.get("normalizer")) + str(whole.get("pre_tokenizer"))
    return "'Prepend'" in text or ("'Metaspace'" in text and "'prepend_scheme': 'never'" not in text)


def special_keys(texts: list[str], config: Json, beside: Json) -> dict[str, Any]:
    """Begin and end by text from tokenizer_config.json, else by id from config.json."""
    ids = {text: i for i, text in enumerate(texts)}
    found: dict[str, Any] = {}
    for key, ours in (("bos", "bos_token_id"), ("eos", "eos_token_id"), ("unk", "unknown_token_id")):
        text = beside.get(f"{key}_token")
        text = text.get("content") if isinstance(text, Mapping) else text
        named = config.get(f"{key}_token_id")
        named = named[0] if isinstance(named, list) and named else named
        token = ids.get(text, named) if isinstance(text, str) else named
        if isinstance(token, int) and not isinstance(token, bool) and 0 <= token < len(texts):
            found[ours] = token
    for role in ("bos", "eos"):
        adds = beside.get(f"add_{role}_token")
        if isinstance(adds, bool) and (f"{role}_token_id" in found or not adds):
            found[f"add_{role}_token"] = adds
    return found


def chat_template(folder: str, beside: Json) -> Any:
    """From a file of its own, else from tokenizer_config.json, `beside`: a text, or a list of templates with names; None."""
    path = os.path.join(folder, "chat_template.jinja")
    if os.path.isfile(path):
        return template_text(path)
    return beside.get("chat_template") or optional(folder, "chat_template.json").get("chat_template")


def template_text(path: str) -> str:
    file = MappedFile(path)
    try:
        return bytes(file.data).decode("utf-8", "replace")
    finally:
        file.close()


def optional(folder: str, name: str) -> Json:
    """A JSON file of the folder, {} where there is none."""
    path = os.path.join(folder, name)
    return read_json(MappedFile(path)) if os.path.isfile(path) else {}
