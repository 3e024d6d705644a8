"""qwen35moe: Qwen 3.5 with experts, otherwise as qwen35."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import gated_attention, gated_heads
from edgellm.arch.blocks.drafts import drafting_layers
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.moe import any_ffn, experts_of, has_experts
from edgellm.arch.blocks.positions import rope_spec
from edgellm.arch.blocks.recurrent import delta_sizes, gated_delta_net, recurrent_layers
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, select
from edgellm.ops.norm import rms_norm

INTERLEAVED_AXES = True


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder, *, grouped: bool = False) -> None:
    """Pre-norm blocks; the experts' weights sum to 1, and a token says how much its shared expert counts. Layers without a router
    are dense. `grouped`: see blocks.recurrent.gated_delta_net.
    """
    eps, sizes, heads = norm_epsilon(keys), delta_sizes(keys), gated_heads(keys)
    experts = experts_of(keys, normalise=True) if has_experts(keys) else None
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    drafting = drafting_layers(g, keys)
    x = token_embedding(g, keys)
    for layer, (head, recurrent) in enumerate(zip(heads, recurrent_layers(keys, drafting), strict=True)):
        block = f"blk.{layer}"
        if layer == keys.n_layers - drafting:
            break
        y = rms_norm(g, x, f"{block}.attn_norm", eps)
        y = (
            gated_attention(g, block, y, head, rope, eps)
            if not recurrent
            else gated_delta_net(g, block, y, sizes, eps, grouped=grouped)
        )
        x = add(g, x, y)
        x = add(g, x, any_ffn(g, keys, layer, rms_norm(g, x, f"{block}.post_attention_norm", eps), experts, gated=True))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
