"""GGUF's tokenizer keys of a checkpoint: from tokenizer.model or tokenizer.json, with special tokens and chat templates."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from edgellm.errors import BadVocab, Unsupported
from edgellm.formats.mapped import MappedFile
from edgellm.formats.mlx_tokenizer import CONTROL, NORMAL, UNUSED, USER, pre_of, special_keys
from edgellm.formats.safetensors import read_json
from edgellm.formats.sentencepiece_model import BPE, read_sentencepiece
from edgellm.tools.hf_pre_tokenizer import recognise

Json = Mapping[str, Any]         # Any: parsed JSON
PREFIX, TEMPLATE = "tokenizer.ggml.", "tokenizer.chat_template"
MODEL, FAST, SETTINGS = "tokenizer.model", "tokenizer.json", "tokenizer_config.json"
ADDED_SCORE = -1000.0            # of tokens that were added to a SentencePiece vocabulary, as llama.cpp's converter gives them


def complete(folder: str, config: Json, metadata: dict[str, Any], *, rows: int, pre: str | None) -> list[str]:
    """Bring the tokenizer keys that reading the folder gave into the form in which llama.cpp's converter writes them.

    `rows`: of the embedding. `pre`: `tokenizer.ggml.pre`, None to find it out. Returns notes for the user. Raises BadVocab, and
    Unsupported where GGUF has no name for how the tokenizer cuts words.
    """
    whole, settings = optional(folder, FAST), optional(folder, SETTINGS)
    notes: list[str] = []
    if os.path.isfile(os.path.join(folder, MODEL)):
        notes += _from_sentencepiece(folder, config, metadata, whole, settings, rows)
    if metadata.get(PREFIX + "model") == "gpt2":
        metadata[PREFIX + "pre"] = pre or _pre(whole, config, folder)
    if PREFIX + "tokens" not in metadata:
        metadata[PREFIX + "model"] = "none"
        return [*notes, "no tokenizer was found that GGUF can hold: the model takes token ids only"]
    _begin_and_end(folder, whole, settings, metadata)
    _templates(settings, metadata)
    return notes


def optional(folder: str, name: str) -> Json:
    """A JSON file of the folder, {} where there is none."""
    path = os.path.join(folder, name)
    return read_json(MappedFile(path)) if os.path.isfile(path) else {}


def _pre(whole: Json, config: Json, folder: str) -> str:
    found = recognise(whole, pre_of(config, whole))
    if found is None:
        raise Unsupported("cuts words in a way that GGUF has no name for; name the nearest one with --pre (such as gpt-2), "
                          "and check the result with edgellm tokenize", file=os.path.join(folder, FAST),
                          field="pre_tokenizer")
    return found


def _from_sentencepiece(folder: str, config: Json, metadata: dict[str, Any], whole: Json, settings: Json, rows: int) -> list[str]:
    model = read_sentencepiece(os.path.join(folder, MODEL))
    if model.kind != BPE:
        raise Unsupported("is a SentencePiece model of another kind than BPE; edgellm cannot convert it",
                          file=os.path.join(folder, MODEL))
    texts, types = [f"[PAD{i}]" for i in range(rows)], [UNUSED] * rows
    scores = [ADDED_SCORE] * rows
    if len(model.texts) > rows:
        raise BadVocab(f"has {len(model.texts)} pieces, but the embedding has {rows} rows; download the folder again",
                       file=os.path.join(folder, MODEL))
    texts[: len(model.texts)], types[: len(model.types)] = model.texts, model.types
    scores[: len(model.scores)] = model.scores
    for token, text, special in _added(folder, whole, settings):
        if 0 <= token < rows and (text != texts[token] or types[token] == NORMAL):
            texts[token], types[token], scores[token] = text, CONTROL if special else USER, ADDED_SCORE
    for key in [key for key in metadata if key.startswith(PREFIX)]:
        del metadata[key]
    metadata |= {PREFIX + "model": "llama", PREFIX + "pre": "default", PREFIX + "tokens": texts, PREFIX + "scores": scores,
                 PREFIX + "token_type": types, PREFIX + "add_space_prefix": model.add_dummy_prefix}
    if model.remove_extra_whitespaces:
        metadata[PREFIX + "remove_extra_whitespaces"] = True
    metadata |= {PREFIX + key: value for key, value in special_keys(texts, config, settings).items()}
    if model.normalizer not in ("", "identity"):
        return [f"tokenizer.model normalises texts ({model.normalizer}), which GGUF cannot say: some texts get other ids"]
    return []


def _added(folder: str, whole: Json, settings: Json) -> list[tuple[int, str, bool]]:
    """Tokens beside the model's own: id, text, whether they are control tokens. What is said last counts."""
    found: list[tuple[int, str, bool]] = []
    added = optional(folder, "added_tokens.json")
    found += [(token, text, False) for text, token in added.items() if type(token) is int]
    entries = whole.get("added_tokens")
    pairs = [(entry.get("id"), entry) for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    decoder = settings.get("added_tokens_decoder")
    if isinstance(decoder, Mapping):
        pairs += [(int(token), entry) for token, entry in decoder.items() if token.isdecimal() and isinstance(entry, Mapping)]
    return found + [(token, entry["content"], bool(entry.get("special"))) for token, entry in pairs
                    if type(token) is int and isinstance(entry.get("content"), str)]


def _begin_and_end(folder: str, whole: Json, settings: Json, metadata: dict[str, Any]) -> None:
    """Whether a text gets BOS, and the ids that end a turn or fill up."""
    texts = metadata[PREFIX + "tokens"]
    ids = {text: i for i, text in enumerate(texts)}
    if PREFIX + "add_bos_token" not in metadata and metadata[PREFIX + "model"] == "gpt2":
        bos = metadata.get(PREFIX + "bos_token_id")
        metadata[PREFIX + "add_bos_token"] = bos is not None and _starts_with(whole.get("post_processor"), texts[bos])
    pad = settings.get("pad_token")
    pad = pad.get("content") if isinstance(pad, Mapping) else pad
    if isinstance(pad, str) and pad in ids:
        metadata[PREFIX + "padding_token_id"] = ids[pad]
    ends = optional(folder, "generation_config.json").get("eos_token_id")
    for token in ends if isinstance(ends, list) else [ends]:
        known = type(token) is int and 0 <= token < len(texts) and metadata[PREFIX + "token_type"][token] == CONTROL
        if known and token != metadata.get(PREFIX + "eos_token_id"):
            metadata[PREFIX + ("eot_token_id" if PREFIX + "eos_token_id" in metadata else "eos_token_id")] = token
            break


def _starts_with(processor: Any, text: str) -> bool:
    """Whether a post-processor of tokenizer.json puts this special token before a text."""
    if not isinstance(processor, Mapping):
        return False
    inner = processor.get("processors")
    if isinstance(inner, list):
        return any(_starts_with(one, text) for one in inner)
    single = processor.get("single")
    first = single[0] if isinstance(single, list) and single else None
    special = first.get("SpecialToken") if isinstance(first, Mapping) else None
    return isinstance(special, Mapping) and special.get("id") == text


def _templates(settings: Json, metadata: dict[str, Any]) -> None:
    """Templates under several names: a list in tokenizer_config.json, of which "default" is the usual one."""
    listed = settings.get("chat_template")
    for entry in listed if isinstance(listed, list) else []:
        name, text = (entry.get("name"), entry.get("template")) if isinstance(entry, Mapping) else (None, None)
        if isinstance(name, str) and name.isidentifier() and isinstance(text, str):
            metadata[TEMPLATE if name == "default" else f"{TEMPLATE}.{name}"] = text
