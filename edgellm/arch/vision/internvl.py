"""internvl: the encoder of InternVL 2.5, 3 and 3.5; a large image is cut into tiles, then an overview."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision._blocks import encoded, placed, two_products
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import merge_rows

EPS = 1e-5  # of PyTorch's LayerNorm
LARGE = (3200, 45)  # width and layers of the encoder with RMS norms
MOST_TILES = 64


def build(keys: VisionKeys, g: Builder) -> None:
    """A class token is seen by all patches; squares of patches become one row."""
    x = placed(g, keys, "bicubic", "first")
    x = encoded(g, keys, x, "rms" if (keys.n_embd, keys.n_layers) == LARGE else "layer", gelu="gelu_erf")
    x = layer_norm(g, merge_rows(g, x, keys.merge("projector.scale_factor", 2) ** 2), "mm.model.mlp.0", EPS)
    g.output("rows", two_products(g, keys, x, "mm.model.mlp.1", "mm.model.mlp.3"))


def images(keys: VisionKeys) -> ImageSpec:
    merge = keys.merge("projector.scale_factor", 2)
    return replace(
        keys.spec(merge),
        layout="nearest_ratio_tiles",
        size=keys.square(merge),
        least_tiles=keys.integer("preproc_min_tiles", 1, MOST_TILES, default=1),
        most_tiles=keys.integer("preproc_max_tiles", 1, MOST_TILES, default=12),
        class_row=True,
        begin="<img>",
        end="</img>",
    )
