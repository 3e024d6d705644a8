"""gemma4: Gemma 4 text models; sliding layers with shorter heads, last layers that attend to keys of earlier ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.blocks.attention import Heads, heads_of, layer_windows, sliding_layers
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, gated_ffn
from edgellm.arch.blocks.moe import Experts, experts_of, has_experts, routed_experts
from edgellm.arch.blocks.per_layer import per_layer_inputs, per_layer_output, per_layer_width
from edgellm.arch.blocks.positions import rope_spec, sliding_rope
from edgellm.arch.blocks.shared_kv import SharedStates
from edgellm.graph import Builder, RopeSpec, Value
from edgellm.hparams import Keys
from edgellm.ops.attention import attend
from edgellm.ops.dense import add, matmul, scale, scaled_by, select
from edgellm.ops.norm import rms_norm
from edgellm.ops.rope import rope

PERIOD = 6  # every sixth layer sees everything
LOGIT_CAP = 30.0  # of files that name none
SLIDING_BASE = 10000.0  # rope base of sliding layers where the file names none


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Blocks with four norms, and a fifth where tokens have rows per layer; the result of each block is scaled."""
    g.own_scales("ffn_down_exps")
    eps, slides, width = norm_epsilon(keys), sliding_layers(keys, PERIOD), per_layer_width(keys)
    heads = tuple(replace(head, scale=1.0) for head in heads_of(keys, slides))
    ropes = {flag: _rope(keys, tensors, g, heads[slides.index(flag)], flag) for flag in set(slides)}
    windows, states = layer_windows(keys, PERIOD), SharedStates(keys, slides)
    experts = replace(experts_of(keys, normalise=True), act="gelu") if has_experts(keys) else None
    x = scale(g, token_embedding(g, keys), math.sqrt(keys.n_embd))
    inputs = per_layer_inputs(g, keys, x, width, eps) if width else None
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys, experts=True), strict=True)):
        block, turn = f"blk.{layer}", ropes[slides[layer]]
        y = rms_norm(g, x, f"{block}.attn_norm", eps)
        q = rope(g, rms_norm(g, matmul(g, y, f"{block}.attn_q", head.n_q), f"{block}.attn_q_norm", eps, head.n), turn, head.n)
        if states.own(layer):
            k, v = _keys_and_values(g, head, block, y, eps, slides[layer])
            states.write(g, layer, rope(g, k, turn, head.n_kv), v, head.spec(windows[layer]))
        y = matmul(
            g, attend(g, q, states.of(g, layer, head.n), head.n, head.scale, head.softcap), f"{block}.attn_output", keys.n_embd
        )
        x = add(g, x, rms_norm(g, y, f"{block}.post_attention_norm", eps))
        y = gated_ffn(g, block, rms_norm(g, x, f"{block}.ffn_norm", eps), n_ff, "gelu")
        if experts and f"{block}.ffn_gate_inp.weight" in tensors:
            y = add(g, rms_norm(g, y, f"{block}.post_ffw_norm_1", eps), _experts(g, block, x, experts, eps))
        x = add(g, x, rms_norm(g, y, f"{block}.post_ffw_norm", eps))
        if inputs is not None:
            x = add(g, x, per_layer_output(g, block, x, inputs, layer, width, eps))
        if f"{block}.layer_output_scale.weight" in tensors:
            x = scaled_by(g, x, f"{block}.layer_output_scale.weight", one=True)
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps), cap=LOGIT_CAP)


def _rope(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder, head: Heads, slides: bool) -> RopeSpec:
    if slides:
        return sliding_rope(keys, head.dim_k, SLIDING_BASE)
    return rope_spec(keys, tensors, g.context, head.dim_k, "neox")


def _keys_and_values(g: Builder, head: Heads, block: str, x: Value, eps: float, slides: bool) -> tuple[Value, Value]:
    """Of layers that see everything the values may be the keys before their norm and rotation."""
    k = matmul(g, x, f"{block}.attn_k", head.n_k)
    same = not slides and head.dim_k == head.dim_v and f"{block}.attn_v.weight" not in g.tensors
    v = k if same else matmul(g, x, f"{block}.attn_v", head.n_v)
    return rms_norm(g, k, f"{block}.attn_k_norm", eps, head.n_kv), rms_norm(g, v, None, eps, head.n_kv)


def _experts(g: Builder, block: str, x: Value, experts: Experts, eps: float) -> Value:
    """The routed experts, beside those dense weights that every token takes; the router has a norm of its own."""
    router = scale(g, scaled_by(g, rms_norm(g, x, None, eps), f"{block}.ffn_gate_inp.scale"), g.n(x) ** -0.5)
    y = routed_experts(g, block, rms_norm(g, x, f"{block}.pre_ffw_norm_2", eps), experts, router)
    return rms_norm(g, y, f"{block}.post_ffw_norm_2", eps)
