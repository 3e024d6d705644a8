"""lfm2: the SigLIP 2 encoder of LFM2-VL and LFM2.5-VL; a large image is cut into tiles of 512 x 512."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision._blocks import encoded, placed, two_products
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import merge_rows

LEAST_ROWS, MOST_ROWS, TILE = 64, 256, 512  # of the models' own processor_config.json
EPS = 1e-5  # of PyTorch's LayerNorm


def build(keys: VisionKeys, g: Builder) -> None:
    """Positions are resized to the image; squares of patches become one row."""
    count = keys.merge("projector.scale_factor", 2) ** 2
    x = encoded(g, keys, placed(g, keys, "antialias"))
    x = merge_rows(g, x, count)
    if "mm.input_norm.weight" in g.tensors:
        x = layer_norm(g, x, "mm.input_norm", EPS)
    g.output("rows", two_products(g, keys, x, "mm.1", "mm.2"))


def images(keys: VisionKeys) -> ImageSpec:
    return replace(
        keys.spec(keys.merge("projector.scale_factor", 2)),
        resample="bilinear",
        layout="closest_grid_tiles",
        size=TILE,
        least_rows=LEAST_ROWS,
        most_rows=MOST_ROWS,
        begin="<|image_start|>",
        end="<|image_end|>",
        tile="<|img_row_{row}_col_{column}|>",
        overview="<|img_thumbnail|>",
    )
