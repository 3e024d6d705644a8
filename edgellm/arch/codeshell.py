"""codeshell: CodeShell; starcoder2 with one matrix for queries, keys and values."""

from __future__ import annotations

from functools import partial

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.transformer import Layer
from edgellm.ops.norm import layer_norm

build = decoder("neox", layer_norm, qkv=Layer.fused_qkv, ffn=partial(Layer.plain_ffn, act="gelu"), slides=True)
