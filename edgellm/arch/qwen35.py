"""qwen35: Qwen 3.5 dense; gated delta nets, and gated attention in every fourth layer."""
from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import Heads, heads_of, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.arch.blocks.recurrent import gated_delta_net, ssm_sizes
from edgellm.graph import Builder, RopeSpec, Value
from edgellm.hparams import MAX_LAYERS, Keys
from edgellm.ops.dense import activation, add, head_columns, matmul, mul, select
from edgellm.ops.norm import rms_norm

PERIOD = 4                       # every fourth layer attends where the file says nothing else


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks. Positions are those of text, for which all sections of the rotation are the same."""
    eps, sizes, heads = norm_epsilon(keys), ssm_sizes(keys), heads_of(keys)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = token_embedding(g, keys)
    for layer, (head, n_ff, recurrent) in enumerate(zip(heads, ffn_lengths(keys), recurrent_layers(keys), strict=True)):
        block = f"blk.{layer}"
        y = rms_norm(g, x, f"{block}.attn_norm", eps)
        y = gated_delta_net(g, block, y, sizes, eps, grouped=False) if recurrent else gated_attention(g, block, y, head, rope, eps)
        x = add(g, x, y)
        x = add(g, x, gated_ffn(g, block, rms_norm(g, x, f"{block}.post_attention_norm", eps), n_ff, "silu"))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))


def recurrent_layers(keys: Keys) -> tuple[bool, ...]:
    """Whether a layer is recurrent."""
    listed = keys.sliding_layers("attention.recurrent_layers")
    period = keys.integer("full_attention_interval", 1, MAX_LAYERS, default=PERIOD)
    return listed or tuple((layer + 1) % period != 0 for layer in range(keys.n_layers))


def gated_attention(g: Builder, block: str, x: Value, head: Heads, rope: RopeSpec, eps: float) -> Value:
    """Attention whose output is gated; every head's query stands before its gate."""
    both, dim = matmul(g, x, f"{block}.attn_q", 2 * head.n_q), head.dim_k
    q = rms_norm(g, head_columns(g, both, head.n, 0, dim), f"{block}.attn_q_norm", eps, head.n)
    k = rms_norm(g, matmul(g, x, f"{block}.attn_k", head.n_k), f"{block}.attn_k_norm", eps, head.n_kv)
    y = rotated_attention(g, head, q, k, matmul(g, x, f"{block}.attn_v", head.n_v), rope)
    gate = activation(g, "sigmoid", head_columns(g, both, head.n, dim, 2 * dim))
    return matmul(g, mul(g, gate, y), f"{block}.attn_output", g.n(x))
