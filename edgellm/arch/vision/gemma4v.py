"""gemma4v: the encoder of Gemma 4 E2B, E4B, 26B and 31B; squares of patches are averaged."""

from __future__ import annotations

from edgellm.arch.vision._blocks import blocks, patches, rope_2d
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import add, add_bias, matmul, scale, scaled_by
from edgellm.ops.norm import rms_norm
from edgellm.ops.vision import grid_embed, merge_rows

MERGE = 3  # patches of a square's side, where the file says nothing
ROWS, MOST_ROWS = 280, 1120  # of an image as Gemma 4's own processor has it; more where they are asked for
ROPE_BASE = 100.0
CAUSAL = (1536, 2560)  # widths of E2B and E4B, which read images token by token


def build(keys: VisionKeys, g: Builder) -> None:
    """Positions are looked up by column and row and rotate heads as well; sums of squares are brought to the text's scale."""
    g.leave_out("v.std_")
    x = add(g, patches(g, keys), grid_embed(g, "v.position_embd", keys.axis("v.position_embd.weight"), keys.n_embd, "axes"))
    x = blocks(g, keys, x, "rms", rotation=rope_2d(keys, ROPE_BASE, "axial"), scale=1.0, values_normed=True)
    x = merge_rows(g, x, keys.merge("projector.scale_factor", MERGE) ** 2, "mean")
    x = scale(g, x, keys.n_embd**0.5)
    if "v.std_bias" in g.tensors:
        x = scaled_by(g, scale(g, add_bias(g, scale(g, x, -1.0), "v.std_bias"), -1.0), "v.std_scale")
    project_gemma(g, keys, x)


def project_gemma(g: Builder, keys: VisionKeys, x: int) -> None:
    """Rows without a norm's weight, projected."""
    g.output("rows", matmul(g, rms_norm(g, x, None, keys.eps), "mm.input_projection", keys.n_out))


def images(keys: VisionKeys) -> ImageSpec:
    return images_of(keys, keys.patch, keys.merge("projector.scale_factor", MERGE), 0.5)


def images_of(keys: VisionKeys, patch: int, merge: int, middle: float) -> ImageSpec:
    """The form of Gemma 4's images. `middle`: of colours from 0 to 1, where it is 0 for the encoder; 0: they stay as they are."""
    mean, std = keys.colours("image_mean"), keys.colours("image_std")
    if middle:  # x * 2 - 1, after mean and deviation
        mean = tuple(m + s * middle for m, s in zip(mean, std, strict=True))  # type: ignore[assignment]  # three of them
        std = tuple(s * middle for s in std)  # type: ignore[assignment]  # three of them
    return ImageSpec(
        patch=patch,
        merge=merge,
        mean=mean,
        std=std,
        resample="bicubic",
        layout="area",
        least_rows=1,
        most_rows=ROWS,
        upper_rows=MOST_ROWS,
        both_ways=keys.n_out not in CAUSAL,
        begin="<|image>",
        end="<image|>",
    )
