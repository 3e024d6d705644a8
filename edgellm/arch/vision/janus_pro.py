"""janus_pro: the SigLIP encoder of Janus-Pro, each of whose patches becomes a row by two products."""

from __future__ import annotations

from edgellm.arch.vision._blocks import encoded, placed, two_products
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.vision import merge_rows

LEAST_SIDE = 14  # pixels of the shorter side of a picture in its square


def build(keys: VisionKeys, g: Builder) -> None:
    x = merge_rows(g, encoded(g, keys, placed(g, keys, "corners"), gelu="gelu_erf"), 1)
    g.output("rows", two_products(g, keys, x, "mm.0", "mm.1"))


def images(keys: VisionKeys) -> ImageSpec:
    mean = keys.colours("image_mean")
    red, green, blue = (min(max(int(each * 255), 0), 255) for each in mean)
    return ImageSpec(
        patch=keys.patch,
        merge=1,
        mean=mean,
        std=keys.colours("image_std"),
        resample="bicubic",
        layout="framed_square",
        size=keys.square(1),
        least_side=LEAST_SIDE,
        padding=(red, green, blue),
        begin="<begin_of_image>",
        end="<end_of_image>",
    )
