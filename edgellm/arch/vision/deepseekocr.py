"""deepseekocr: the encoder of DeepSeek-OCR: SAM, over whose rows CLIP's layers see all of an image; both make the model's rows."""

from __future__ import annotations

from edgellm.arch._stages import Stage
from edgellm.arch.vision import _sam
from edgellm.arch.vision._blocks import encoded, positions
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import add, matmul
from edgellm.ops.heads import join
from edgellm.ops.vision import merge_rows

MOST_TILES = 9


def stages(keys: VisionKeys) -> tuple[Stage, ...]:
    """CLIP has SAM's rows in the place of its own patches."""

    def clip(g: Builder) -> None:
        for name in ("v.patch_embd.", _sam.NEWLINE, _sam.SEPARATOR):
            g.leave_out(name)
        seen = _sam.quartered(g, keys)
        x = add(g, seen, positions(g, keys, "smooth_bicubic", "first"))
        x = join(g, encoded(g, keys, x, gelu="gelu_quick"), seen, 1)
        g.output("rows", matmul(g, merge_rows(g, x, 1), "mm.model.fc", keys.n_out))

    last = Stage(clip, (3, 3), stride=2, around=1, layers=True, class_row=True)
    return (*_sam.stages(keys, _tile(keys)), last)


def _tile(keys: VisionKeys) -> int:
    """Patches on a side of a tile: of 640 pixels where an overview has 1024."""
    return _sam.grid(keys) * 5 // 8


def images(keys: VisionKeys) -> ImageSpec:
    return _sam.images(keys, _tile(keys), MOST_TILES, _sam.NEWLINE)
