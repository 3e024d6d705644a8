"""apertus: Apertus; every head normalised, a plain feed-forward whose activation has numbers of its own in each layer."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths
from edgellm.arch.blocks.norms import normed_heads
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, select, xielu
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks of rotated attention; the activation's numbers stand under `xielu.*`."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    numbers = [keys.shared_per_layer(f"xielu.{name}") for name in ("alpha_p", "alpha_n", "beta", "eps")]
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        q, k = normed_heads(g, head, block, q, k, eps)
        x = add(g, x, matmul(g, rotated_attention(g, head, q, k, v, rope), f"{block}.attn_output", keys.n_embd))
        y = matmul(g, rms_norm(g, x, f"{block}.ffn_norm", eps), f"{block}.ffn_up", n_ff)
        x = add(g, x, matmul(g, xielu(g, y, *(each[layer] for each in numbers)), f"{block}.ffn_down", keys.n_embd))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
