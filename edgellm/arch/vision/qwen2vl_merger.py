"""qwen2vl_merger: the encoder of Qwen2-VL, and with RMS norms, gates and windows that of Qwen2.5-VL."""

from __future__ import annotations

from collections.abc import Collection

from edgellm.arch.vision._blocks import Norm, encoded, patches, rope_2d, two_products
from edgellm.arch.vision._keys import VisionKeys
from edgellm.arch.vision.qwen3vl_merger import images_of
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.vision import merge_rows


def build(keys: VisionKeys, g: Builder) -> None:
    encoder(keys, g, "layer")


def encoder(keys: VisionKeys, g: Builder, kind: Norm, windowed: Collection[int] = ()) -> None:
    """Rotary positions by row and column; squares of patches become one row. `windowed`: layers that see windows only."""
    count = keys.merge("spatial_merge_size", 2) ** 2
    x = encoded(g, keys, patches(g, keys, still=True), kind, rotation=rope_2d(keys, 10000.0), windowed=windowed)
    x = merge_rows(g, x, count)
    g.output("rows", two_products(g, keys, x, "mm.0", "mm.2"))


def images(keys: VisionKeys) -> ImageSpec:
    return images_of(keys)
