"""idefics3: the SigLIP encoder of SmolVLM, Idefics 3 and granite-docling; a large image is cut into tiles."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision._blocks import encoded, placed
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import matmul
from edgellm.ops.vision import merge_rows

MOST_TILES = 16  # in a row; models have 4 or 5
FAKE = "<fake_token_around_image>"


def build(keys: VisionKeys, g: Builder) -> None:
    """Squares of patches become one row, which one product projects."""
    count = keys.merge("projector.scale_factor", 1) ** 2
    x = merge_rows(g, encoded(g, keys, placed(g, keys, "corners")), count)
    g.output("rows", matmul(g, x, "mm.model.fc", keys.n_out))


def images(keys: VisionKeys) -> ImageSpec:
    size = keys.square(keys.merge("projector.scale_factor", 1))
    return replace(
        keys.spec(keys.merge("projector.scale_factor", 1)),
        resample="lanczos",
        layout="longest_edge_tiles",
        size=size,
        longest_edge=keys.integer("preproc_image_size", 1, MOST_TILES * size, default=size),
        begin="",
        end=FAKE,
        tile=FAKE + "<row_{row}_col_{column}>",
        row_end="\n",
        overview="\n" + FAKE + "<global-img>",
        alone=FAKE + "<global-img>",
    )
