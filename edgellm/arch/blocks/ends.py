"""Both ends of a language model: token embedding and logits."""
from __future__ import annotations

from edgellm.graph import Builder, Value
from edgellm.hparams import Keys
from edgellm.ops.dense import embed, matmul, softcap


def token_embedding(g: Builder, keys: Keys) -> Value:
    return embed(g, "token_embd", keys.n_vocab, keys.n_embd)


def norm_epsilon(keys: Keys) -> float:
    """What all norms of the model add to the variance."""
    rms, plain = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"
    return keys.number(plain if keys.has(plain) and not keys.has(rms) else rms, high=1.0, zero=True)


def logits(g: Builder, keys: Keys, x: Value) -> None:
    """Logits of the wanted rows; the embedding serves as the output matrix where the file has no `output.weight`."""
    cap = keys.optional("final_logit_softcapping")
    y = matmul(g, x, "output" if "output.weight" in g.tensors else "token_embd", keys.n_vocab)
    g.output("logits", y if cap is None else softcap(g, y, cap))
