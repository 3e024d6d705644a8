"""phi4: the SigLIP 2 encoder of Phi-4-reasoning-vision, each of whose patches becomes a row by two products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgellm.arch.vision._blocks import encoded, patches, two_products
from edgellm.arch.vision._keys import VisionKeys
from edgellm.arch.vision.qwen3vl_merger import images_of
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import add
from edgellm.ops.vision import grid_embed, merge_rows


def build(keys: VisionKeys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Positions are resized to the image; files end with the layer before the model's last one."""
    positions = grid_embed(g, "v.position_embd", keys.grid("v.position_embd.weight"), keys.n_embd, "antialias")
    x = merge_rows(g, encoded(g, keys, add(g, patches(g, keys), positions)), 1)
    g.output("rows", two_products(g, x, "mm.0", "mm.2", keys.rows("mm.0.weight"), keys.n_out))


def images(keys: VisionKeys) -> ImageSpec:
    return replace(images_of(keys, merge="", rows=(1, 4096), marks=("", "")), resample="bilinear")
