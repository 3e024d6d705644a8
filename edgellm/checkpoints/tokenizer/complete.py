"""GGUF's tokenizer keys of a checkpoint: from tokenizer.model or tokenizer.json, with special tokens and chat templates."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from edgellm.checkpoints.families.qwen3 import ANSWER_IDS, ANSWERS
from edgellm.checkpoints.tokenizer.encoders import encoder_keys, steps
from edgellm.checkpoints.tokenizer.pre_tokenizer import recognise
from edgellm.checkpoints.tokenizer.rwkv import rwkv_keys
from edgellm.checkpoints.tokenizer.sentencepiece import BPE, read_sentencepiece
from edgellm.checkpoints.tokenizer.tekken import tekken_cuts
from edgellm.checkpoints.tokenizer.tokenizer_json import (
    CONTROL,
    NORMAL,
    UNUSED,
    USER,
    chat_template,
    optional,
    pre_of,
    special_keys,
    template_text,
)
from edgellm.errors import BadVocab, Unsupported
from edgellm.formats.mapped import MappedFile

Json = Mapping[str, Any]  # Any: parsed JSON
PREFIX, TEMPLATE = "tokenizer.ggml.", "tokenizer.chat_template"
MORE_TEMPLATES = "additional_chat_templates"
MODEL, FAST, SETTINGS = "tokenizer.model", "tokenizer.json", "tokenizer_config.json"
USUAL = ("NFC", "Prepend", "Replace")  # normalizers: texts are composed already, and spaces become visible
ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")  # GGUF's roles of tokens that end an answer
ADDED_SCORE = -1000.0  # of tokens that were added to a SentencePiece vocabulary, as llama.cpp's converter gives them

# What Qwen3's rerankers were trained to answer, with places for the query and the document, as in llama.cpp's files.
RERANK = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that "
    'the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant '
    "passages that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n"
    "</think>\n\n"
)


def complete(folder: str, config: Json, metadata: dict[str, Any], *, rows: int, pre: str | None) -> list[str]:
    """Bring the tokenizer keys that reading the folder gave into the form in which llama.cpp's converter writes them.

    `rows`: of the embedding. `pre`: `tokenizer.ggml.pre`, None to find it out. Returns notes for the user. Raises BadVocab, and
    Unsupported where GGUF has no name for how the tokenizer cuts words.
    """
    whole, settings = optional(folder, FAST), optional(folder, SETTINGS)
    notes: list[str] = []
    if encoder := encoder_keys(folder, whole, settings, rows):
        metadata |= {PREFIX + key: value for key, value in (encoder | special_keys(encoder["tokens"], config, settings)).items()}
    elif world := rwkv_keys(folder, rows):
        metadata |= {PREFIX + key: value for key, value in world.items()}
    elif os.path.isfile(os.path.join(folder, MODEL)) and _tiktoken(folder) != MODEL:
        notes += _from_sentencepiece(folder, config, metadata, whole, settings, rows)
    else:
        notes += _not_normalised(whole)
    if metadata.get(PREFIX + "model") == "gpt2":
        cuts = whole or tekken_cuts(folder)
        metadata[PREFIX + "pre"] = pre or (_pre(cuts, config, folder) if cuts else metadata[PREFIX + "pre"])
    if PREFIX + "tokens" not in metadata and (other := _tiktoken(folder)):
        raise Unsupported(
            "is a tokenizer of tiktoken's, which edgellm cannot convert; take a copy of the model that has a "
            "tokenizer.json, or a .gguf file of it",
            file=os.path.join(folder, other),
        )
    if PREFIX + "tokens" not in metadata:
        metadata[PREFIX + "model"] = "none"
        return [*notes, "no tokenizer was found that GGUF can hold: the model takes token ids only"]
    _begin_and_end(folder, config, settings, metadata)
    _around(whole, metadata)
    _templates(folder, settings, metadata)
    if tuple(metadata[PREFIX + "tokens"][token] for token in config.get(ANSWER_IDS, ())) == ANSWERS:
        metadata[f"{TEMPLATE}.rerank"] = RERANK
    if names := [key.removeprefix(TEMPLATE + ".") for key in metadata if key.startswith(TEMPLATE + ".")]:
        metadata["tokenizer.chat_templates"] = sorted(names)
    return notes


def _pre(whole: Json, config: Json, folder: str) -> str:
    found = recognise(whole, pre_of(config, whole))
    if found is None:
        raise Unsupported(
            "cuts words in a way that GGUF has no name for; name the nearest one with --pre (such as gpt-2), "
            "and check the result with edgellm tokenize",
            file=folder,
            field="pre_tokenizer",
        )
    return found


def _tiktoken(folder: str) -> str:
    """The name of a list of base64 and ranks, "" where there is none; Llama's makers give it the name of SentencePiece's models."""
    for name in (MODEL, "tiktoken.model", "qwen.tiktoken"):
        if os.path.isfile(os.path.join(folder, name)):
            file = MappedFile(os.path.join(folder, name))
            try:
                if re.match(rb"[A-Za-z0-9+/]+=* \d+\r?\n", bytes(file.data[: 1 << 10])):
                    return name
            finally:
                file.close()
    return ""


def _not_normalised(whole: Json) -> list[str]:
    """What normalizers before BPE do that GGUF cannot say."""
    kinds = [str(step.get("type")) for step in steps(whole.get("normalizer"), "normalizers")]
    listed = ", ".join(kind for kind in kinds if kind not in USUAL)
    return [f"tokenizer.json normalises texts ({listed}), which GGUF cannot say: some texts get other ids"] if listed else []


def _from_sentencepiece(folder: str, config: Json, metadata: dict[str, Any], whole: Json, settings: Json, rows: int) -> list[str]:
    model = read_sentencepiece(os.path.join(folder, MODEL))
    if model.kind != BPE:
        raise Unsupported(
            "is a SentencePiece model of another kind than BPE; edgellm cannot convert it", file=os.path.join(folder, MODEL)
        )
    texts, types = [f"[PAD{i}]" for i in range(rows)], [UNUSED] * rows
    scores = [ADDED_SCORE] * rows
    if len(model.texts) > rows:
        raise BadVocab(
            f"has {len(model.texts)} pieces, but the embedding has {rows} rows; download the folder again",
            file=os.path.join(folder, MODEL),
        )
    texts[: len(model.texts)], types[: len(model.types)] = model.texts, model.types
    scores[: len(model.scores)] = model.scores
    for token, text, special in _added(folder, whole, settings):
        if 0 <= token < rows and (text != texts[token] or types[token] == NORMAL or (special and types[token] == USER)):
            texts[token], types[token], scores[token] = text, CONTROL if special else USER, ADDED_SCORE
    asked = settings.get("add_prefix_space")
    prefixed = asked if isinstance(asked, bool) else model.add_dummy_prefix
    for key in [key for key in metadata if key.startswith(PREFIX)]:
        del metadata[key]
    metadata |= {
        PREFIX + "model": "llama",
        PREFIX + "pre": "default",
        PREFIX + "tokens": texts,
        PREFIX + "scores": scores,
        PREFIX + "token_type": types,
        PREFIX + "add_space_prefix": prefixed,
    }
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
    return found + [
        (token, entry["content"], bool(entry.get("special")))
        for token, entry in pairs
        if type(token) is int and isinstance(entry.get("content"), str)
    ]


def _begin_and_end(folder: str, config: Json, settings: Json, metadata: dict[str, Any]) -> None:
    """Whether a text gets BOS, and the ids that end a turn or fill up."""
    texts = metadata[PREFIX + "tokens"]
    ids = {text: i for i, text in enumerate(texts)}
    for name, key in (("pad", "padding"), ("cls", "cls"), ("sep", "seperator"), ("mask", "mask")):  # GGUF spells it so
        text = settings.get(f"{name}_token")
        text = text.get("content") if isinstance(text, Mapping) else text
        if isinstance(text, str) and text in ids:
            metadata[f"{PREFIX}{key}_token_id"] = ids[text]
    for role, stands_in in (("bos", "cls"), ("eos", "seperator")):
        if f"{PREFIX}{stands_in}_token_id" in metadata:
            metadata.setdefault(f"{PREFIX}{role}_token_id", metadata[f"{PREFIX}{stands_in}_token_id"])
    ends = optional(folder, "generation_config.json").get("eos_token_id", config.get("eos_token_id"))
    for token in ends if isinstance(ends, list) else [ends]:
        known = type(token) is int and 0 <= token < len(texts) and metadata[PREFIX + "token_type"][token] == CONTROL
        key = next((key for key in ENDS if PREFIX + key not in metadata), "")
        if known and key and all(metadata.get(PREFIX + taken) != token for taken in ENDS):
            metadata[PREFIX + key] = token


def _around(whole: Json, metadata: dict[str, Any]) -> None:
    """What is put before and behind a text: by tokenizer.json's post-processor, of the tokens that GGUF has roles for."""
    texts, kind = metadata[PREFIX + "tokens"], metadata[PREFIX + "model"]
    first, last = _ends(whole.get("post_processor"))
    templated = any(step.get("type") == "TemplateProcessing" for step in steps(whole.get("post_processor"), "processors"))
    embeds = f"{metadata['general.architecture']}.pooling_type" in metadata
    for role, text in (("bos", first), ("eos", last)):
        if embeds and text in texts and kind != "bert":
            metadata[f"{PREFIX}{role}_token_id"] = texts.index(text)  # its own, not that of the chat model it was made of
        token = metadata.get(f"{PREFIX}{role}_token_id")
        wanted = token is not None and texts[token] == text
        if (
            kind == "t5"
            or (kind == "gpt2" and (role == "bos" or wanted))
            or (kind == "llama" and (wanted or (templated and text is None)))
        ):
            metadata.setdefault(f"{PREFIX}add_{role}_token", wanted)


def _ends(processor: Any) -> tuple[str | None, str | None]:
    """The special tokens that a post-processor of tokenizer.json puts before and behind a text."""
    if not isinstance(processor, Mapping):
        return None, None
    inner, single = processor.get("processors"), processor.get("single")
    if isinstance(inner, list):
        found = [_ends(one) for one in inner]
        return next((first for first, _ in found if first), None), next((last for _, last in found if last), None)
    if processor.get("type") in ("RobertaProcessing", "BertProcessing"):
        pair = [value[0] if isinstance(value, list) and value else None for value in (processor.get("cls"), processor.get("sep"))]
        return pair[0], pair[1]
    texts = []
    for entry in single if isinstance(single, list) else []:
        special = entry.get("SpecialToken") if isinstance(entry, Mapping) else None
        texts.append(special.get("id") if isinstance(special, Mapping) else None)
    return (texts[0], texts[-1] if len(texts) > 1 else None) if texts else (None, None)


def _templates(folder: str, settings: Json, metadata: dict[str, Any]) -> None:
    """The chat template, and templates under other names: from a list, where "default" is the usual one, or files."""
    found = chat_template(folder, settings)
    named = (
        [(entry.get("name"), entry.get("template")) for entry in found if isinstance(entry, Mapping)]
        if isinstance(found, list)
        else [("default", found)]
    )
    more = os.path.join(folder, MORE_TEMPLATES)
    files = sorted(os.listdir(more)) if os.path.isdir(more) else []
    named += [(name.removesuffix(".jinja"), template_text(os.path.join(more, name))) for name in files if name.endswith(".jinja")]
    for name, text in named:
        if isinstance(name, str) and name and isinstance(text, str) and text:
            metadata[TEMPLATE if name == "default" else f"{TEMPLATE}.{re.sub('[^A-Za-z0-9]', '_', name)}"] = text
