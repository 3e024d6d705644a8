"""nanbeige: Nanbeige 4; llama whose layers are gone through several times, each time with keys and values of their own."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import MAX_LAYERS, Keys
from edgellm.ops.dense import add


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks of rotated attention (neighbouring pairs) and a silu-gated feed-forward; the last norm ends each round."""
    model = Transformer(keys, g)
    rounds = keys.integer("num_loops", 1, MAX_LAYERS // keys.n_layers, default=1)
    normed = not keys.flag("skip_loop_final_norm", default=False)
    rope, x = model.rope("norm"), model.embed()
    for turn in range(rounds):
        if turn and normed:
            x = model.norm(x, "output_norm")
        for layer in model.layers():
            x = add(g, x, layer.attention(*layer.qkv(layer.norm(x, "attn_norm")), rope))
            x = add(g, x, layer.gated_ffn(layer.norm(x, "ffn_norm")))
    model.logits(x)
