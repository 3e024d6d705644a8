"""ling3vl: the encoder of Qwen3-VL in Ling 3, whose rows are normed and merged, then projected."""

from __future__ import annotations

from edgellm.arch.vision._blocks import encoded, placed, rope_2d, two_products
from edgellm.arch.vision._keys import VisionKeys
from edgellm.arch.vision.qwen3vl_merger import images_of
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import merge_rows


def build(keys: VisionKeys, g: Builder) -> None:
    """Learned positions, resized to the image, beside rotary ones; squares of patches become one row."""
    x = encoded(g, keys, placed(g, keys, "corners", still=True), rotation=rope_2d(keys, 10000.0))
    x = merge_rows(g, layer_norm(g, x, "mm.input_norm", keys.eps), keys.merge("spatial_merge_size", 2) ** 2)
    g.output("rows", two_products(g, keys, x, "mm.0", "mm.2", "gelu"))


def images(keys: VisionKeys) -> ImageSpec:
    return images_of(keys)
