"""mistral3: Ministral 3 and Mistral Small 3; llama whose queries grow with the logarithm of their position."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import attention, heads_of, project_qkv
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.positions import rope_spec, temperature
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm
from edgellm.ops.rope import rope as rotate


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs) and a silu-gated feed-forward."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "norm")
    if rope.yarn is not None:
        multiplier = keys.number("rope.scaling.yarn_log_multiplier", default=0.0, zero=True)
        rope = replace(rope, magnitude=rope.magnitude / (1.0 - 0.1 * multiplier * math.log(rope.freq_scale)))
    q_rope = replace(rope, temperature=temperature(keys))
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        y = attention(g, head, rotate(g, q, q_rope, head.n), rotate(g, k, rope, head.n_kv), v)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        x = add(g, x, gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "silu"))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
