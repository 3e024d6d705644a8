"""kimik25: MoonViT, the encoder of Kimi K2.5; squares of patches become one row."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision import kimivl
from edgellm.arch.vision._blocks import rope_2d
from edgellm.arch.vision._keys import VisionKeys
from edgellm.arch.vision.qwen3vl_merger import images_of
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec

LEAST_ROWS, MOST_ROWS = 2, 4096  # llama.cpp's limits
MOST_PATCHES = 512  # of a side, in the makers' processor


def build(keys: VisionKeys, g: Builder) -> None:
    """Files have the heads of Kimi-VL in another order: pairs that turn by columns, then those by rows."""
    kimivl.encoder(keys, g, rope_2d(keys, 10000.0, "norm"))


def images(keys: VisionKeys) -> ImageSpec:
    marks = ("<|media_begin|>", "<|media_end|>")
    spec = images_of(keys, merge="projector.scale_factor", rows=(LEAST_ROWS, MOST_ROWS), marks=marks)
    return replace(spec, layout="patch_budget", longest_edge=MOST_PATCHES * keys.patch)
