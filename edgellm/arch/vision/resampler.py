"""resampler: the SigLIP encoder of MiniCPM-V and MiniCPM-o, whose learned queries gather an image in a fixed number of rows."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision._blocks import encoded, placed
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder, KVSpec
from edgellm.image_spec import ImageSpec
from edgellm.ops.attention import attend, kv_write
from edgellm.ops.dense import add, matmul
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import merge_rows, query_embed

HEAD_DIM = 128
MOST_SLICES = 9  # of a picture, its overview not counted
FIRST_FORM = 2  # the version whose slices stand within one <slice>: MiniCPM-Llama3-V 2.5


def build(keys: VisionKeys, g: Builder) -> None:
    """Queries are rows behind the patches that no row sees. Positions in keys are computed; the file's table ends at 70 x 70."""
    g.leave_out("resampler.pos_embed")
    x = placed(g, keys, "buckets")
    x = encoded(g, keys, x)
    n, n_heads = keys.n_out, max(keys.n_out // HEAD_DIM, 1)
    waves = query_embed(g, "resampler.query", keys.queries, n)
    x = matmul(g, x, "resampler.kv", n) if "resampler.kv.weight" in g.tensors else x
    values = layer_norm(g, x, "resampler.ln_kv", keys.eps)
    q = matmul(g, layer_norm(g, waves, "resampler.ln_q", keys.eps), "resampler.attn.q", n)
    k, v = matmul(g, add(g, values, waves), "resampler.attn.k", n), matmul(g, values, "resampler.attn.v", n)
    dim = n // n_heads
    y = attend(g, q, kv_write(g, k, v, KVSpec(n_heads, dim, dim, causal=False)), n_heads, dim**-0.5)
    y = layer_norm(g, matmul(g, merge_rows(g, y, 1), "resampler.attn.out", n), "resampler.ln_post", keys.eps)
    g.output("rows", matmul(g, y, "resampler.proj", n))


def images(keys: VisionKeys) -> ImageSpec:
    return replace(sliced(keys, 1, first_form=keys.minicpmv_version == FIRST_FORM), queries=keys.queries)


def sliced(keys: VisionKeys, merge: int, *, first_form: bool) -> ImageSpec:
    """An overview and slices, in the texts of MiniCPM-V 2.5 or those of later ones."""
    return replace(
        keys.spec(merge),
        layout="slices",
        size=keys.square(merge),
        most_tiles=MOST_SLICES,
        overview_first=True,
        number="" if first_form else "<image_id>{number}</image_id>",
        begin="<image>",
        alone="</image>",
        overview="</image><slice><image>" if first_form else "</image><slice>",
        tile_end="</image><image>" if first_form else "</slice><slice>",
        row_end="</image>\n<image>" if first_form else "</slice>\n<slice>",
        end="</image></slice>" if first_form else "</slice>",
    )
