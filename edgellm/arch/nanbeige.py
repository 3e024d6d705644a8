"""nanbeige: Nanbeige 4; llama whose layers are gone through several times, each time with keys and values of their own."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import MAX_LAYERS, Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs) and a silu-gated feed-forward; the last norm ends each round."""
    eps, heads, widths = norm_epsilon(keys), heads_of(keys), ffn_lengths(keys)
    rounds = keys.integer("num_loops", 1, MAX_LAYERS // keys.n_layers, default=1)
    normed = not keys.flag("skip_loop_final_norm", default=False)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "norm")
    x = token_embedding(g, keys)
    for turn in range(rounds):
        if turn and normed:
            x = rms_norm(g, x, "output_norm", eps)
        for layer, (head, n_ff) in enumerate(zip(heads, widths, strict=True)):
            block = f"blk.{layer}"
            q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
            x = add(g, x, matmul(g, rotated_attention(g, head, q, k, v, rope), f"{block}.attn_output", keys.n_embd))
            x = add(g, x, gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "silu"))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
