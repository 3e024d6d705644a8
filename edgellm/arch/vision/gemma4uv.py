"""gemma4uv: the images of Gemma 4 12B, which has no encoder: large patches are projected at once."""

from __future__ import annotations

from edgellm.arch.vision._keys import VisionKeys
from edgellm.arch.vision.gemma4v import MERGE, images_of, project_gemma
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import add, matmul
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import grid_embed, merge_rows, pixels

EPS = 1e-5  # of PyTorch's LayerNorm


def _patch(keys: VisionKeys) -> int:
    """Pixels of a side: `patch_size` is that of the models with an encoder."""
    return keys.patch * keys.merge("projector.scale_factor", MERGE)


def build(keys: VisionKeys, g: Builder) -> None:
    """Norms of pixels, of patches, and after positions by column and row."""
    x = layer_norm(g, pixels(g, _patch(keys)), "v.patch_norm.1", EPS)
    x = layer_norm(g, matmul(g, x, "v.patch_embd", keys.n_embd), "v.patch_norm.2", EPS)
    x = add(g, x, grid_embed(g, "v.position_embd", keys.axis("v.position_embd.weight"), keys.n_embd, "axes"))
    project_gemma(g, keys, merge_rows(g, layer_norm(g, x, "v.patch_norm.3", EPS), 1))


def images(keys: VisionKeys) -> ImageSpec:
    return images_of(keys, _patch(keys), 1, 0.0)
