"""gemma4: Gemma 4 text models; sliding layers with shorter heads, last layers that attend to keys of earlier ones."""

from __future__ import annotations

import math
from dataclasses import replace

from edgellm.arch.blocks.attention import Heads, heads_of, layer_windows, sliding_layers
from edgellm.arch.blocks.moe import Experts, experts_of, has_experts, routed_experts
from edgellm.arch.blocks.per_layer import per_layer_inputs, per_layer_output, per_layer_width
from edgellm.arch.blocks.positions import rope_spec, sliding_rope
from edgellm.arch.blocks.shared_kv import SharedStates
from edgellm.arch.blocks.transformer import Layer, Transformer
from edgellm.graph import Builder, RopeSpec, Value
from edgellm.hparams import Keys
from edgellm.ops.attention import attend
from edgellm.ops.dense import add, scale, scaled_by
from edgellm.ops.rope import rope

PERIOD = 6  # every sixth layer sees everything
LOGIT_CAP = 30.0  # of files that name none
SLIDING_BASE = 10000.0  # rope base of sliding layers where the file names none


def build(keys: Keys, g: Builder) -> None:
    """Blocks with four norms, and a fifth where tokens have rows per layer; the result of each block is scaled."""
    g.own_scales("ffn_down_exps")
    slides, windows, width = sliding_layers(keys, PERIOD), layer_windows(keys, PERIOD), per_layer_width(keys)
    heads = tuple(replace(head, scale=1.0) for head in heads_of(keys, slides))
    ropes = {flag: _rope(keys, g, heads[slides.index(flag)], flag) for flag in set(slides)}
    experts = replace(experts_of(keys, normalise=True), act="gelu") if has_experts(keys) else None
    model, states = Transformer(keys, g, heads=heads, experts=experts), SharedStates(keys, slides)
    x = scale(g, model.embed(), math.sqrt(keys.n_embd))
    inputs = per_layer_inputs(g, keys, x, width, model.eps) if width else None
    for layer, head in zip(model.layers(), heads, strict=True):
        turn = ropes[slides[layer.index]]
        y = layer.norm(x, "attn_norm")
        q = rope(g, layer.norm(layer.matmul(y, "attn_q", head.n_q), "attn_q_norm", head.n), turn, head.n)
        if states.own(layer.index):
            k, v = _keys_and_values(layer, y, slides[layer.index])
            states.write(g, layer.index, rope(g, k, turn, head.n_kv), v, head.spec(windows[layer.index]))
        y = layer.output(attend(g, q, states.of(g, layer.index, head.n), head.n, head.scale, head.softcap))
        x = add(g, x, layer.norm(y, "post_attention_norm"))
        y = layer.gated_ffn(layer.norm(x, "ffn_norm"), "gelu")
        if experts and layer.has("ffn_gate_inp"):
            y = add(g, layer.norm(y, "post_ffw_norm_1"), _experts(g, layer, x, experts))
        x = add(g, x, layer.norm(y, "post_ffw_norm"))
        if inputs is not None:
            x = add(g, x, per_layer_output(g, layer.block, x, inputs, layer.index, width, model.eps))
        if layer.has("layer_output_scale"):
            x = scaled_by(g, x, f"{layer.block}.layer_output_scale.weight", one=True)
    model.logits(x, cap=LOGIT_CAP)


def _rope(keys: Keys, g: Builder, heads: Heads, slides: bool) -> RopeSpec:
    return sliding_rope(keys, heads.dim_k, SLIDING_BASE) if slides else rope_spec(keys, g, heads.dim_k, "neox")


def _keys_and_values(layer: Layer, x: Value, slides: bool) -> tuple[Value, Value]:
    """Of layers that see everything the values may be the keys before their norm and rotation."""
    heads = layer.heads
    k = layer.matmul(x, "attn_k", heads.n_k)
    same = not slides and heads.dim_k == heads.dim_v and not layer.has("attn_v")
    v = k if same else layer.matmul(x, "attn_v", heads.n_v)
    return layer.norm(k, "attn_k_norm", heads.n_kv), layer.norm(v, groups=heads.n_kv)


def _experts(g: Builder, layer: Layer, x: Value, experts: Experts) -> Value:
    """The routed experts, beside those dense weights that every token takes; the router has a norm of its own."""
    router = scale(g, scaled_by(g, layer.norm(x), f"{layer.block}.ffn_gate_inp.scale"), g.n(x) ** -0.5)
    y = routed_experts(g, layer.block, layer.norm(x, "pre_ffw_norm_2"), experts, router)
    return layer.norm(y, "post_ffw_norm_2")
