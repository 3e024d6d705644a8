"""mlp: CLIP encoders whose rows two products or one project: LLaVA 1.5, moondream 2, BakLLaVA and others."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.vision._blocks import blocks, optional_norm, patches
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder, Value
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import activation, add, matmul
from edgellm.ops.vision import grid_embed, merge_rows

PADDING = (122, 116, 104)  # CLIP's mean colour


def build(keys: VisionKeys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Rows of the file's last layer, or of the one that it names; makers take those of the model's last but one."""
    x = merge_rows(g, encoder(keys, tensors, g), 1)
    x = activation(g, "gelu", matmul(g, x, "mm.0", keys.rows("mm.0.weight")))
    g.output("rows", matmul(g, x, "mm.2", keys.n_out) if "mm.2.weight" in tensors else x)


def encoder(keys: VisionKeys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> Value:
    """Patches with learned positions, and a class token where the file has one."""
    has_class = "v.class_embd" in tensors
    rows = keys.grid("v.position_embd.weight", int(has_class))
    positions = grid_embed(g, "v.position_embd", rows, keys.n_embd, "corners", class_at="first" if has_class else None)
    x = optional_norm(g, "layer", add(g, patches(g, keys), positions), "v.pre_ln", keys.eps)
    layers = keys.feature_layer()
    for layer in range(layers, keys.n_layers):
        g.leave_out(f"v.blk.{layer}.")
    return optional_norm(g, "layer", blocks(g, keys, x, n_layers=layers), "v.post_ln", keys.eps)


def images(keys: VisionKeys) -> ImageSpec:
    return ImageSpec(
        patch=keys.patch,
        merge=1,
        mean=keys.colours("image_mean"),
        std=keys.colours("image_std"),
        resample="bicubic",
        layout="padded_square",
        size=keys.square(1),
        padding=PADDING,
        class_row=keys.has_tensor("v.class_embd"),
    )
