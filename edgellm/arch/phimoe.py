"""phimoe: Phi-3.5-MoE and Phi-mini-MoE; layer norms, two experts each of which weighs about 1 (SparseMixer)."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.blocks.attention import sliding_window
from edgellm.arch.blocks.moe import experts_of, routed_experts
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention and experts, with biases. The makers' layer norms, where llama.cpp has RMS norms."""
    window = sliding_window(keys)
    experts = replace(experts_of(keys, normalise=False), gating="sparsemixer", normalise=False)
    model = Transformer(keys, g, layer_norm, experts=experts)
    if experts.k != 2:
        raise keys.bad("expert_used_count", f"is {experts.k}, and SparseMixer takes 2")
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), rope, window))
        x = add(g, x, routed_experts(g, layer.block, layer.norm(x, "ffn_norm"), experts))
    model.logits(x)
