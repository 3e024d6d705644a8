"""llama: Llama 1-3.3, Mistral, Mixtral, TinyLlama, SmolLM2, distillations; with biases, tied embeddings or rope factors."""

from __future__ import annotations

from edgellm.arch.blocks.attention import layer_windows
from edgellm.arch.blocks.moe import experts_of, has_experts
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs) and a silu-gated feed-forward, or experts."""
    windows = layer_windows(keys, keys.n_layers + 1)  # all slide where the file does not list them
    experts = experts_of(keys, normalise=True) if has_experts(keys) else None
    model = Transformer(keys, g, experts=experts)
    rope, x = model.rope("norm"), model.embed()
    for layer, window in zip(model.layers(), windows, strict=True):
        x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), rope, window))
        y = layer.norm(x, "ffn_norm")
        x = add(g, x, layer.moe(y) if experts else layer.gated_ffn(y))
    model.logits(x)
