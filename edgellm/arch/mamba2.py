"""mamba2: Mamba 2, and Codestral Mamba."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.recurrent import mamba2, mamba2_sizes
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm layers without feed-forward blocks."""
    eps, sizes = norm_epsilon(keys), mamba2_sizes(keys)
    x = token_embedding(g, keys)
    for layer in range(keys.n_layers):
        block = f"blk.{layer}"
        x = add(g, x, mamba2(g, block, rms_norm(g, x, f"{block}.attn_norm", eps), sizes, eps))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
