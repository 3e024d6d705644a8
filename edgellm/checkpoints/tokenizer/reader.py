"""Reads a folder's tokenizer into GGUF's keys, for folders that run as they are and for those that are converted."""

from __future__ import annotations

import os
from typing import Any

from edgellm.checkpoints.families._answering import ANSWER_IDS, BY_TYPE
from edgellm.checkpoints.tokenizer.bpe import bpe_keys
from edgellm.checkpoints.tokenizer.encoders import encoder_keys
from edgellm.checkpoints.tokenizer.library import composes, library_keys, unsaid
from edgellm.checkpoints.tokenizer.pre_tokenizer import own_cuts, recognise
from edgellm.checkpoints.tokenizer.rwkv import rwkv_keys
from edgellm.checkpoints.tokenizer.sentencepiece import MODEL, sentencepiece_keys
from edgellm.checkpoints.tokenizer.special import added_keys, around, ends, special_keys
from edgellm.checkpoints.tokenizer.tekken import tekken_cuts, tekken_keys
from edgellm.checkpoints.tokenizer.templates import TEMPLATE, chat_templates
from edgellm.checkpoints.tokenizer.tiktoken import tiktoken_keys, tiktoken_name
from edgellm.checkpoints.tokenizer.tokens import Json, optional, steps
from edgellm.errors import Unsupported

PREFIX = "tokenizer.ggml."
SETTINGS = "tokenizer_config.json"
USUAL = ("NFC", "Prepend", "Replace")  # normalizers: texts are composed already, and spaces become visible
UNSAID = "unsaid"  # key of edgellm's own: the step of a tokenizer.json that GGUF has no keys for
UNNAMED_CUTS = (
    "cuts words in a way that GGUF has no name for; name the nearest one with --pre (such as gpt-2), "
    "and check the result with edgellm tokenize"
)


def read_tokenizer(
    folder: str, config: Json, *, rows: int, merged: str = "", pre: str | None = None, embeds: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """GGUF's tokenizer keys with the chat templates, {} for a folder without a tokenizer, and notes for the user.

    `rows`: of the embedding. `merged`: GGUF's name for a tokenizer that joins visible spaces and letters by merges. `pre`:
    `tokenizer.ggml.pre`, None to recognise it. `embeds`: the model is an embedding model. Raises BadVocab, and Unsupported for
    tokenizers that edgellm cannot run.
    """
    whole, settings = optional(folder, "tokenizer.json"), optional(folder, SETTINGS)
    keys, notes = _vocabulary(folder, whole, settings, rows, merged)
    if not keys:
        if other := tiktoken_name(folder):
            raise Unsupported(
                "is a tokenizer of tiktoken's, which edgellm cannot convert; take a copy of the model that has a "
                "tokenizer.json, or a .gguf file of it",
                file=os.path.join(folder, other),
            )
        return {}, [*notes, "no tokenizer was found that GGUF can hold: the model takes token ids only"]
    if pre is None and whole.get("model") and (step := unsaid(whole, keys["model"])):
        keys |= {"pre": "default", **keys, **library_keys(whole, os.path.join(folder, "tokenizer.json")), UNSAID: step}
        notes = []
    elif composes(whole):
        keys["normalizer.nfc"] = True
    if keys["model"] == "gpt2" and UNSAID not in keys:
        keys |= _cuts(folder, whole or tekken_cuts(folder), keys.get("pre"), pre)
    if keys["model"] != "rwkv":
        keys |= special_keys(keys["tokens"], config, settings) | added_keys(whole, settings)
    templates = chat_templates(folder, settings)
    found = {PREFIX + key: value for key, value in keys.items() if value is not None}
    if TEMPLATE in templates and ("merges" in keys or "pre" not in keys) and not isinstance(settings.get("chat_template"), list):
        found[TEMPLATE] = templates[TEMPLATE]  # in the order that files have had since they were first written
    added = ends(folder, config, settings, keys)
    added |= around(whole, settings, keys | added, embeds=embeds)
    found |= {PREFIX + key: value for key, value in added.items()} | templates
    answers = tuple(keys["tokens"][token] for token in config.get(ANSWER_IDS, ()))
    if forms := [each.template for each in BY_TYPE.values() if each.texts == answers]:
        found[f"{TEMPLATE}.rerank"] = forms[0]
    if names := [key.removeprefix(TEMPLATE + ".") for key in found if key.startswith(TEMPLATE + ".")]:
        found["tokenizer.chat_templates"] = sorted(names)
    return found, notes


def _vocabulary(folder: str, whole: Json, settings: Json, rows: int, merged: str) -> tuple[dict[str, Any], list[str]]:
    """The keys of the first kind of vocabulary that the folder has, {} for none, and notes."""
    if keys := encoder_keys(folder, whole, settings, rows) or rwkv_keys(folder, rows):
        return keys, []
    if os.path.isfile(os.path.join(folder, MODEL)) and tiktoken_name(folder) != MODEL:
        keys, rule = sentencepiece_keys(folder, whole, settings, rows)
        return keys, _normalised(MODEL, rule)
    kinds = [str(step.get("type")) for step in steps(whole.get("normalizer"), "normalizers")]
    keys = bpe_keys(folder, whole, rows, merged) or tekken_keys(folder, rows) or tiktoken_keys(folder, settings, rows)
    return keys, _normalised("tokenizer.json", ", ".join(kind for kind in kinds if kind not in USUAL))


def _normalised(name: str, rules: str) -> list[str]:
    return [f"{name} normalises texts ({rules}), which GGUF cannot say: some texts get other ids"] if rules else []


def _cuts(folder: str, cuts: Json, known: str | None, pre: str | None) -> dict[str, Any]:
    """The pre-tokenizer: GGUF's name for it, or where it has none the file's own expressions. Raises Unsupported."""
    if pre is None and cuts and (pre := recognise(cuts)) is None:
        if own := own_cuts(cuts):
            return own
        raise Unsupported(UNNAMED_CUTS, file=folder, field="pre_tokenizer")
    return {"pre": pre or known}
