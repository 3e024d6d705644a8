"""grovemoe: GroveMoE; experts of a group share a small one, which counts as much as those of them that a token takes."""

from __future__ import annotations

from edgellm.arch.blocks.moe import MAX_EXPERTS, Experts, expert_weights, experts_of, routed_experts
from edgellm.arch.blocks.transformer import Transformer
from edgellm.graph import Builder, Value
from edgellm.hparams import MAX_WIDTH, Keys
from edgellm.ops.dense import activation, add, head_columns, mul, scale
from edgellm.ops.moe import expert_matmul, expert_sum, topk


def build(keys: Keys, g: Builder) -> None:
    """Pre-norm blocks as Qwen3's, with two banks of experts."""
    experts = experts_of(keys, normalise=True)
    model = Transformer(keys, g, experts=experts)
    of_group = keys.integer("experts_per_group", 1, MAX_EXPERTS)
    if experts.n % of_group:
        raise keys.bad("experts_per_group", f"{of_group} does not divide the {experts.n} experts")
    factor, width = keys.number("expert_group_scale"), keys.integer("expert_chunk_feed_forward_length", 1, MAX_WIDTH)
    rope, x = model.rope("neox"), model.embed()
    for layer in model.layers():
        q, k, v = layer.qkv(layer.norm(x, "attn_norm"))
        q, k = layer.normed_heads(q, k)
        x = add(g, x, layer.attention(q, k, v, rope))
        y = layer.norm(x, "ffn_norm")
        weights = expert_weights(g, layer.block, y, experts)
        small = scale(g, _small(g, layer.block, y, weights, experts, of_group, width), factor)
        x = add(g, x, add(g, routed_experts(g, layer.block, y, experts, weights=weights), small))
    model.logits(x)


def _small(g: Builder, block: str, x: Value, weights: Value, experts: Experts, of_group: int, width: int) -> Value:
    """The groups' own experts, each weighed by the sum of its group's weights."""
    n = experts.n // of_group
    sums = head_columns(g, weights, n, 0, 1)
    for i in range(1, of_group):
        sums = add(g, sums, head_columns(g, weights, n, i, i + 1))
    k = min(experts.k, n)
    choice = topk(g, sums, k, "sigmoid", normalise=False)  # all groups that count; others of the k count 0
    gate, up = (expert_matmul(g, x, choice, f"{block}.ffn_{part}_chexps", k, width) for part in ("gate", "up"))
    return expert_sum(g, mul(g, activation(g, "silu", gate), up), choice, f"{block}.ffn_down_chexps", k, g.n(x), sums)
