"""nomic-bert-moe: Nomic Embed 2; BERT's blocks with rotary positions, experts in every second layer."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import fused_qkv, heads_of, rotated_attention
from edgellm.arch.blocks.ends import norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, plain_ffn
from edgellm.arch.blocks.moe import experts_of, routed_experts
from edgellm.arch.blocks.pooling import embedding
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import MAX_LAYERS, Keys
from edgellm.ops.dense import add, embed, matmul
from edgellm.ops.norm import layer_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Post-norm blocks with biases; of every `moe_every_n_layers` the second has experts, without gates and biases."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    experts = replace(experts_of(keys, normalise=False), act="gelu_erf", plain=True)
    period = keys.integer("moe_every_n_layers", 0, MAX_LAYERS, default=0)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = token_embedding(g, keys)
    if "token_types.weight" in tensors:
        x = add(g, x, embed(g, "token_types", keys.rows("token_types.weight"), keys.n_embd, "first"))
    x = layer_norm(g, x, "token_embd_norm", eps)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys, experts=True), strict=True)):
        block = f"blk.{layer}"
        y = rotated_attention(g, head, *fused_qkv(g, head, block, x), rope)
        x = layer_norm(g, add(g, matmul(g, y, f"{block}.attn_output", keys.n_embd), x), f"{block}.attn_output_norm", eps)
        has_experts = period > 0 and layer % period == 1
        y = routed_experts(g, block, x, experts) if has_experts else plain_ffn(g, block, x, n_ff, "gelu_erf")
        x = layer_norm(g, add(g, y, x), f"{block}.layer_output_norm", eps)
    embedding(g, keys, x)
