"""jina-bert-v3: Jina Embeddings 3; XLM-R's blocks with rotary positions."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import project_qkv
from edgellm.arch.blocks.encoder import rotary_encoder
from edgellm.arch.blocks.ffn import ffn_lengths, plain_ffn
from edgellm.graph import Builder
from edgellm.hparams import Keys


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Post-norm blocks with biases and a plain feed-forward; every token is of the first type."""
    widths = ffn_lengths(keys)
    rotary_encoder(keys, tensors, g, project_qkv, lambda layer, x: plain_ffn(g, f"blk.{layer}", x, widths[layer], "gelu_erf"))
