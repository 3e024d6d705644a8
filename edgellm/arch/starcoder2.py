"""starcoder2: StarCoder2; layer norms, biases everywhere and a plain gelu feed-forward."""

from __future__ import annotations

from functools import partial

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.transformer import Layer
from edgellm.ops.norm import layer_norm

# llama.cpp's files do not mention the window that some sizes were trained with.
build = decoder("neox", layer_norm, ffn=partial(Layer.plain_ffn, act="gelu"), slides=True)
