"""nemotron_h: Nemotron-H, Nemotron Nano 2 and 3 (nemotron_h_moe: with experts); Mamba 2, attention or a feed-forward per layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import attention, hybrid_heads, project_qkv
from edgellm.arch.blocks.drafts import drafting_layers
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import plain_ffn
from edgellm.arch.blocks.moe import Experts, experts_of, has_experts, moe_ffn
from edgellm.arch.blocks.recurrent import mamba2, mamba2_sizes
from edgellm.graph import Builder
from edgellm.hparams import MAX_WIDTH, Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm

ACT = "relu_squared"


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm layers that know no positions: a feed-forward where it has a width, attention where there are key heads, else
    Mamba 2. The last layers may draft tokens.
    """
    eps, heads, lengths = norm_epsilon(keys), hybrid_heads(keys), keys.per_layer("feed_forward_length", 0)
    routed, sizes = has_experts(keys), mamba2_sizes(keys)
    drafting = drafting_layers(g, keys)
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, lengths, strict=True)):
        block = f"blk.{layer}"
        if layer == keys.n_layers - drafting:
            break
        y = rms_norm(g, x, f"{block}.attn_norm", eps)
        if n_ff:
            y = moe_ffn(g, block, y, _experts(keys, layer)) if routed else plain_ffn(g, block, y, n_ff, ACT)
        elif head is not None:
            y = matmul(g, attention(g, head, *project_qkv(g, head, block, y)), f"{block}.attn_output", keys.n_embd)
        else:
            y = mamba2(g, block, y, sizes, eps)
        x = add(g, x, y)
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))


def _experts(keys: Keys, layer: int) -> Experts:
    latent = keys.integer("moe_latent_size", 0, MAX_WIDTH, default=0)
    return replace(experts_of(keys, gating="sigmoid", normalise=True, layer=layer), act=ACT, plain=True, latent=latent)
