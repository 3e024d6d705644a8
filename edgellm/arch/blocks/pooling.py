"""The end of an embedding model: the rows of a text become one vector, or a reranker's scores."""

from __future__ import annotations

from edgellm.errors import Unsupported
from edgellm.graph import Builder, Value
from edgellm.hparams import Keys
from edgellm.ops.dense import activation, matmul
from edgellm.ops.norm import layer_norm
from edgellm.ops.pool import POOLINGS, pool, softmax

DENSE = ("dense_2", "dense_3")  # sentence-transformers' modules behind the pooling


def pooling_of(keys: Keys) -> str | None:
    """The file's pooling, None if it has none; an encoder takes the mean where the file names nothing else."""
    number = keys.integer("pooling_type", 0, len(POOLINGS), default=0)
    return POOLINGS[number - 1] if number else None if keys.causal else "mean"


def embedding(g: Builder, keys: Keys, x: Value, *, ranked: str = "first", head: str = "tanh") -> None:
    """Name the vector of each text, or a reranker's scores. x: (T, n).

    `ranked`: the rows that an encoder's classifier sees; `head`: activation of its dense layer.
    """
    by_name = {"mean": "mean", "cls": "first", "last": "last", "rank": "last" if keys.causal else ranked}
    x = pool(g, x, by_name[g.pooling or "mean"])
    if g.pooling == "rank":
        x = _scores(g, keys, x, head)
    else:
        for name in DENSE:
            if f"{name}.weight" in g.tensors:
                x = matmul(g, x, name, keys.rows(f"{name}.weight"))
    g.output("embedding", x)


def _scores(g: Builder, keys: Keys, x: Value, head: str) -> Value:
    """A classifier's labels: a dense layer where the file has one, then the labels; of decoders their probabilities."""
    if "cls.weight" in g.tensors:
        x = activation(g, head, matmul(g, x, "cls", keys.rows("cls.weight")))
        if "cls.norm.weight" in g.tensors:
            x = layer_norm(g, x, "cls.norm", keys.norm_epsilon)
    elif "cls.output.weight" not in g.tensors:
        raise Unsupported(
            "a reranker needs a classification head (cls.output.weight), which this file lacks; convert it again",
            file=keys.file,
            field=f"{keys.architecture}.pooling_type",
        )
    if "cls.output.weight" in g.tensors:
        x = matmul(g, x, "cls.output", keys.rows("cls.output.weight"))
    return softmax(g, x) if keys.causal else x
