"""Mixtures of experts: the keys that shape them, and the block of routed and shared experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from edgellm.arch.blocks.ffn import gated_ffn, plain_ffn
from edgellm.graph import Builder, Value
from edgellm.hparams import MAX_WIDTH, Keys
from edgellm.ops.dense import activation, add, clamp, matmul, mul, scaled_by
from edgellm.ops.moe import MAX_GROUPS, Gating, expert_matmul, expert_sum, gated_by, glu_clamped, slot_scale, topk

MAX_EXPERTS = 2**16
MAX_USED = 256  # experts of one token
GATING = {1: "softmax", 2: "sigmoid", 3: "softmax"}  # expert_gating_func; 3: of the chosen alone, so that they sum to 1


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of a layer, as `ops.moe.topk` takes them. `n_ff_shared`: the width of those that every token takes; 0: none."""

    n: int
    k: int
    n_ff: int
    gating: Gating
    normalise: bool
    scale: float
    groups: int
    groups_used: int
    n_ff_shared: int
    act: str = "silu"
    clamp: float | None = None  # gpt-oss: limit of gate and up, in the place of `act`
    plain: bool = False  # down(act(up(x))), without a gate
    latent: int = 0  # row length between two more matrices around routed experts; 0: none
    weighs_inputs: bool = False  # whether weights multiply what goes into an expert, not what comes out
    limit: float | None = None  # of an expert's activated gate, and of what it multiplies
    limit_shared: float | None = None  # the same of shared experts
    limit_up: float | None = None  # of what it multiplies, where that is another one


def has_experts(keys: Keys) -> bool:
    return keys.integer("expert_count", 0, MAX_EXPERTS, default=0) > 0


def routes(g: Builder, block: str) -> bool:
    """True if a layer has experts, where only the tensors say it: some of theirs."""
    return any(f"{block}.ffn_{part}.weight" in g.tensors for part in ("gate_inp", "gate_exps", "up_exps", "down_exps"))


def experts_of(keys: Keys, *, gating: Gating = "softmax", normalise: bool, shared: int = 0, layer: int | None = None) -> Experts:
    """The experts that the keys describe; `gating`, `normalise` and `shared` are used where a key is missing. Raises BadHParam.

    `layer`: whose experts these are, in families that may list their numbers and widths by layer.
    """
    n = keys.integer("expert_count", 1, MAX_EXPERTS)
    width = max(keys.per_layer("feed_forward_length", 0, default=(0,) * keys.n_layers))
    if layer is None:
        stored = keys.stored_rows("ffn_up_exps") if width or not keys.has("feed_forward_length") else 0
        k = keys.integer("expert_used_count", 1, min(n, MAX_USED))
        n_ff = keys.integer("expert_feed_forward_length", 1, MAX_WIDTH, default=stored or width)
    else:
        k = keys.per_layer("expert_used_count", 0, min(n, MAX_USED))[layer] or 1
        n_ff = keys.per_layer("expert_feed_forward_length", 0, default=(width,) * keys.n_layers)[layer] or width
    if not n_ff:
        raise keys.bad("feed_forward_length", "0 is no width of experts, and no other key says it")
    n_shared = keys.integer("expert_shared_count", 0, MAX_USED, default=shared)
    n_ff_shared = n_shared * n_ff or keys.stored_rows("ffn_up_shexp")
    function = keys.integer("expert_gating_func", 0, 3, default=0)
    groups = keys.integer("expert_group_count", 0, MAX_GROUPS, default=1) or 1
    used = keys.integer("expert_group_used_count", 0, groups, default=groups) or groups
    if n % groups or k > n // groups * used:
        raise keys.bad("expert_group_count", f"{k} of {n} experts cannot come from {used} of {groups} groups")
    return Experts(
        n,
        k,
        n_ff,
        cast(Gating, GATING.get(function, gating)),
        function == 3 or keys.flag("expert_weights_norm", default=normalise),
        keys.number("expert_weights_scale", default=1.0, zero=True) or 1.0,
        groups,
        used,
        keys.integer("expert_shared_feed_forward_length", 0, MAX_WIDTH, default=n_ff_shared),
    )


def expert_weights(g: Builder, block: str, x: Value, experts: Experts) -> Value:
    """The weights of each token's experts, 0 for all others."""
    bias = next((name for name in (f"{block}.exp_probs_b.bias", f"{block}.exp_probs_b") if name in g.tensors), None)
    return topk(
        g,
        matmul(g, x, f"{block}.ffn_gate_inp", experts.n),
        experts.k,
        experts.gating,
        normalise=experts.normalise,
        scale=experts.scale,
        groups=experts.groups,
        groups_used=experts.groups_used,
        bias=bias,
    )


def routed_experts(
    g: Builder, block: str, x: Value, experts: Experts, router: Value | None = None, weights: Value | None = None
) -> Value:
    """The weighted sum of the experts that each token takes. `router`: what the router sees, where that is not x; `weights`:
    what it says, where that is known.
    """
    k, n, down = experts.k, g.n(x), f"{block}.ffn_down_exps"
    weights = expert_weights(g, block, x if router is None else router, experts) if weights is None else weights
    if experts.latent:
        x = matmul(g, x, f"{block}.ffn_latent_down", experts.latent)
    scale = g.scale_of(down)
    factors = scaled_by(g, weights, scale, of_weight=not g.owns_scale(down)) if scale else None
    y = expert_sum(g, _inner(g, block, x, weights, experts), weights, down, k, g.n(x), factors)
    return matmul(g, y, f"{block}.ffn_latent_up", n) if experts.latent else y


def _inner(g: Builder, block: str, x: Value, weights: Value, experts: Experts) -> Value:
    """The inputs of the experts' last matrices."""
    n_ff, k = experts.n_ff, experts.k
    if experts.plain:
        return activation(g, experts.act, expert_matmul(g, x, weights, f"{block}.ffn_up_exps", k, n_ff))
    if (merged := f"{block}.ffn_gate_up_exps") + ".weight" in g.tensors:
        gate = expert_matmul(g, x, weights, merged, k, n_ff, rows=2 * n_ff)
        up = expert_matmul(g, x, weights, merged, k, n_ff, start=n_ff, rows=2 * n_ff)
    else:
        gate = expert_matmul(g, x, weights, f"{block}.ffn_gate_exps", k, n_ff)
        up = expert_matmul(g, x, weights, f"{block}.ffn_up_exps", k, n_ff)
    if experts.clamp is not None:
        return glu_clamped(g, gate, up, experts.clamp)
    if experts.weighs_inputs:  # the other factor, up's, comes with the sum: all but the activation is linear
        gate = slot_scale(g, gate, weights, k)
    return mul(g, clamp(g, activation(g, experts.act, gate), experts.limit), clamp(g, up, experts.limit_up or experts.limit))


def moe_ffn(g: Builder, block: str, x: Value, experts: Experts, *, gated: bool = False) -> Value:
    """Routed experts plus shared ones where there are any. `gated`: a token says how much its shared experts count."""
    y = routed_experts(g, block, x, experts)
    if not experts.n_ff_shared:
        return y
    if experts.plain:
        shared = plain_ffn(g, block, x, experts.n_ff_shared, experts.act, "_shexp")
    else:
        shared = gated_ffn(g, block, x, experts.n_ff_shared, experts.act, "_shexp", experts.limit_shared)
    if gated:
        shared = gated_by(g, shared, x, f"{block}.ffn_gate_inp_shexp")
    return add(g, y, shared)
