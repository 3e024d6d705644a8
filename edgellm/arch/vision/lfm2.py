"""lfm2: the SigLIP 2 encoder of LFM2-VL and LFM2.5-VL; a large image is cut into tiles of 512 x 512."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.vision._blocks import encoded, patches, two_products
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import grid_embed, merge_rows

LEAST_ROWS, MOST_ROWS, TILE = 64, 256, 512  # of the models' own processor_config.json
EPS = 1e-5  # of PyTorch's LayerNorm


def build(keys: VisionKeys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Positions are resized to the image; squares of patches become one row."""
    count = keys.merge("projector.scale_factor", 2) ** 2
    positions = grid_embed(g, "v.position_embd", keys.grid("v.position_embd.weight"), keys.n_embd, "antialias")
    x = encoded(g, keys, add(g, patches(g, keys), positions))
    x = merge_rows(g, x, count)
    if "mm.input_norm.weight" in tensors:
        x = layer_norm(g, x, "mm.input_norm", EPS)
    g.output("rows", two_products(g, x, "mm.1", "mm.2", keys.rows("mm.1.weight"), keys.n_out))


def images(keys: VisionKeys) -> ImageSpec:
    return ImageSpec(
        patch=keys.patch,
        merge=keys.merge("projector.scale_factor", 2),
        mean=keys.colours("image_mean"),
        std=keys.colours("image_std"),
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
