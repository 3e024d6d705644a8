"""internvl: the encoder of InternVL 2.5, 3 and 3.5; a large image is cut into tiles, then an overview."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.vision._blocks import encoded, patches, two_products
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import add
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import grid_embed, merge_rows

EPS = 1e-5  # of PyTorch's LayerNorm
LARGE = (3200, 45)  # width and layers of the encoder with RMS norms
MOST_TILES = 64


def build(keys: VisionKeys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """A class token is seen by all patches; squares of patches become one row."""
    table = "v.position_embd.weight"
    x = add(g, patches(g, keys), grid_embed(g, "v.position_embd", keys.grid(table, 1), keys.n_embd, "bicubic", class_at="first"))
    x = encoded(g, keys, x, "rms" if (keys.n_embd, keys.n_layers) == LARGE else "layer", gelu="gelu_erf")
    x = layer_norm(g, merge_rows(g, x, keys.merge("projector.scale_factor", 2) ** 2), "mm.model.mlp.0", EPS)
    g.output("rows", two_products(g, x, "mm.model.mlp.1", "mm.model.mlp.3", keys.rows("mm.model.mlp.1.weight"), keys.n_out))


def images(keys: VisionKeys) -> ImageSpec:
    merge = keys.merge("projector.scale_factor", 2)
    return ImageSpec(
        patch=keys.patch,
        merge=merge,
        mean=keys.colours("image_mean"),
        std=keys.colours("image_std"),
        resample="bicubic",
        layout="nearest_ratio_tiles",
        size=keys.square(merge),
        least_tiles=keys.integer("preproc_min_tiles", 1, MOST_TILES, default=1),
        most_tiles=keys.integer("preproc_max_tiles", 1, MOST_TILES, default=12),
        class_row=True,
        begin="<img>",
        end="</img>",
    )
