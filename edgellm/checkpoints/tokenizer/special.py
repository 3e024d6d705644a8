"""Tokens that begin and end texts and answers, from the JSON files of a folder."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from edgellm.checkpoints.tokenizer.tokens import CONTROL, Json, entries, listed_by_id, optional, steps, text_of

ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")  # GGUF's roles of tokens that end an answer
BESIDE = {"pad": "padding", "cls": "cls", "sep": "seperator", "mask": "mask"}  # GGUF spells it so


def special_keys(texts: list[str], config: Json, settings: Json) -> dict[str, Any]:
    """Begin and end by text from tokenizer_config.json, else by id from config.json."""
    ids = {text: i for i, text in enumerate(texts)}
    found: dict[str, Any] = {}
    for key, ours in (("bos", "bos_token_id"), ("eos", "eos_token_id"), ("unk", "unknown_token_id")):
        text, named = text_of(settings.get(f"{key}_token")), config.get(f"{key}_token_id")
        named = named[0] if isinstance(named, list) and named else named
        token = ids.get(text, named) if isinstance(text, str) else named
        if type(token) is int and 0 <= token < len(texts):
            found[ours] = token
    for role in ("bos", "eos"):
        adds = settings.get(f"add_{role}_token")
        if isinstance(adds, bool) and (f"{role}_token_id" in found or not adds):
            found[f"add_{role}_token"] = adds
    return found


BARE = ("PreTrainedTokenizerFast", "TokenizersBackend")  # classes that put nothing around a text
FLAGS = {"strip_left": "lstrip", "strip_right": "rstrip", "single_word": "single_word"}  # of added tokens


def added_keys(whole: Json, settings: Json) -> dict[str, Any]:
    """Keys of edgellm's own: the added tokens that swallow white space before or behind them, or stand for a word by itself."""
    listed = [(each.get("id"), each) for each in entries(whole.get("added_tokens"))] or [*listed_by_id(settings)]
    found = {
        f"{key}_token_ids": sorted(token for token, each in listed if type(token) is int and each.get(flag) is True)
        for key, flag in FLAGS.items()
    }
    model = whole.get("model")
    vocab = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocab, Mapping):  # others are pieces of words as well
        words = {token: each.get("content") for token, each in listed}
        found["unmerged_token_ids"] = [token for token in found["single_word_token_ids"] if words[token] not in vocab]
    return {key: tokens for key, tokens in found.items() if tokens}


def ends(folder: str, config: Json, settings: Json, keys: Json) -> dict[str, Any]:
    """The ids of tokens beside BOS and EOS: those that fill up, part, and end a turn."""
    texts, types, found = keys["tokens"], keys["token_type"], dict[str, Any]()
    ids = {text: i for i, text in enumerate(texts)}
    for name, ours in BESIDE.items():
        if isinstance(text := text_of(settings.get(f"{name}_token")), str) and text in ids:
            found[f"{ours}_token_id"] = ids[text]
    for role, stands_in in (("bos", "cls"), ("eos", "seperator")):
        if f"{stands_in}_token_id" in found and f"{role}_token_id" not in keys:
            found[f"{role}_token_id"] = found[f"{stands_in}_token_id"]
    named = optional(folder, "generation_config.json").get("eos_token_id", config.get("eos_token_id"))
    for token in named if isinstance(named, list) else [named]:
        known = {key: value for key in ENDS if (value := found.get(key, keys.get(key))) is not None}
        is_control = type(token) is int and 0 <= token < len(texts) and types[token] == CONTROL
        if is_control and token not in known.values() and len(known) < len(ENDS):
            found[next(key for key in ENDS if key not in known)] = token
    return found


def around(whole: Json, settings: Json, keys: Json, *, embeds: bool) -> dict[str, Any]:
    """Which of BOS and EOS are put around a text: by tokenizer.json's post-processor, where no other file says it. Where it puts
    several tokens before a text, the others are in a key of edgellm's own."""
    texts, kind, found = keys["tokens"], keys["model"], dict[str, Any]()
    first, last = _outer(whole.get("post_processor"))
    templated = any(step.get("type") == "TemplateProcessing" for step in steps(whole.get("post_processor"), "processors"))
    for role, text in (("bos", first), ("eos", last)):
        token = keys.get(f"{role}_token_id")
        if text in texts and (kind == "bert" or embeds):  # its own, not that of the chat model it was made of
            own = "seperator" if (kind, role) == ("bert", "eos") else role
            token = found[f"{own}_token_id"] = texts.index(text)
        wanted = token is not None and texts[token] == text
        bare = bool(whole.get("model")) and not whole.get("post_processor") and settings.get("tokenizer_class") in BARE
        says = {"t5": True, "gpt2": role == "bos" or wanted, "llama": wanted or bare or (templated and text is None)}
        if says.get(kind) and f"add_{role}_token" not in keys:
            found[f"add_{role}_token"] = wanted
    leading = _leading(whole.get("post_processor"))
    if len(leading) > 1 and all(text in texts for text in leading):
        bos = keys["bos_token_id"] if {**keys, **found}.get("add_bos_token") else None
        found["leading_token_ids"] = [token for text in leading if (token := texts.index(text)) != bos]
    return found


def _leading(processor: Any) -> list[str]:
    """The special tokens that a template of tokenizer.json's post-processor puts before a text."""
    for step in steps(processor, "processors"):
        if step.get("type") == "TemplateProcessing":
            specials = itertools.takewhile(lambda each: isinstance(each.get("SpecialToken"), Mapping), entries(step.get("single")))
            return [str(each["SpecialToken"].get("id")) for each in specials]
    return []


def _outer(processor: Any) -> tuple[str | None, str | None]:
    """The special tokens that a post-processor of tokenizer.json puts before and behind a text."""
    if not isinstance(processor, Mapping):
        return None, None
    inner, single = processor.get("processors"), processor.get("single")
    if isinstance(inner, list):
        found = [_outer(one) for one in inner]
        return next((first for first, _ in found if first), None), next((last for _, last in found if last), None)
    if processor.get("type") in ("RobertaProcessing", "BertProcessing"):
        first, last = (value[0] if isinstance(value, list) and value else None for value in map(processor.get, ("cls", "sep")))
        return first, last
    texts = [special.get("id") if isinstance(special := each.get("SpecialToken"), Mapping) else None for each in entries(single)]
    return (texts[0], texts[-1] if len(texts) > 1 else None) if texts else (None, None)
