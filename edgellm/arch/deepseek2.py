"""deepseek2: DeepSeek-V2, V2-Lite, V3 and R1, GLM-4.7-Flash, Kimi K2, Mistral Large 3; latent attention, many small experts."""

from __future__ import annotations

from edgellm.arch.blocks.mla import latent_attention, latent_heads
from edgellm.arch.blocks.moe import experts_of, has_experts
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks, some of them without experts, usually the first ones. The last layers may draft tokens.

    Files older than the key for it have sigmoids where they have biases.
    """
    heads = latent_heads(keys, g)
    biased = any(name.endswith(".exp_probs_b.bias") for name in g.tensors)
    experts = experts_of(keys, gating="sigmoid" if biased else "softmax", normalise=False) if has_experts(keys) else None
    model = Transformer(keys, g, experts=experts)
    x = model.embed()
    for layer in model.layers(drafting=False):
        y = latent_attention(g, layer.block, layer.norm(x, "attn_norm"), heads)
        x = add(g, x, layer.output(y))
        x = add(g, x, layer.any_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
