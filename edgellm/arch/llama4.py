"""llama4: Llama 4 and MobileLLM-R1; chunks of attention, every fourth layer without positions, experts that weigh their input."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.attention import heads_of, layer_windows, sliding_layers
from edgellm.arch.blocks.moe import experts_of, has_experts
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder, RopeSpec
from edgellm.hparams import MAX_CONTEXT, MAX_LAYERS, Keys
from edgellm.ops.dense import add
from edgellm.ops.rope import rope as rotate

CHUNK, PERIOD = 8192, 4  # tokens of a chunk, and how often a layer sees everything, where the file says nothing
GROWTH, EVERY = 0.1, 8192  # by how much queries of such layers grow, and each time after how many tokens
UNNORMED = 128  # experts of the size whose queries and keys have no norm (Maverick), which no key says


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks. Files whose window is 0 rotate in every layer, and see everything; some have no experts."""
    period = keys.integer("interleave_moe_layer_step", 0, MAX_LAYERS) if has_experts(keys) else 0
    experts = replace(experts_of(keys, gating="sigmoid", normalise=False, shared=1), weighs_inputs=True) if period else None
    model = Transformer(keys, g, heads=tuple(replace(head, chunked=True) for head in heads_of(keys)), experts=experts)
    rope, windows = model.rope("norm"), layer_windows(keys, PERIOD, CHUNK)
    normed = experts is None or experts.n != UNNORMED
    if normed:  # behind the rotation, whose magnitude it takes away; lengths stay as they are
        rope = replace(rope, magnitude=1.0)
    rotates = sliding_layers(keys, PERIOD) if any(windows) else (True,) * keys.n_layers
    growth = (
        keys.optional("attention.temperature_scale") or GROWTH,
        keys.integer("attention.temperature_length", 1, MAX_CONTEXT, default=EVERY),
        1,
    )
    grown = RopeSpec(model.dim_k, "norm", rope.base, freq_scale=0.0, temperature=growth)  # turns nothing
    x = model.embed()
    for layer in model.layers():
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        if rotates[layer.index]:
            if normed:
                q, k = layer.norm(q, groups=layer.heads.n), layer.norm(k, groups=layer.heads.n_kv)
            q, k = rotate(g, q, rope, layer.heads.n), rotate(g, k, rope, layer.heads.n_kv)
        else:
            q = rotate(g, q, grown, layer.heads.n)
        x = add(g, x, layer.attention(q, k, v, None, windows[layer.index]))
        y = layer.norm(x, "ffn_norm")
        x = add(g, x, layer.moe(y) if period and (layer.index + 1) % period == 0 else layer.gated_ffn(y))
    model.logits(x)
