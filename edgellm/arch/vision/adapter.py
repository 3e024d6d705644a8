"""adapter: the SigLIP encoder of GLM-Edge-V; a convolution halves the grid, and two rows of the file stand around an image."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision._blocks import encoded, placed
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import activation, matmul, mul
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import merge_rows, patch_conv

MERGE = 2  # patches of a side that become one row


def build(keys: VisionKeys, g: Builder) -> None:
    """Gated products after the convolution."""
    g.leave_out("adapter.boi")
    g.leave_out("adapter.eoi")
    x = encoded(g, keys, placed(g, keys, "corners"))
    x = merge_rows(g, x, MERGE**2, "channels")
    x = patch_conv(g, x, "adapter.conv.weight", keys.n_out, "adapter.conv.bias", keys.n_embd)
    linear = "adapter.linear"
    n = keys.rows(f"{linear}.gate.weight")
    x = layer_norm(g, matmul(g, x, f"{linear}.linear", keys.rows(f"{linear}.linear.weight")), f"{linear}.norm1", keys.eps)
    x = activation(g, "gelu_erf", x)
    x = mul(g, activation(g, "silu", matmul(g, x, f"{linear}.gate", n)), matmul(g, x, f"{linear}.dense_h_to_4h", n))
    g.output("rows", matmul(g, x, f"{linear}.dense_4h_to_h", keys.n_out))


def images(keys: VisionKeys) -> ImageSpec:
    return replace(keys.spec(MERGE), layout="square", size=keys.square(MERGE), begin_row="adapter.boi", end_row="adapter.eoi")
