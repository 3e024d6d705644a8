"""paddleocr: the encoder of PaddleOCR-VL; squares of patches become one row."""

from __future__ import annotations

from edgellm.arch.vision._blocks import encoded, placed, rope_2d, two_products
from edgellm.arch.vision._keys import VisionKeys
from edgellm.arch.vision.qwen3vl_merger import images_of
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import merge_rows

EPS = 1e-5  # of the projector


def build(keys: VisionKeys, g: Builder) -> None:
    """Learned positions, resized to the image, beside rotary ones."""
    x = placed(g, keys, "bilinear")
    x = encoded(g, keys, x, rotation=rope_2d(keys, 10000.0))
    count = keys.merge("spatial_merge_size", 2) ** 2
    x = merge_rows(g, layer_norm(g, x, "mm.input_norm", EPS), count)
    g.output("rows", two_products(g, keys, x, "mm.1", "mm.2"))


def images(keys: VisionKeys) -> ImageSpec:
    return images_of(keys, marks=("<|IMAGE_START|>", "<|IMAGE_END|>"))
