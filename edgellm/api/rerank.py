"""How well documents answer a query, by a model with a classifier for pairs of texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any  # Any: metadata

import numpy as np

from edgellm.api import embed as embedding
from edgellm.api.embed import Vectors
from edgellm.chat import template_variants
from edgellm.engine.prompts import TokenIds
from edgellm.errors import OptionError, shown
from edgellm.loading.loaded import LoadedModel
from edgellm.tokenizer import Tokenizer

TEMPLATE = "rerank"  # its name among a file's chat templates
PLACES = re.compile(r"\{(query|document)\}")
TWO_BETWEEN = "t5"  # vocabularies of XLM-RoBERTa, which put two ends between the texts of a pair


def rerank(model: LoadedModel, query: str, documents: Sequence[str]) -> Vectors:
    """See `Model.rerank`."""
    if not isinstance(query, str):
        raise OptionError(f"query={shown(query)} is not a text; give a str.")
    if isinstance(documents, str) or not isinstance(documents, Sequence) or not all(isinstance(each, str) for each in documents):
        raise OptionError("documents is not a list of texts; give a list of str.")
    if model.info.pooling != "rank":
        raise OptionError(f"{model.path.name} is no reranker; take one, such as bge-reranker-v2-m3, for rerank.")
    if not documents:
        return np.empty(0, np.float32)
    metadata, file = model.metadata, str(model.path)
    pairs = _pairs(model.tokenizer, query, documents, metadata, file)
    embedding.check_lengths(pairs, model)
    scores = embedding.compute(model, pairs)[:, 0]
    found: Vectors = scores.astype(np.float32)  # of a decoder they are probabilities
    return found if TEMPLATE in template_variants(metadata, file=file) else (1 / (1 + np.exp(-found))).astype(np.float32)


def _pairs(tokenizer: Tokenizer, query: str, documents: Sequence[str], metadata: Mapping[str, Any], file: str) -> list[TokenIds]:
    """Token ids of the query with each document."""
    template = template_variants(metadata, file=file).get(TEMPLATE)
    if template is not None:
        return [_filled(tokenizer, template, {"query": query, "document": each}) for each in documents]
    first, end = tokenizer.encode(query), metadata.get("tokenizer.ggml.model") == TWO_BETWEEN and tokenizer.eos_id
    between = [end] if isinstance(end, int) and not isinstance(end, bool) else []
    begins = int(tokenizer.add_bos)
    return [np.array([*first, *between, *tokenizer.encode(each)[begins:]], np.int32) for each in documents]


def _filled(tokenizer: Tokenizer, template: str, texts: Mapping[str, str]) -> TokenIds:
    """A template with texts in its places, whose control tokens are those of the template alone."""
    text, trusted = "", list[tuple[int, int]]()
    for part in re.split(r"(\{query\}|\{document\})", template):
        match = PLACES.fullmatch(part)
        if match is None and part:
            trusted.append((len(text), len(text) + len(part)))
        text += part if match is None else texts[match[1]]
    return np.array(tokenizer.encode_trusted(text, trusted), np.int32)
