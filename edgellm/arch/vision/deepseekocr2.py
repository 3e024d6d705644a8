"""deepseekocr2: the encoder of DeepSeek-OCR 2: SAM, whose rows a Qwen2 reads in the order that its queries learned."""

from __future__ import annotations

from edgellm.arch._stages import Stage
from edgellm.arch.vision import _sam
from edgellm.arch.vision._blocks import encoded
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder, RopeSpec
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import add, matmul
from edgellm.ops.vision import merge_rows, sized_queries

MOST_TILES = 6
BASE = 1e6  # of rotary positions, in no file
QUERIES = ("v.resample_query_1024.weight", "v.resample_query_768.weight")  # of an overview and of a tile


def stages(keys: VisionKeys) -> tuple[Stage, ...]:
    """A query for each of SAM's rows sees all of these and the queries before it; the queries are the model's rows."""
    counts = tuple((-(-side // _sam.STRIDES)) ** 2 for side in (_sam.grid(keys), _tile(keys)))
    if keys.head_dim % 2:
        raise keys.bad("attention.head_count", f"heads of {keys.head_dim} dims cannot turn in pairs")

    def qwen2(g: Builder) -> None:
        for name in (_sam.NEWLINE, _sam.SEPARATOR):
            g.leave_out(name)
        x = add(g, _sam.quartered(g, keys), sized_queries(g, QUERIES, counts, keys.n_embd))
        x = encoded(g, keys, x, "rms", rotation=RopeSpec(keys.head_dim, "neox", BASE), gelu="silu")
        g.output("rows", matmul(g, merge_rows(g, x, 1), "mm.model.fc", keys.n_out))

    last = Stage(qwen2, (3, 3), stride=2, around=1, layers=True, queries=True)
    return (*_sam.stages(keys, _tile(keys)), last)


def _tile(keys: VisionKeys) -> int:
    """Patches on a side of a tile: of 768 pixels where an overview has 1024."""
    return _sam.grid(keys) * 3 // 4


def images(keys: VisionKeys) -> ImageSpec:
    return _sam.images(keys, _tile(keys), MOST_TILES)
