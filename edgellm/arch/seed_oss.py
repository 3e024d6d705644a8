"""seed_oss: Seed-OSS; qwen2 with heads of their own length and the second norm under another name."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks; biases come from the file."""
    model = Transformer(keys, g)
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), rope))
        x = add(g, x, layer.gated_ffn(layer.norm(x, "post_attention_norm")))
    model.logits(x)
