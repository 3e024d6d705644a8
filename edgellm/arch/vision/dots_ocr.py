"""dots_ocr: the encoder of dots.ocr; squares of patches become one row."""

from __future__ import annotations

from edgellm.arch.vision._blocks import encoded, patches, rope_2d, two_products
from edgellm.arch.vision._keys import VisionKeys
from edgellm.arch.vision.qwen3vl_merger import images_of
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.norm import layer_norm, rms_norm
from edgellm.ops.vision import merge_rows

EPS = 1e-6  # of the merger's norm
MERGE = "projector.scale_factor"


def build(keys: VisionKeys, g: Builder) -> None:
    """Rotary positions by row and column; a norm follows the patches."""
    x = encoded(g, keys, patches(g, keys), "rms", rotation=rope_2d(keys, 10000.0))
    x = rms_norm(g, x, "mm.post_norm", keys.eps)
    count = keys.merge(MERGE, 2) ** 2
    x = merge_rows(g, layer_norm(g, x, "mm.input_norm", EPS), count)
    g.output("rows", two_products(g, keys, x, "mm.0", "mm.2"))


def images(keys: VisionKeys) -> ImageSpec:
    return images_of(keys, merge=MERGE, marks=("<|img|>", "<|endofimg|>"))
