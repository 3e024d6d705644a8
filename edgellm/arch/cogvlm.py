"""cogvlm: CogVLM's language model; the matrices that it has for images beside those for text are left out."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks as Llama's."""
    model = Transformer(keys, g)
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        g.leave_out(f"{layer.block}.vis_")
        x = add(g, x, layer.attention(*layer.fused_qkv(layer.norm(x, "attn_norm")), rope))
        x = add(g, x, layer.gated_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
