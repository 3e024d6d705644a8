"""Rerankers among causal models, whose answer to a prompt is one of two tokens, or the score of a head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import NamedTuple  # Any: of parsed JSON

import numpy as np

from edgellm.checkpoints.families._family import INNER, OTHERS, OUTER, Family, no_keys
from edgellm.checkpoints.families._pieces import Config, Floats, Metadata, Rows, Shape, Slice
from edgellm.checkpoints.families.encoders import RANK, label_keys, ranks

ANSWER_IDS = "answer_token_ids"  # a setting that reading the folder adds: the ids of both answers, where it is a reranker's


class Answers(NamedTuple):
    """How the rerankers of a maker are asked, and the answers that they give."""

    names: tuple[str, ...]  # in their folders' names
    texts: tuple[str, str]  # of a document that fits, and of another
    template: str  # with places for the query and the document


QWEN3 = Answers(  # as in llama.cpp's files
    ("qwen3-reranker", "qwen3-vl-reranker"),
    ("yes", "no"),
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that "
    'the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant '
    "passages that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n"
    "</think>\n\n",
)
MXBAI = Answers(  # mixedbread's second rerankers
    ("mxbai-rerank",),
    ("1", "0"),
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
    "query: {query}\ndocument: {document}\nYou are a search relevance expert who evaluates how well documents match search "
    "queries. For each query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
    "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:<|im_end|>\n<|im_start|>assistant\n",
)
BY_TYPE = {"qwen2": MXBAI, "qwen3": QWEN3, "qwen3_vl": QWEN3, "qwen3_vl_text": QWEN3}  # model types


def reranking(config: Config, kind: str) -> str:
    """The family of a reranker: with a head for classification, or one whose answers are rows of the output matrix."""
    if ranks(config):
        return f"{kind}, classifying"
    tied = ", tied" if config.get("tie_word_embeddings") else ""
    return f"{kind}, answering{tied}" if config.get(ANSWER_IDS) else ""


def answers(config: Config, shape: Shape) -> Rows:
    return np.array(config[ANSWER_IDS])


def labels(config: Config, shape: Shape) -> Rows:
    """Each label's row, that of a single one twice."""
    return np.zeros(2, np.int64) if shape[0] == 1 else np.arange(shape[0])


def against_zero(config: Config, values: Floats) -> Floats:
    """The second of two equal rows becomes 0: then the softmax of both is the sigmoid of a single score."""
    twice = len(values) == 2 and np.array_equal(values[0], values[1])
    return np.stack([values[0], np.zeros_like(values[0])]) if twice else values


def rerankers(
    architecture: str,
    kind: str,
    *,
    refuses: Callable[[Config], str],
    keys: Callable[[Config], Mapping[str, object]] = no_keys,
    own_ropes: Set[str] = frozenset(),
) -> tuple[Family, ...]:
    """The families of `reranking`."""

    def answering(config: Config) -> Metadata:
        return {**keys(config), "pooling_type": RANK, "classifier.output_labels": list(BY_TYPE[kind].texts)}

    def classifying(config: Config) -> Metadata:
        return answering(config) | (label_keys(config) if len(config.get("id2label") or ()) > 1 else {})

    rows, head, heads = Slice("cls.output", rows=answers), Slice(rows=labels, values=against_zero), r"|lm_head\..*"
    return (
        Family(
            architecture,
            (f"{kind}, answering",),
            INNER,
            pieces={"output": (rows,)},
            keys=answering,
            own_ropes=own_ropes,
            refuses=refuses,
        ),
        Family(
            architecture,
            (f"{kind}, answering, tied",),
            INNER,
            pieces={"token_embd": (Slice(), rows)},
            keys=answering,
            own_ropes=own_ropes,
            refuses=refuses,
            skipped=OTHERS + heads,
        ),
        Family(
            architecture,
            (f"{kind}, classifying",),
            INNER,
            OUTER | {"score": "cls.output"},
            pieces={"cls.output": (head,)},
            keys=classifying,
            own_ropes=own_ropes,
            refuses=refuses,
            skipped=OTHERS + heads,
        ),
    )
