"""hunyuanvl: the encoder of HunyuanOCR; squares of patches become one row, and a row of the file ends each line of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from edgellm.arch.vision._blocks import encoded, placed
from edgellm.arch.vision._keys import VisionKeys
from edgellm.arch.vision.qwen3vl_merger import images_of
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops._spec import Array
from edgellm.ops.dense import activation, matmul
from edgellm.ops.norm import rms_norm
from edgellm.ops.vision import merge_rows, patch_conv

LEAST_ROWS, MOST_ROWS = 256, 16384  # llama.cpp's limits
MARKS = ("<｜hy_place▁holder▁no▁100｜>", "<｜hy_place▁holder▁no▁101｜>")
BEGIN, NEWLINE, END = "mm.image_begin", "v.image_newline", "mm.image_end"


def build(keys: VisionKeys, g: Builder) -> None:
    """Positions are resized to the image; two convolutions and a product project squares, whose rows are normalised."""
    for name in (BEGIN, NEWLINE, END, "v.view_seperator"):
        g.leave_out(name)
    x = placed(g, keys, "bilinear")
    x = rms_norm(g, encoded(g, keys, x, gelu="gelu_erf"), "mm.pre_norm", keys.eps)
    x = merge_rows(g, x, keys.merge("spatial_merge_size", 2) ** 2, "channels")
    inner, wide = keys.length("mm.0.bias"), keys.length("mm.2.bias")
    x = activation(g, "gelu_erf", patch_conv(g, x, "mm.0.weight", inner, "mm.0.bias", keys.n_embd))
    x = matmul(g, patch_conv(g, x, "mm.2.weight", wide, "mm.2.bias", inner), "mm.model.fc", keys.n_out)
    g.output("rows", rms_norm(g, x, "mm.post_norm", keys.eps))


def images(keys: VisionKeys) -> ImageSpec:
    keys.check_row(NEWLINE, keys.length("mm.2.bias"))
    for name in (BEGIN, END):
        keys.check_row(name, keys.n_out)
    spec = images_of(keys, rows=(LEAST_ROWS, MOST_ROWS), marks=MARKS)
    return replace(spec, line_rows=(BEGIN, NEWLINE, END))


@np.errstate(all="ignore")  # damaged tensors give rows that are NaN, which is an error of its own
def row(keys: VisionKeys, name: str, read: Callable[[str], Array]) -> Array:
    """One of the rows (1, n_out) around those of an image, which are normalised like them. `read`: a tensor of the file."""
    x = read(name).reshape(1, -1)
    if name == NEWLINE:
        x = x @ read("mm.model.fc.weight").T + read("mm.model.fc.bias")
    normal: Array = x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + np.float32(keys.eps)) * read("mm.post_norm.weight")
    return normal.astype(np.float32)
