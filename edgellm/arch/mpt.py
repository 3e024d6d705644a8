"""mpt: MPT, Replit code and SEA-LION; positions are biases of scores (ALiBi) or a learned table."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.attention import heads_of
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, clamp, embed
from edgellm.ops.norm import layer_norm


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks with layer norms, one fused query-key-value tensor and a plain gelu feed-forward; biases are optional."""
    limit = keys.optional("attention.clamp_kqv")
    max_bias = keys.optional("attention.max_alibi_bias") or 0.0
    model = Transformer(keys, g, layer_norm, heads=tuple(replace(head, max_bias=max_bias) for head in heads_of(keys)))
    x = model.embed()
    if "position_embd.weight" in g.tensors:
        x = add(g, x, embed(g, "position_embd", keys.context_length, keys.n_embd, "positions"))
    for layer in model.layers():
        q, k, v = (clamp(g, y, limit) for y in layer.fused_qkv(layer.norm(x, "attn_norm")))
        if layer.has("attn_q_norm"):
            q, k = layer.normed_rows(q, k)
        x = add(g, x, layer.attention(q, k, v))
        x = add(g, x, layer.plain_ffn(layer.norm(x, "ffn_norm"), "gelu_erf"))
    model.logits(x)
