"""gptneox: GPT-NeoX, Pythia, Dolly and RedPajama; attention and feed-forward side by side, each after a norm of its own."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import fused_qkv, heads_of, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, plain_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import layer_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Blocks of rotated attention and a plain gelu feed-forward, parallel where the file says so."""
    eps, heads, parallel = norm_epsilon(keys), heads_of(keys), keys.flag("use_parallel_residual", default=True)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        y = rotated_attention(g, head, *fused_qkv(g, head, block, layer_norm(g, x, f"{block}.attn_norm", eps)), rope)
        attended = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        h = layer_norm(g, x if parallel else attended, f"{block}.ffn_norm", eps)
        x = add(g, attended, plain_ffn(g, block, h, n_ff, "gelu_erf"))
    logits(g, keys, layer_norm(g, select(g, x), "output_norm", eps))
