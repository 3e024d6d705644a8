"""glm4: GLM-4-0414 and GLM-Z1; norms before and after each half of a block, half of each head rotated, gate and up fused."""

from __future__ import annotations

from edgellm.arch.blocks.positions import has_sections
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Blocks with four norms; biases come from the file. GLM-4.1V and 4.6V pair the halves of a head, as their sections say."""
    model = Transformer(keys, g)
    rope, x = model.rope("neox" if has_sections(keys) else "norm"), model.embed()
    for layer in model.layers(drafting=False):
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        y = layer.attention(q, k, v, rope)
        x = add(g, x, layer.norm(y, "post_attention_norm"))
        y = layer.fused_gated_ffn(layer.norm(x, "ffn_norm"))
        x = add(g, x, layer.norm(y, "post_ffw_norm"))
    model.logits(x)
