"""grovemoe: GroveMoE; experts of a group share a small one, which counts as much as those of them that a token takes."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.moe import MAX_EXPERTS, Experts, expert_weights, experts_of, routed_experts
from edgellm.arch.blocks.norms import normed_heads
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder, Value
from edgellm.hparams import MAX_WIDTH, Keys
from edgellm.ops.dense import activation, add, head_columns, matmul, mul, scale, select
from edgellm.ops.moe import expert_matmul, expert_sum, topk
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm blocks as Qwen3's, with two banks of experts."""
    eps, heads, experts = norm_epsilon(keys), heads_of(keys), experts_of(keys, normalise=True)
    of_group = keys.integer("experts_per_group", 1, MAX_EXPERTS)
    if experts.n % of_group:
        raise keys.bad("experts_per_group", f"{of_group} does not divide the {experts.n} experts")
    factor, width = keys.number("expert_group_scale"), keys.integer("expert_chunk_feed_forward_length", 1, MAX_WIDTH)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = token_embedding(g, keys)
    for layer, head in enumerate(heads):
        block = f"blk.{layer}"
        q, k, v = project_qkv(g, head, block, rms_norm(g, x, f"{block}.attn_norm", eps))
        q, k = normed_heads(g, head, block, q, k, eps)
        x = add(g, x, matmul(g, rotated_attention(g, head, q, k, v, rope), f"{block}.attn_output", keys.n_embd))
        y = rms_norm(g, x, f"{block}.ffn_norm", eps)
        weights = expert_weights(g, block, y, experts)
        small = scale(g, _small(g, block, y, weights, experts, of_group, width), factor)
        x = add(g, x, add(g, routed_experts(g, block, y, experts, weights=weights), small))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))


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
