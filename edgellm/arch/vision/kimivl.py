"""kimivl: MoonViT, the encoder of Kimi-VL; squares of patches become one row."""

from __future__ import annotations

from edgellm.arch.vision._blocks import encoded, placed, rope_2d, two_products
from edgellm.arch.vision._keys import VisionKeys
from edgellm.arch.vision.qwen3vl_merger import images_of
from edgellm.graph import Builder, RopeSpec
from edgellm.image_spec import ImageSpec
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import merge_rows

EPS = 1e-5  # of PyTorch's LayerNorm
LEAST_ROWS, MOST_ROWS = 8, 1024  # llama.cpp's limits


def build(keys: VisionKeys, g: Builder) -> None:
    """Rotary positions turn pairs by column and row in turn."""
    encoder(keys, g, rope_2d(keys, 10000.0, "norm", alternating=True))


def encoder(keys: VisionKeys, g: Builder, rotation: RopeSpec) -> None:
    """MoonViT: learned positions, resized to the image, beside rotary ones."""
    x = placed(g, keys, "bicubic")
    x = encoded(g, keys, x, rotation=rotation)
    count = keys.merge("projector.scale_factor", 2) ** 2
    x = merge_rows(g, layer_norm(g, x, "mm.input_norm", EPS), count)
    g.output("rows", two_products(g, keys, x, "mm.1", "mm.2"))


def images(keys: VisionKeys) -> ImageSpec:
    return images_of(keys, merge="projector.scale_factor", rows=(LEAST_ROWS, MOST_ROWS), marks=("<|media_start|>", "<|media_end|>"))
