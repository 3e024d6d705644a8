"""bitnet: BitNet b1.58; llama with a norm before each of the two output matrices. Ternary weights are a type, not an op."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import activation, add, matmul, mul, select
from edgellm.ops.norm import rms_norm

ACTIVATIONS = {"silu": "silu", "relu2": "relu_squared"}  # by the names of `hidden_act`


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks; `hidden_act` names the gate's activation in newer files, older ones have silu."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    act = ACTIVATIONS[keys.text("hidden_act", default="silu", choices=tuple(ACTIVATIONS))]
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        y = rms_norm(g, rotated_attention(g, head, q, k, v, rope), f"{block}.attn_sub_norm", eps)
        x = add(g, x, matmul(g, y, f"{block}.attn_output", keys.n_embd))
        h = rms_norm(g, x, f"{block}.ffn_norm", eps)
        y = mul(g, activation(g, act, matmul(g, h, f"{block}.ffn_gate", n_ff)), matmul(g, h, f"{block}.ffn_up", n_ff))
        x = add(g, x, matmul(g, rms_norm(g, y, f"{block}.ffn_sub_norm", eps), f"{block}.ffn_down", keys.n_embd))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
