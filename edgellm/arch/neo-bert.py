"""neo-bert: NeoBERT; eurobert with pairs side by side, and fused matrices."""

from __future__ import annotations

from edgellm.arch.blocks.pooling import embedding
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs) and a silu-gated feed-forward."""
    model = Transformer(keys, g)
    rope, x = model.rope("norm"), model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.fused_qkv(layer.norm(x, "attn_norm")), rope))
        x = add(g, x, layer.fused_gated_ffn(layer.norm(x, "ffn_norm")))
    embedding(g, keys, model.norm(x, "enc.output_norm"))
