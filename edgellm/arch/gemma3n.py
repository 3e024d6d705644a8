"""gemma3n: Gemma 3n text models; several rows per token, a low-rank path beside attention, sparse activations, per-layer rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.altup import AltUp
from edgellm.arch.blocks.attention import Heads, heads_of, layer_windows, sliding_layers
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths
from edgellm.arch.blocks.per_layer import per_layer_inputs, per_layer_output, per_layer_width
from edgellm.arch.blocks.positions import rope_spec, sliding_rope
from edgellm.arch.blocks.shared_kv import SharedStates
from edgellm.graph import Builder, RopeSpec, Value
from edgellm.hparams import MAX_WIDTH, Keys
from edgellm.ops.altup import mix, sparse_relu
from edgellm.ops.attention import attend
from edgellm.ops.dense import activation, add, matmul, mul, scale, scaled_by, select
from edgellm.ops.norm import rms_norm
from edgellm.ops.rope import rope

PERIOD = 5  # every fifth layer sees everything
LOGIT_CAP = 30.0  # of files that name none
SLIDING_BASE = 10000.0  # rope base of sliding layers where the file names none
SPARSE_LAYERS, DEVIATIONS = 10, 1.6448536  # of files that do not list them: 95 % of a gate's values count as 0
LAUREL_RANK = 64


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Each layer computes one of a token's rows, and what it found corrects the others."""
    eps, width = norm_epsilon(keys), per_layer_width(keys, 1)
    slides, windows = sliding_layers(keys, PERIOD), layer_windows(keys, PERIOD)
    heads = tuple(replace(head, scale=1.0) for head in heads_of(keys))
    ropes = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox"), sliding_rope(keys, heads[0].dim_k, SLIDING_BASE)
    altup, states, sparse = AltUp.of(keys, eps), SharedStates(keys, slides), _sparse(keys)
    x = scale(g, token_embedding(g, keys), math.sqrt(keys.n_embd))
    inputs, x = per_layer_inputs(g, keys, x, width, eps), altup.begin(g, x)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        predicted = altup.predict(g, block, x)
        active = altup.row(g, predicted, altup.active)
        normal = rms_norm(g, active, f"{block}.attn_norm", eps)
        y = _attention(g, states, layer, head, normal, ropes[slides[layer]], windows[layer], eps)
        y = add(g, active, rms_norm(g, y, f"{block}.post_attention_norm", eps))
        y = scale(g, add(g, y, _laurel(g, keys, block, normal, eps)), math.sqrt(0.5))
        z = _feed_forward(g, block, rms_norm(g, y, f"{block}.ffn_norm", eps), n_ff, sparse[layer])
        x = altup.correct(g, block, predicted, add(g, y, rms_norm(g, z, f"{block}.post_ffw_norm", eps)))
        first = scaled_by(g, altup.row(g, x, altup.active), f"{block}.altup_correct_scale.weight")
        x = mix(g, x, per_layer_output(g, block, first, inputs, layer, width, eps), altup.rows, first=1)
    logits(g, keys, rms_norm(g, altup.end(g, select(g, x)), "output_norm", eps), cap=LOGIT_CAP)


def _sparse(keys: Keys) -> tuple[float, ...]:
    """By how many deviations the cutoff of each layer's gate is above the mean; minus infinity: there is none."""
    listed = keys.floats_per_layer("activation_sparsity_scale")
    return listed or tuple(DEVIATIONS if layer < SPARSE_LAYERS else -math.inf for layer in range(keys.n_layers))


def _attention(
    g: Builder, states: SharedStates, layer: int, head: Heads, x: Value, turn: RopeSpec, window: int | None, eps: float
) -> Value:
    block = f"blk.{layer}"
    q = rope(g, rms_norm(g, matmul(g, x, f"{block}.attn_q", head.n_q), f"{block}.attn_q_norm", eps, head.n), turn, head.n)
    if states.own(layer):
        k = rms_norm(g, matmul(g, x, f"{block}.attn_k", head.n_k), f"{block}.attn_k_norm", eps, head.n_kv)
        v = rms_norm(g, matmul(g, x, f"{block}.attn_v", head.n_v), None, eps, head.n_kv)
        states.write(g, layer, rope(g, k, turn, head.n_kv), v, head.spec(window))
    return matmul(g, attend(g, q, states.of(g, layer, head.n), head.n, head.scale, head.softcap), f"{block}.attn_output", g.n(x))


def _laurel(g: Builder, keys: Keys, block: str, x: Value, eps: float) -> Value:
    """x and its product with a matrix of low rank (learned augmented residual layer)."""
    rank = keys.rows(f"{block}.laurel_l.weight") if f"{block}.laurel_l.weight" in g.tensors else LAUREL_RANK
    y = matmul(g, matmul(g, x, f"{block}.laurel_l", min(rank, MAX_WIDTH)), f"{block}.laurel_r", keys.n_embd)
    return add(g, x, rms_norm(g, y, f"{block}.laurel_post_norm", eps))


def _feed_forward(g: Builder, block: str, x: Value, n_ff: int, deviations: float) -> Value:
    gate, up = (matmul(g, x, f"{block}.ffn_{part}", n_ff) for part in ("gate", "up"))
    if deviations > -math.inf:
        gate = sparse_relu(g, gate, deviations)
    return matmul(g, mul(g, activation(g, "gelu", gate), up), f"{block}.ffn_down", g.n(x))
