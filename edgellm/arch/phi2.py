"""phi2: Phi-1, 1.5 and 2; attention and feed-forward side by side after one layer norm, biases on logits too."""

from __future__ import annotations

from functools import partial

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.transformer import Layer
from edgellm.ops.norm import layer_norm

build = decoder("neox", layer_norm, ffn=partial(Layer.plain_ffn, act="gelu"), ffn_norm=None)
