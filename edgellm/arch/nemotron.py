"""nemotron: Nemotron-4 and Minitron; layer norms, a part of each head rotated, squared relus."""

from __future__ import annotations

from functools import partial

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.transformer import Layer
from edgellm.ops.norm import layer_norm

# The norms' weights have their 1 added in the file.
build = decoder("neox", layer_norm, ffn=partial(Layer.plain_ffn, act="relu_squared"))
