"""phi3: Phi-3, Phi-3.5, Phi-4, Phi-4-mini; fused query-key-value and gate-up tensors, longrope, partial rotation."""

from __future__ import annotations

from edgellm.arch.blocks.attention import sliding_window
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks. The window of the model makers' definition is kept (llama.cpp ignores it)."""
    model = Transformer(keys, g)
    window = sliding_window(keys)
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        x = add(g, x, layer.attention(*layer.fused_qkv(layer.norm(x, "attn_norm")), rope, window))
        x = add(g, x, layer.fused_gated_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
