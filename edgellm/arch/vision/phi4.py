"""phi4: the SigLIP 2 encoder of Phi-4-reasoning-vision, each of whose patches becomes a row by two products."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision._blocks import encoded, placed, two_products
from edgellm.arch.vision._keys import VisionKeys
from edgellm.arch.vision.qwen3vl_merger import images_of
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.vision import merge_rows


def build(keys: VisionKeys, g: Builder) -> None:
    """Positions are resized to the image; files end with the layer before the model's last one."""
    x = merge_rows(g, encoded(g, keys, placed(g, keys, "antialias")), 1)
    g.output("rows", two_products(g, keys, x, "mm.0", "mm.2"))


def images(keys: VisionKeys) -> ImageSpec:
    return replace(images_of(keys, merge="", rows=(1, 4096), marks=("", "")), resample="bilinear")
