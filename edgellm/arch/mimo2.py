"""mimo2: MiMo-V2; sliding layers with more key heads, learned sinks and a base of their own, experts in most layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import heads_of, layer_windows, project_qkv, rotated_attention
from edgellm.arch.blocks.drafts import drafting_layers
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.moe import experts_of, moe_ffn, routes
from edgellm.arch.blocks.positions import rope_spec, sliding_rope
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, matmul, scale, select
from edgellm.ops.norm import rms_norm

SLIDING_BASE = 10000.0  # rope base of sliding layers where the file names none


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Blocks of partly rotated attention; the tensors say which layers have experts, which learned sinks. The last ones draft."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    drafting = drafting_layers(g, keys)
    windows, experts = layer_windows(keys, 1, drafting=drafting), experts_of(keys, gating="sigmoid", normalise=True)
    ropes = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox"), sliding_rope(keys, heads[0].dim_k, SLIDING_BASE)
    ropes = ropes[0], replace(ropes[1], n_rot=ropes[0].n_rot)
    scale_of_values = keys.optional("attention.value_scale") or 1.0
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys, experts=True), strict=True)):
        block = f"blk.{layer}"
        if layer == keys.n_layers - drafting:
            break
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        learned_sinks = f"{block}.attn_sinks" if f"{block}.attn_sinks.weight" in tensors else None
        y = rotated_attention(g, head, q, k, v, ropes[windows[layer] is not None], windows[layer], learned_sinks)
        x = add(g, x, matmul(g, scale(g, y, scale_of_values), f"{block}.attn_output", keys.n_embd))
        y = rms_norm(g, x, f"{block}.ffn_norm", eps)
        x = add(g, x, moe_ffn(g, block, y, experts) if routes(g, block) else gated_ffn(g, block, y, n_ff, "silu"))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
