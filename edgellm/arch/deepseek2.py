"""deepseek2: DeepSeek-V2, V2-Lite, V3 and R1, GLM-4.7-Flash, Kimi K2, Mistral Large 3; latent attention, many small experts."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.drafts import drafting_layers
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.mla import latent_attention, latent_heads
from edgellm.arch.blocks.moe import any_ffn, experts_of, has_experts
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks, some of them without experts, usually the first ones. The last layers may draft tokens.

    Files older than the key for it have sigmoids where they have biases.
    """
    eps, heads = norm_epsilon(keys), latent_heads(keys, g)
    biased = any(name.endswith(".exp_probs_b.bias") for name in tensors)
    experts = experts_of(keys, gating="sigmoid" if biased else "softmax", normalise=False) if has_experts(keys) else None
    drafting = drafting_layers(g, keys)
    x = token_embedding(g, keys)
    for layer in range(keys.n_layers):
        block = f"blk.{layer}"
        if layer == keys.n_layers - drafting:
            break
        y = latent_attention(g, block, rms_norm(g, x, f"{block}.attn_norm", eps), heads)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        x = add(g, x, any_ffn(g, keys, layer, rms_norm(g, x, f"{block}.ffn_norm", eps), experts))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
