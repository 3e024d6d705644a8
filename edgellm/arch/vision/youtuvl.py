"""youtuvl: the SigLIP 2 encoder of Youtu-VL, most of whose layers see windows; squares of patches become one row."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision._blocks import encoded, rope_2d, two_products
from edgellm.arch.vision._keys import MOST_PIXELS, VisionKeys
from edgellm.arch.vision.qwen3vl_merger import images_of
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import matmul
from edgellm.ops.norm import rms_norm
from edgellm.ops.vision import merge_rows, pixels

EPS = 1e-6  # of the merger's norm
WINDOW = 112  # pixels of a window's side, where the file says 0
LEAST_ROWS, MOST_ROWS = 1, 62500  # llama.cpp's limits


def build(keys: VisionKeys, g: Builder) -> None:
    """Rotary positions; the file names the layers that see all of the image, all do where it names none."""
    full = keys.integers("wa_layer_indexes")
    windowed = [layer for layer in range(keys.n_layers) if full and layer not in full]
    x = matmul(g, pixels(g, keys.patch), "v.patch_embd", keys.n_embd)
    x = rms_norm(g, encoded(g, keys, x, rotation=rope_2d(keys, 10000.0), windowed=windowed), "mm.input_norm", EPS)
    x = merge_rows(g, x, keys.merge("spatial_merge_size", 2) ** 2)
    g.output("rows", two_products(g, keys, x, "mm.0", "mm.2"))


def images(keys: VisionKeys) -> ImageSpec:
    window = keys.integer("window_size", 0, MOST_PIXELS, default=0) or WINDOW
    spec = images_of(keys, window if keys.integers("wa_layer_indexes") else 0, rows=(LEAST_ROWS, MOST_ROWS))
    return replace(spec, layout="smaller_by_steps", resample="bilinear", channels_last=True)
