"""step3vl: the encoder of Step3-VL and Step 3.7, whose rows two convolutions of stride 2 gather; windows and an overview."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch._stages import Stage
from edgellm.arch.vision._blocks import encoded, placed, rope_2d
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import matmul
from edgellm.ops.vision import features, merge_rows, patch_conv

STRIDES = 4  # of both convolutions
TILE = (9, 13)  # the side of a tile, as a share of the overview's: 504 of 728 pixels
LONGEST_EDGE = 3024


def stages(keys: VisionKeys) -> tuple[Stage, ...]:
    """Positions are resized to the image, beside rotary ones."""
    first, _ = keys.kernel("mm.0.weight")
    second, _ = keys.kernel("mm.1.weight")

    def halved(g: Builder) -> None:
        y = patch_conv(g, features(g, 9 * keys.n_embd), "mm.0.weight", first, _bias(g, "mm.0.bias"), keys.n_embd)
        g.output("rows", merge_rows(g, y, 1))

    def quartered(g: Builder) -> None:
        y = patch_conv(g, features(g, 9 * first), "mm.1.weight", second, _bias(g, "mm.1.bias"), first)
        g.output("rows", matmul(g, merge_rows(g, y, 1), "mm.model.fc", keys.n_out))

    return (
        Stage(lambda g: _layers(keys, g), layers=True),
        Stage(halved, (3, 3), stride=2, around=1),
        Stage(quartered, (3, 3), stride=2, around=1),
    )


def _bias(g: Builder, name: str) -> str | None:
    return name if name in g.tensors else None


def _layers(keys: VisionKeys, g: Builder) -> None:
    x = placed(g, keys, "bilinear")
    g.output("rows", merge_rows(g, encoded(g, keys, x, rotation=rope_2d(keys, 10000.0, "norm")), 1))


def images(keys: VisionKeys) -> ImageSpec:
    size, side = keys.square(STRIDES), keys.patch * STRIDES
    tile, longest = max(size // side * TILE[0] // TILE[1], 1) * side, keys.longest_edge(LONGEST_EDGE)
    return replace(
        keys.spec(),
        resample="bilinear",
        layout="windows",
        strides=STRIDES,
        size=size,
        tile_size=tile,
        most_tiles=(longest // tile) ** 2,
        longest_edge=longest,
        tile="<patch_start>",
        tile_end="<patch_end>",
        row_end="<patch_end><patch_newline>",
        last_tile_end="<patch_end>",
        overview="<im_start>",
        alone="<im_start>",
        end="<im_end>",
    )
