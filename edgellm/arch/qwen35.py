"""qwen35: Qwen 3.5 dense; gated delta nets, and gated attention in every fourth layer."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import gated_attention, gated_heads
from edgellm.arch.blocks.drafts import drafting_layers
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.arch.blocks.recurrent import delta_sizes, gated_delta_net, recurrent_layers
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, select
from edgellm.ops.norm import rms_norm

INTERLEAVED_AXES = True


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks. Positions are those of text, for which all sections of the rotation are the same."""
    eps, sizes, heads = norm_epsilon(keys), delta_sizes(keys), gated_heads(keys)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    drafting = drafting_layers(g, keys)
    x = token_embedding(g, keys)
    for layer, (head, n_ff, recurrent) in enumerate(zip(heads, ffn_lengths(keys), recurrent_layers(keys, drafting), strict=True)):
        block = f"blk.{layer}"
        if layer == keys.n_layers - drafting:
            break
        y = rms_norm(g, x, f"{block}.attn_norm", eps)
        y = gated_delta_net(g, block, y, sizes, eps) if recurrent else gated_attention(g, block, y, head, rope, eps)
        x = add(g, x, y)
        x = add(g, x, gated_ffn(g, block, rms_norm(g, x, f"{block}.post_attention_norm", eps), n_ff, "silu"))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
