"""olmo2: OLMo 2 and 3; norms after each half of a block and over whole rows of queries and keys, windows in OLMo 3."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, layer_windows, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.positions import MAX_BASE, rope_spec
from edgellm.graph import Builder, RopeSpec
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm

PERIOD = 4  # every fourth layer sees everything, where some slide


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Post-norm blocks; position scaling acts on the layers that see everything only."""
    eps, windows, heads = norm_epsilon(keys), layer_windows(keys, PERIOD), heads_of(keys)
    rope_full = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    sliding_base = keys.optional("rope.freq_base_swa", above=1.0, high=MAX_BASE) or rope_full.base
    rope_sliding = RopeSpec(rope_full.n_rot, "neox", sliding_base)
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, x)
        q, k = rms_norm(g, q, f"{block}.attn_q_norm", eps), rms_norm(g, k, f"{block}.attn_k_norm", eps)
        y = rotated_attention(g, head, q, k, v, rope_full if windows[layer] is None else rope_sliding, windows[layer])
        y = matmul(g, y, f"{block}.attn_output", keys.n_embd)
        x = add(g, x, rms_norm(g, y, f"{block}.post_attention_norm", eps))
        x = add(g, x, rms_norm(g, gated_ffn(g, block, x, n_ff, "silu"), f"{block}.post_ffw_norm", eps))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
