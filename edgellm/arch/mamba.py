"""mamba: Mamba 1, and Falcon Mamba, which normalises what the scan depends on."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.ends import logits, norm_epsilon, token_embedding
from edgellm.arch.blocks.recurrent import mamba, ssm_sizes
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, select
from edgellm.ops.norm import rms_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Pre-norm layers without feed-forward blocks; files may have an epsilon of their own for what the scan depends on."""
    eps, sizes = norm_epsilon(keys), ssm_sizes(keys)
    normalised = keys.number("ssm.dt_b_c_rms_epsilon", default=eps) if keys.flag("ssm.dt_b_c_rms", default=False) else None
    x = token_embedding(g, keys)
    for layer in range(keys.n_layers):
        block = f"blk.{layer}"
        x = add(g, x, mamba(g, block, rms_norm(g, x, f"{block}.attn_norm", eps), sizes, normalised))
    logits(g, keys, rms_norm(g, select(g, x), "output_norm", eps))
