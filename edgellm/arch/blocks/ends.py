"""Both ends of a language model: token embedding and logits."""

from __future__ import annotations

from edgellm.arch.blocks.norms import norm_epsilon
from edgellm.arch.blocks.pooling import embedding
from edgellm.graph import Builder, Value
from edgellm.hparams import Keys
from edgellm.ops.dense import embed, matmul, scale, softcap

__all__ = ["logits", "norm_epsilon", "token_embedding"]


def token_embedding(g: Builder, keys: Keys) -> Value:
    return embed(g, "token_embd", keys.n_vocab, keys.n_embd)


def logits(g: Builder, keys: Keys, x: Value, factor: float | None = None, cap: float | None = None) -> None:
    """Logits of the wanted rows, times `factor`; the embedding is the output matrix where the file has no `output.weight`, and
    `output.bias` is added in both cases. `cap`: their limit where the file says nothing about it.

    A file that names a pooling is an embedding model, whose texts get a vector each.
    """
    if g.pooling is not None:
        return embedding(g, keys, x)
    cap = keys.optional("final_logit_softcapping") if keys.has("final_logit_softcapping") else cap
    if "output.weight" in g.tensors:
        y = matmul(g, x, "output", keys.n_vocab)
    else:
        y = matmul(g, x, "token_embd", keys.n_vocab, "output.bias" if "output.bias" in g.tensors else None)
    y = y if factor is None else scale(g, y, factor)
    g.output("logits", y if cap is None else softcap(g, y, cap))
