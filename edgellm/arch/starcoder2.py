"""starcoder2: StarCoder2; layer norms, biases everywhere and a plain gelu feed-forward."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import fused_qkv, heads_of, project_qkv, rotated_attention, sliding_window
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, plain_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import layer_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder, *, fused: bool = False) -> None:
    """Pre-norm blocks of rotated attention. llama.cpp's files do not mention the window that some sizes were trained with."""
    window = sliding_window(keys)
    eps, heads = norm_epsilon(keys), heads_of(keys)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        q, k, v = (fused_qkv if fused else project_qkv)(g, head, block, layer_norm(g, x, f"{block}.attn_norm", eps))
        x = add(g, x, matmul(g, rotated_attention(g, head, q, k, v, rope, window), f"{block}.attn_output", keys.n_embd))
        x = add(g, x, plain_ffn(g, block, layer_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "gelu"))
    logits(g, keys, layer_norm(g, select(g, x), "output_norm", eps))
