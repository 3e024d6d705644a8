"""mlp: CLIP encoders whose rows two products or one project: LLaVA 1.5 and 1.6, Yi-VL, moondream 2, BakLLaVA and others."""

from __future__ import annotations

import functools
from dataclasses import replace

from edgellm.arch.vision._blocks import encoded, placed
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder, Value
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import activation, matmul
from edgellm.ops.heads import join
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import merge_rows

NEWLINES = ("model.image_newline", "v.image_newline")  # of LLaVA 1.6, as old converters name it and as late ones do
MERGES = ("spatial_unpad", "spatial", "flat", "unires")  # ways of making LLaVA's tiles one picture
PADDING = (122, 116, 104)  # CLIP's mean colour


def build(keys: VisionKeys, g: Builder) -> None:
    """Rows of the layer that the file names, or of the model's last but one."""
    for newline in NEWLINES:
        g.leave_out(newline)
    x = merge_rows(g, encoder(keys, g), 1)
    if "mm.3.weight" in g.tensors:  # of Yi-VL
        x = layer_norm(g, matmul(g, x, "mm.0", keys.rows("mm.0.weight")), "mm.1", keys.eps)
        x = matmul(g, activation(g, "gelu_erf", x), "mm.3", keys.n_out)
        g.output("rows", layer_norm(g, x, "mm.4", keys.eps))
        return
    x = activation(g, "gelu_erf", matmul(g, x, "mm.0", keys.rows("mm.0.weight")))
    g.output("rows", matmul(g, x, "mm.2", keys.n_out) if "mm.2.weight" in g.tensors else x)


def encoder(keys: VisionKeys, g: Builder) -> Value:
    """Patches with learned positions, and a class token where the file has one; rows of several layers side by side."""
    x = placed(g, keys, "corners", "first" if "v.class_embd" in g.tensors else None)
    taken = keys.feature_layers()
    for layer in range(taken[-1], keys.n_layers):
        g.leave_out(f"v.blk.{layer}.")
    found: list[Value] = []

    def after(layer: int, x: Value) -> None:
        if layer + 1 in taken[:-1]:
            found.append(x)

    found.append(encoded(g, keys, x, n_layers=taken[-1], after=after))
    return functools.reduce(lambda a, b: join(g, a, b, 1), found)


def images(keys: VisionKeys) -> ImageSpec:
    """LLaVA 1.6's files list the sizes that a picture is resized to and cut into tiles, which become one grid with a row at the
    end of each line, unless the file has none.
    """
    plain, size = _of_one_image(keys), keys.square(1)
    if not (sizes := keys.resolutions(size)):
        return plain
    newline = next((name for name in NEWLINES if keys.has_tensor(name)), "")
    spatial = keys.text("mm_patch_merge_type", default="spatial_unpad", choices=MERGES) == "spatial_unpad"
    return replace(
        plain, layout="listed_sizes", sizes=sizes, padding=(0, 0, 0), overview_first=True, newline=newline if spatial else ""
    )


def _of_one_image(keys: VisionKeys) -> ImageSpec:
    return replace(
        keys.spec(), layout="padded_square", size=keys.square(1), padding=PADDING, class_row=keys.has_tensor("v.class_embd")
    )
