"""granite_swa: Granite whose layers slide, dense and with experts; learned sinks, layers that do not rotate."""

from __future__ import annotations

from edgellm.arch.blocks.attention import sliding_layers, sliding_window
from edgellm.arch.blocks.ffn import fused_gated_ffn
from edgellm.arch.blocks.moe import experts_of, has_experts, routed_experts
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, scale

PERIOD = 4  # the first of four layers sees everything, where the file does not say which


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks with Granite's factors; a shared expert has gate and up in one matrix."""
    window, slides = sliding_window(keys), sliding_layers(keys, PERIOD, first=True)
    rotates = keys.sliding_layers("attention.rope_pattern") or (True,) * keys.n_layers
    experts = experts_of(keys, normalise=True) if has_experts(keys) else None
    model = Transformer(keys, g, experts=experts)
    rope, residual = model.rope("norm"), keys.optional("residual_scale") or 1.0
    x = scale(g, model.embed(), keys.optional("embedding_scale") or 1.0)
    for layer in model.layers():
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        turn, seen = rope if rotates[layer.index] else None, window if slides[layer.index] else None
        x = add(g, x, scale(g, layer.attention(q, k, v, turn, seen, f"{layer.block}.attn_sinks"), residual))
        z = layer.norm(x, "ffn_norm")
        y = layer.gated_ffn(z) if experts is None else routed_experts(g, layer.block, z, experts)
        if experts is not None and experts.n_ff_shared:
            y = add(g, y, fused_gated_ffn(g, layer.block, z, experts.n_ff_shared, "silu", "_shexp"))
        x = add(g, x, scale(g, y, residual))
    model.logits(x, 1.0 / (keys.optional("logit_scale") or 1.0))
