"""cohere2: Command R7B and A; attention and feed-forward side by side, rotation in the layers that slide only."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, layer_windows, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import layer_norm

PERIOD = 4  # every fourth layer sees everything


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Parallel blocks after one layer norm; logits are scaled."""
    eps, windows, heads = norm_epsilon(keys), layer_windows(keys, PERIOD), heads_of(keys)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "norm")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        h = layer_norm(g, x, f"{block}.attn_norm", eps)
        q, k, v = project_qkv(g, head, block, h)
        y = rotated_attention(g, head, q, k, v, None if windows[layer] is None else rope, windows[layer])
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        x = add(g, x, gated_ffn(g, block, h, n_ff, "silu"))
    logits(g, keys, layer_norm(g, select(g, x), "output_norm", eps), keys.number("logit_scale"))
