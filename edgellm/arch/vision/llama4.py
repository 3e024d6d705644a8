"""llama4: the encoder of Llama 4 Scout and Maverick; a large image is cut into tiles, then an overview."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision._blocks import encoded, positions, rope_2d
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import activation, add, matmul
from edgellm.ops.vision import merge_rows, pixels

MOST_TILES = 16


def build(keys: VisionKeys, g: Builder) -> None:
    """A class token stands at the end and is seen by all patches; squares of patches become one row."""
    x = matmul(g, pixels(g, keys.patch), "v.patch_embd", keys.n_embd)
    x = add(g, x, positions(g, keys, "corners", "last"))
    x = encoded(g, keys, x, rotation=rope_2d(keys, 10000.0, "norm"), gelu="gelu_erf")
    x = merge_rows(g, x, keys.merge("projector.scale_factor", 2) ** 2)
    for name in ("mm.model.mlp.1", "mm.model.mlp.2"):
        x = activation(g, "gelu_erf", matmul(g, x, name, keys.rows(f"{name}.weight")))
    g.output("rows", matmul(g, x, "mm.model.fc", keys.n_out))


def images(keys: VisionKeys) -> ImageSpec:
    merge = keys.merge("projector.scale_factor", 2)
    return replace(
        keys.spec(merge),
        resample="bilinear",
        layout="fitting_tiles",
        size=keys.square(merge),
        most_tiles=MOST_TILES,
        class_row=True,
        begin="<|image_start|>",
        tile_end="<|tile_x_separator|>",
        row_end="<|tile_y_separator|>",
        overview="<|image|>",
        alone="<|image|>",
        end="<|image_end|>",
    )
