"""gemma3: the SigLIP encoder of Gemma 3; squares of patches are averaged to 256 rows."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision._blocks import encoded, placed
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.norm import rms_norm
from edgellm.ops.vision import merge_rows, project

MERGE = 4  # patches of a square's side, where the file says nothing


def build(keys: VisionKeys, g: Builder) -> None:
    """Rows are normalised after they were averaged; the projection is stored with the encoder's width first."""
    x = encoded(g, keys, placed(g, keys, "antialias"))
    x = merge_rows(g, x, keys.merge("projector.scale_factor", MERGE) ** 2, "mean")
    g.output("rows", project(g, rms_norm(g, x, "mm.soft_emb_norm", keys.eps), "mm.input_projection", keys.n_out))


def images(keys: VisionKeys) -> ImageSpec:
    merge = keys.merge("projector.scale_factor", MERGE)
    return replace(
        keys.spec(merge),
        resample="bilinear",
        layout="square",
        size=keys.square(merge),
        both_ways=True,
        begin="<start_of_image>",
        end="<end_of_image>",
    )
