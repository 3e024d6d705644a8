"""llama4: Llama 4 Scout and Maverick; chunks of attention, every fourth layer without positions, experts that weigh their input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import attention, heads_of, layer_windows, project_qkv, sliding_layers
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.moe import experts_of, moe_ffn
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder, RopeSpec
from edgellm.hparams import MAX_CONTEXT, MAX_LAYERS, Keys
from edgellm.ops.dense import add, matmul, select
from edgellm.ops.norm import rms_norm
from edgellm.ops.rope import rope as rotate

CHUNK, PERIOD = 8192, 4  # tokens of a chunk, and how often a layer sees everything, where the file says nothing
GROWTH, EVERY = 0.1, 8192  # by how much queries of such layers grow, and each time after how many tokens
UNNORMED = 128  # experts of the size whose queries and keys have no norm (Maverick), which no key says


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks. Files whose window is 0 rotate in every layer, and see everything."""
    eps, experts = norm_epsilon(keys), replace(experts_of(keys, gating="sigmoid", normalise=False, shared=1), weighs_inputs=True)
    heads = tuple(replace(head, chunked=True) for head in heads_of(keys))
    rope, windows = rope_spec(keys, tensors, g.context, heads[0].dim_k, "norm"), layer_windows(keys, PERIOD, CHUNK)
    normed = experts.n != UNNORMED
    if normed:  # behind the rotation, whose magnitude it takes away; lengths stay as they are
        rope = replace(rope, magnitude=1.0)
    rotates = sliding_layers(keys, PERIOD) if any(windows) else (True,) * keys.n_layers
    growth = (
        keys.optional("attention.temperature_scale") or GROWTH,
        keys.integer("attention.temperature_length", 1, MAX_CONTEXT, default=EVERY),
        1,
    )
    grown = RopeSpec(heads[0].dim_k, "norm", rope.base, freq_scale=0.0, temperature=growth)  # turns nothing
    period = keys.integer("interleave_moe_layer_step", 1, MAX_LAYERS)
    x = token_embedding(g, keys)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys, experts=True), strict=True)):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        if rotates[layer]:
            if normed:
                q, k = rms_norm(g, q, None, eps, head.n), rms_norm(g, k, None, eps, head.n_kv)
            q, k = rotate(g, q, rope, head.n), rotate(g, k, rope, head.n_kv)
        else:
            q = rotate(g, q, grown, head.n)
        x = add(g, x, matmul(g, attention(g, head, q, k, v, windows[layer]), f"{block}.attn_output", keys.n_embd))
        y = rms_norm(g, x, f"{block}.ffn_norm", eps)
        x = add(g, x, gated_ffn(g, block, y, n_ff, "silu") if (layer + 1) % period else moe_ffn(g, block, y, experts))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
