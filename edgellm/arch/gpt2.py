"""gpt2: GPT-2 and its fine-tunes; learned positions, so the context cannot slide, and biases everywhere."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, embed
from edgellm.ops.norm import layer_norm

GELUS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "gelu": "gelu_erf"}  # by the names of `hidden_act`


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks with layer norms, one fused query-key-value tensor and a plain gelu feed-forward."""
    model = Transformer(keys, g, layer_norm)
    act = GELUS[keys.text("hidden_act", default="gelu_new", choices=tuple(GELUS))]
    x = model.embed()
    x = add(g, x, embed(g, "position_embd", keys.context_length, keys.n_embd, "positions"))
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.fused_qkv(layer.norm(x, "attn_norm"))))
        x = add(g, x, layer.plain_ffn(layer.norm(x, "ffn_norm"), act))
    model.logits(x)
