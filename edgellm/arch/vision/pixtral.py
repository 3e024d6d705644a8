"""pixtral: the encoder of Pixtral, Mistral Small 3.1 and Ministral 3; a token ends each line of rows."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision._blocks import encoded, patches, rope_2d, two_products
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import matmul
from edgellm.ops.norm import rms_norm
from edgellm.ops.vision import merge_rows

LEAST_ROWS, MOST_ROWS = 8, 1024  # llama.cpp's limits


def build(keys: VisionKeys, g: Builder) -> None:
    """Rotary positions by row and column; Mistral's later models merge squares of patches by a product."""
    g.leave_out("v.token_embd.img_break")  # the row of a token that the model has as well
    n = keys.n_embd
    x = encoded(g, keys, patches(g, keys), "rms", rotation=rope_2d(keys, 10000.0, "norm", interleaved=True), gelu="gelu_erf")
    count = keys.merge("spatial_merge_size", 1) ** 2
    if "mm.patch_merger.weight" in g.tensors:
        x = merge_rows(g, rms_norm(g, x, "mm.input_norm", keys.eps), count, "channels")
        x = matmul(g, x, "mm.patch_merger", n)
    else:
        x = merge_rows(g, x, count)
    g.output("rows", two_products(g, keys, x, "mm.1", "mm.2"))


def images(keys: VisionKeys) -> ImageSpec:
    return replace(
        keys.spec(keys.merge("spatial_merge_size", 1)),
        layout="dynamic",
        least_rows=LEAST_ROWS,
        most_rows=MOST_ROWS,
        end="[IMG_END]",
        line_end="[IMG_BREAK]",
    )
