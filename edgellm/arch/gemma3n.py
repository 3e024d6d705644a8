"""gemma3n: Gemma 3n text models; several rows per token, a low-rank path beside attention, sparse activations, per-layer rows."""

from __future__ import annotations

import math
from dataclasses import replace

from edgellm.arch.blocks.altup import AltUp
from edgellm.arch.blocks.attention import heads_of, layer_windows, sliding_layers
from edgellm.arch.blocks.per_layer import per_layer_inputs, per_layer_output, per_layer_width
from edgellm.arch.blocks.positions import sliding_rope
from edgellm.arch.blocks.shared_kv import SharedStates
from edgellm.arch.blocks.transformer import Layer, Transformer
from edgellm.graph import Builder, RopeSpec, Value
from edgellm.hparams import MAX_WIDTH, Keys
from edgellm.ops.altup import mix, sparse_relu
from edgellm.ops.attention import attend
from edgellm.ops.dense import activation, add, mul, scale, scaled_by, select
from edgellm.ops.rope import rope

PERIOD = 5  # every fifth layer sees everything
LOGIT_CAP = 30.0  # of files that name none
SLIDING_BASE = 10000.0  # rope base of sliding layers where the file names none
SPARSE_LAYERS, DEVIATIONS = 10, 1.6448536  # of files that do not list them: 95 % of a gate's values count as 0
LAUREL_RANK = 64


def build(keys: Keys, g: Builder) -> None:
    """Each layer computes one of a token's rows, and what it found corrects the others."""
    slides, windows = sliding_layers(keys, PERIOD), layer_windows(keys, PERIOD)
    model = Transformer(keys, g, heads=[replace(heads, scale=1.0) for heads in heads_of(keys)])
    eps, width = model.eps, per_layer_width(keys, 1)
    ropes = model.rope("neox"), sliding_rope(keys, model.dim_k, SLIDING_BASE)
    altup, states, sparse = AltUp.of(keys, eps), SharedStates(keys, slides), _sparse(keys)
    x = scale(g, model.embed(), math.sqrt(keys.n_embd))
    inputs, x = per_layer_inputs(g, keys, x, width, eps), altup.begin(g, x)
    for layer in model.layers():
        block, index = layer.block, layer.index
        predicted = altup.predict(g, block, x)
        active = altup.row(g, predicted, altup.active)
        normal = layer.norm(active, "attn_norm")
        y = _attention(g, states, layer, normal, ropes[slides[index]], windows[index])
        y = add(g, active, layer.norm(y, "post_attention_norm"))
        y = scale(g, add(g, y, _laurel(g, keys, layer, normal)), math.sqrt(0.5))
        z = _feed_forward(g, layer, layer.norm(y, "ffn_norm"), sparse[index])
        x = altup.correct(g, block, predicted, add(g, y, layer.norm(z, "post_ffw_norm")))
        first = scaled_by(g, altup.row(g, x, altup.active), f"{block}.altup_correct_scale.weight")
        x = mix(g, x, per_layer_output(g, block, first, inputs, index, width, eps), altup.rows, first=1)
    model.logits(altup.end(g, select(g, x)), cap=LOGIT_CAP)


def _sparse(keys: Keys) -> tuple[float, ...]:
    """By how many deviations the cutoff of each layer's gate is above the mean; minus infinity: there is none."""
    listed = keys.floats_per_layer("activation_sparsity_scale")
    return listed or tuple(DEVIATIONS if layer < SPARSE_LAYERS else -math.inf for layer in range(keys.n_layers))


def _attention(g: Builder, states: SharedStates, layer: Layer, x: Value, turn: RopeSpec, window: int | None) -> Value:
    heads = layer.heads
    q = rope(g, layer.norm(layer.matmul(x, "attn_q", heads.n_q), "attn_q_norm", heads.n), turn, heads.n)
    if states.own(layer.index):
        k = layer.norm(layer.matmul(x, "attn_k", heads.n_k), "attn_k_norm", heads.n_kv)
        v = layer.norm(layer.matmul(x, "attn_v", heads.n_v), groups=heads.n_kv)
        states.write(g, layer.index, rope(g, k, turn, heads.n_kv), v, heads.spec(window))
    return layer.output(attend(g, q, states.of(g, layer.index, heads.n), heads.n, heads.scale, heads.softcap))


def _laurel(g: Builder, keys: Keys, layer: Layer, x: Value) -> Value:
    """x and its product with a matrix of low rank (learned augmented residual layer)."""
    rank = keys.rows(f"{layer.block}.laurel_l.weight") if layer.has("laurel_l") else LAUREL_RANK
    y = layer.matmul(layer.matmul(x, "laurel_l", min(rank, MAX_WIDTH)), "laurel_r", keys.n_embd)
    return add(g, x, layer.norm(y, "laurel_post_norm"))


def _feed_forward(g: Builder, layer: Layer, x: Value, deviations: float) -> Value:
    gate, up = (layer.matmul(x, f"ffn_{part}", layer.n_ff) for part in ("gate", "up"))
    if deviations > -math.inf:
        gate = sparse_relu(g, gate, deviations)
    return layer.matmul(mul(g, activation(g, "gelu", gate), up), "ffn_down", g.n(x))
