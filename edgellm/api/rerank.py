"""How well documents answer a query, by a model with a classifier for pairs of texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from edgellm.api import embed as embedding
from edgellm.api.embed import Vectors
from edgellm.arguments import check_flag
from edgellm.chat import template_variants
from edgellm.engine.prompts import TokenIds
from edgellm.errors import OptionError, shown
from edgellm.loading.loaded import LoadedModel
from edgellm.tokenizer import Tokenizer

TEMPLATE = "rerank"  # its name among a file's chat templates
PLACES = re.compile(r"(\{query\}|\{document\})")
XLM_ROBERTA, BERT = "t5", "bert"  # kinds of vocabularies


class Pair(NamedTuple):
    """A query with a document, as the model reads them."""

    ids: TokenIds
    types: TokenIds  # 1 for the tokens of the document, where the model has token types


def rerank(model: LoadedModel, query: str, documents: Sequence[str], truncate: bool, stop: Callable[[], bool] = bool) -> Vectors:
    """See `Model.rerank`."""
    if not isinstance(query, str):
        raise OptionError(f"query={shown(query)} is not a text; give a str.")
    if isinstance(documents, str) or not isinstance(documents, Sequence) or not all(isinstance(each, str) for each in documents):
        raise OptionError("documents is not a list of texts; give a list of str.")
    if model.info.pooling != "rank":
        raise OptionError(f"{model.path.name} isn't a reranker; take one, such as bge-reranker-v2-m3.")
    room = model.context if check_flag("truncate", truncate) else None
    template = template_variants(model.metadata, file=str(model.path)).get(TEMPLATE)
    if template is not None:
        pairs = [_filled(model.tokenizer, template, query, each, room) for each in documents]
    else:
        pairs = _joined(model, query, documents, room)
    embedding.check_lengths([pair.ids for pair in pairs], model)
    found = embedding.compute(model, [pair.ids for pair in pairs], types=[pair.types for pair in pairs], stop=stop)
    scores: Vectors = found[:, 0].astype(np.float32)
    # Of a decoder they are probabilities already.
    return scores if model.causal else (1 / (1 + np.exp(-scores))).astype(np.float32)


def _joined(model: LoadedModel, query: str, documents: Sequence[str], room: int | None) -> list[Pair]:
    """Pairs as `tokenizers` makes them: [CLS] query [SEP] document [SEP] of BERT, <s> query </s></s> document </s> of XLM-R."""
    tokenizer, kind = model.tokenizer, model.metadata.get("tokenizer.ggml.model")
    first, begins, ends = tokenizer.encode(query), int(tokenizer.add_bos), int(tokenizer.add_eos)
    if kind == XLM_ROBERTA and tokenizer.eos_id is not None:
        first.append(tokenizer.eos_id)
    pairs = []
    for document in documents:
        second = tokenizer.encode(document)[begins:]
        if room is not None and len(first) + len(second) > room:
            second = second[: max(room - len(first) - ends, 0)] + second[len(second) - ends :]
        types = np.repeat(np.array([0, kind == BERT and begins], np.int32), [len(first), len(second)])
        pairs.append(Pair(np.array([*first, *second], np.int32), types))
    return pairs


def _filled(tokenizer: Tokenizer, template: str, query: str, document: str, room: int | None) -> Pair:
    """A template with texts in its places; the document is cut where they are more than `room` tokens."""
    ids = _encoded(tokenizer, template, query, document)
    while room is not None and len(ids) > room and document:
        fewer = tokenizer.decode(tokenizer.encode(document, add_special=False)[: room - len(ids)])
        document = fewer if len(fewer) < len(document) else document[: len(document) // 2]
        ids = _encoded(tokenizer, template, query, document)
    return Pair(np.array(ids, np.int32), np.zeros(len(ids), np.int32))


def _encoded(tokenizer: Tokenizer, template: str, query: str, document: str) -> list[int]:
    """Token ids, whose control tokens are those of the template alone."""
    text, trusted, texts = "", list[tuple[int, int]](), {"{query}": query, "{document}": document}
    for part in PLACES.split(template):
        if part and part not in texts:
            trusted.append((len(text), len(text) + len(part)))
        text += texts.get(part, part)
    return tokenizer.encode_trusted(text, trusted)
