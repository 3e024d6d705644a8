"""modern-bert: ModernBERT and what is built on it (Granite Embedding, GTE); most layers see 64 tokens to each side."""

from __future__ import annotations

from edgellm.arch.blocks.attention import sliding_window
from edgellm.arch.blocks.pooling import embedding
from edgellm.arch.blocks.positions import MAX_BASE
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder, RopeSpec
from edgellm.hparams import MAX_LAYERS, Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm

SLIDING_BASE = 10000.0  # rope base of sliding layers where the file names none
PERIOD = 3  # the first of every three layers sees everything


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks, of which the first has the embedding's norm instead of its own."""
    model = Transformer(keys, g, layer_norm)
    window = sliding_window(keys)
    rope_full = model.rope("neox")
    sliding_base = keys.optional("rope.freq_base_swa", above=1.0, high=MAX_BASE) or SLIDING_BASE
    rope_sliding = RopeSpec(rope_full.n_rot, "neox", sliding_base)
    period = keys.integer("attention.sliding_window_pattern", 1, MAX_LAYERS, default=PERIOD)
    x = model.norm(model.embed(), "token_embd_norm")
    for layer in model.layers():
        slides = window is not None and layer.index % period != 0
        y = layer.norm(x, "attn_norm") if layer.has("attn_norm") else x
        x = add(g, x, layer.attention(*layer.fused_qkv(y), rope_sliding if slides else rope_full, window if slides else None))
        x = add(g, x, layer.fused_gated_ffn(layer.norm(x, "ffn_norm"), "gelu_erf"))
    embedding(g, keys, model.norm(x, "output_norm"), ranked="mean", head="gelu_erf")
