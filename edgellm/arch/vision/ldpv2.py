"""ldpv2: CLIP's encoder and the projector of MobileVLM 2, which averages squares of patches and adds a convolution of them."""

from __future__ import annotations

from edgellm.arch.vision import ldp, mlp
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import activation, add, add_bias, matmul
from edgellm.ops.neighbours import depth_conv, merged_neighbours
from edgellm.ops.vision import merge_rows


def build(keys: VisionKeys, g: Builder) -> None:
    x = matmul(g, mlp.encoder(keys, g), "mm.model.mlp.0", keys.n_out)
    x = merge_rows(g, matmul(g, activation(g, "gelu_erf", x), "mm.model.mlp.2", keys.n_out), ldp.MERGE**2, "mean")
    y = depth_conv(g, x, merged_neighbours(g, ldp.MERGE), "mm.model.peg.0.weight")
    g.output("rows", add(g, x, add_bias(g, y, "mm.model.peg.0.bias")))


def images(keys: VisionKeys) -> ImageSpec:
    return ldp.images(keys)
