"""The next token, chosen on the device: what the sampler does with plain options, in float32."""

from __future__ import annotations

import math

import mlx.core as mx

from edgellm.backends.mlx.inputs import Array
from edgellm.options.sampling import TokenChoice


def chosen(logits: Array, choice: TokenChoice) -> Array:
    """logits (n_vocab,) -> the id (1,) int32; see edgellm.sampling for the stages and their order."""
    if choice.biases:
        ids = mx.array(list(choice.biases), mx.int32)
        logits = logits.at[ids].add(mx.array(list(choice.biases.values()), mx.float32))
    if choice.temperature <= 0:
        return mx.argmax(logits, keepdims=True).astype(mx.int32)
    ids = None
    if 0 < choice.top_k < len(logits):
        ids = mx.argpartition(-logits, choice.top_k - 1)[: choice.top_k]
        logits = logits[ids]
    if choice.top_k > 0 or choice.top_p < 1:
        order = mx.argsort(-logits)
        logits, ids = logits[order], order if ids is None else ids[order]
    relative = logits - logits.max()
    kept = mx.ones(relative.shape, mx.bool_)
    if choice.top_p < 1:  # the best first: those that come before the sum reaches it, and the one that does
        kept = mx.cumsum(mx.softmax(relative), inclusive=False) < choice.top_p
    if choice.min_p > 0:
        kept = kept & (relative >= math.log(choice.min_p))
    sums = mx.cumsum(mx.where(kept, mx.exp(relative / choice.temperature), 0.0))
    at = mx.minimum((sums <= choice.uniform * sums[-1]).sum(keepdims=True), len(sums) - 1)
    return (at if ids is None else ids[at]).astype(mx.int32)
