"""ling3vl: the encoder of Qwen3-VL in Ling 3, whose rows are normed and merged, then projected."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.vision._blocks import encoded, patches, rope_2d, two_products
from edgellm.arch.vision._keys import VisionKeys
from edgellm.arch.vision.qwen3vl_merger import images_of
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import grid_embed, merge_rows


def build(keys: VisionKeys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Learned positions, resized to the image, beside rotary ones; squares of patches become one row."""
    positions = grid_embed(g, "v.position_embd", keys.grid("v.position_embd.weight"), keys.n_embd, "corners")
    x = encoded(g, keys, add(g, patches(g, keys, still=True), positions), rotation=rope_2d(keys, 10000.0))
    x = merge_rows(g, layer_norm(g, x, "mm.input_norm", keys.eps), keys.merge("spatial_merge_size", 2) ** 2)
    g.output("rows", two_products(g, x, "mm.0", "mm.2", keys.rows("mm.0.weight"), keys.n_out, "gelu"))


def images(keys: VisionKeys) -> ImageSpec:
    return images_of(keys)
