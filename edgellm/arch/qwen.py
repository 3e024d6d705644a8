"""qwen: Qwen 1; one matrix for queries, keys and values, and files that say twice the width of the feed-forward."""

from __future__ import annotations

from edgellm.arch.blocks.ffn import gated_ffn
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention (halves of a head) and a silu-gated feed-forward."""
    model = Transformer(keys, g)
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.fused_qkv(layer.norm(x, "attn_norm")), rope))
        x = add(g, x, gated_ffn(g, layer.block, layer.norm(x, "ffn_norm"), max(layer.n_ff // 2, 1), "silu"))
    model.logits(x)
