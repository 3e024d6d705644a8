"""bitnet: BitNet b1.58; llama with a norm before each of the two output matrices. Ternary weights are a type, not an op."""

from __future__ import annotations

from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import activation, add, mul

ACTIVATIONS = {"silu": "silu", "relu2": "relu_squared"}  # by the names of `hidden_act`


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks; `hidden_act` names the gate's activation in newer files, older ones have silu."""
    model = Transformer(keys, g)
    act = ACTIVATIONS[keys.text("hidden_act", default="silu", choices=tuple(ACTIVATIONS))]
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        y = layer.norm(layer.heads_output(q, k, v, rope), "attn_sub_norm")
        x = add(g, x, layer.output(y))
        h = layer.norm(x, "ffn_norm")
        y = mul(g, activation(g, act, layer.matmul(h, "ffn_gate", layer.n_ff)), layer.matmul(h, "ffn_up", layer.n_ff))
        x = add(g, x, layer.matmul(layer.norm(y, "ffn_sub_norm"), "ffn_down", keys.n_embd))
    model.logits(x)
