"""gptneox: GPT-NeoX, Pythia, Dolly and RedPajama; attention and feed-forward side by side, each after a norm of its own."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.arch.gpt2 import GELUS
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm


def build(keys: Keys, g: Builder) -> None:
    """Blocks of rotated attention and a plain gelu feed-forward, parallel where the file says so."""
    model = Transformer(keys, g, layer_norm)
    parallel = keys.flag("use_parallel_residual", default=True)
    act = GELUS[keys.text("hidden_act", default="gelu", choices=tuple(GELUS))]
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        attended = add(g, x, layer.attention(*layer.fused_qkv(layer.norm(x, "attn_norm")), rope))
        h = layer.norm(x if parallel else attended, "ffn_norm")
        x = add(g, attended, layer.plain_ffn(h, act))
    model.logits(x)
