"""Recognises folders of rerankers that are causal models, whose answers to a prompt are compared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any  # of parsed JSON

from edgellm.checkpoints.config import folder_name
from edgellm.checkpoints.families._answering import ANSWER_IDS, BY_TYPE
from edgellm.checkpoints.families.encoders import ranks
from edgellm.checkpoints.pooling import CONFIG, modules
from edgellm.errors import BadVocab, Unsupported
from edgellm.formats.mapped import MappedFile
from edgellm.formats.safetensors import read_json

MAX_BYTES = 1 << 20  # of a README that is looked through


def answer_settings(folder: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The ids of the answers' tokens, {} for folders of other models.

    A module of sentence-transformers names them; else they are those of the family's answers, where the folder's name, an older
    one or a heading of its README says that it is such a model, as llama.cpp's converter has it. Raises Unsupported, BadVocab.
    """
    answers = BY_TYPE.get(str(config.get("model_type"))) if not ranks(config) else None
    for kind, place in modules(folder):
        if kind == "LogitScore":
            settings = read_json(MappedFile(os.path.join(place, CONFIG)))
            ids = [settings.get("true_token_id"), settings.get("false_token_id")]
            if answers is None or any(type(token) is not int for token in ids):
                raise Unsupported("scores texts by tokens in a way that GGUF has no place for", file=place, field=kind)
            return {ANSWER_IDS: ids}
    called = f"{folder_name(folder)} {config.get('_name_or_path')}".lower()
    if answers is None or not any(name in called or f"# {name}" in _readme(folder) for name in answers.names):
        return {}
    path = os.path.join(folder, "tokenizer.json")
    model = read_json(MappedFile(path)).get("model") if os.path.isfile(path) else None
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    ids = [vocabulary.get(text) for text in answers.texts] if isinstance(vocabulary, Mapping) else []
    if not ids or any(type(token) is not int for token in ids):
        raise BadVocab(
            f"is a reranker, whose answers {' and '.join(answers.texts)} must be in its tokenizer.json; download the folder again",
            file=folder,
            field="vocab",
        )
    return {ANSWER_IDS: ids}


def _readme(folder: str) -> str:
    path = os.path.join(folder, "README.md")
    if not os.path.isfile(path) or not os.path.getsize(path):
        return ""
    file = MappedFile(path)
    try:
        return bytes(file.data[:MAX_BYTES]).decode("utf-8", "replace").lower()
    finally:
        file.close()
