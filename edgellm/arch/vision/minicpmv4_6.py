"""minicpmv4_6: the SigLIP encoder of MiniCPM-V 4.6, in which squares of patches become one row halfway, and again at the end."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch._stages import Stage
from edgellm.arch.vision import resampler
from edgellm.arch.vision._blocks import blocks, encoded, linear, placed, projected, two_products
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder, KVSpec, Value
from edgellm.image_spec import ImageSpec
from edgellm.ops.attention import attend, kv_write
from edgellm.ops.dense import activation, add, matmul
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import features, merge_rows

SIDE = 2  # rows of the side of a square, both times
MERGER = "v.vit_merger"


def stages(keys: VisionKeys) -> tuple[Stage, ...]:
    """Layers up to the merger, and those after it; files for four times as many rows have no merger."""
    if _merge(keys) == SIDE:
        return (Stage(lambda g: _whole(keys, g), layers=True, merged=SIDE**2),)
    first = Stage(lambda g: _first(keys, g), layers=True, merged=SIDE**2)
    return first, Stage(lambda g: _second(keys, g), layers=True, merged=SIDE**2)


def _embedded(keys: VisionKeys, g: Builder) -> Value:
    return placed(g, keys, "buckets")


def _whole(keys: VisionKeys, g: Builder) -> None:
    g.leave_out(f"{MERGER}.")
    _projection(keys, g, encoded(g, keys, _embedded(keys, g)))


def _first(keys: VisionKeys, g: Builder) -> None:
    """The squares of the merger see themselves."""
    x = _embedded(keys, g)
    x = blocks(g, keys, x, n_layers=_inserted(keys) + 1)
    q, k, v = projected(g, keys, MERGER, layer_norm(g, x, f"{MERGER}.ln1", keys.eps))
    state = kv_write(g, k, v, KVSpec(keys.n_kv_heads, keys.head_dim, keys.head_dim, causal=False, chunked=True))
    y = attend(g, q, state, keys.n_heads, keys.head_dim**-0.5)
    x = add(g, x, linear(g, keys, y, f"{MERGER}.attn_out", keys.n_embd))
    y = layer_norm(g, merge_rows(g, x, SIDE**2), f"{MERGER}.ds_ln", keys.eps)
    y = activation(g, "gelu", matmul(g, y, f"{MERGER}.ds_ffn_up", keys.rows(f"{MERGER}.ds_ffn_up.weight")))
    y = matmul(g, y, f"{MERGER}.ds_ffn_down", keys.n_embd)
    g.output("rows", add(g, y, merge_rows(g, x, SIDE**2, "mean")))


def _second(keys: VisionKeys, g: Builder) -> None:
    _projection(keys, g, encoded(g, keys, features(g, keys.n_embd), first=_inserted(keys) + 1))


def images(keys: VisionKeys) -> ImageSpec:
    merge = _merge(keys)
    spec = resampler.sliced(keys, merge, first_form=False)
    return replace(spec, first_merge=0 if merge == SIDE else SIDE)


def _projection(keys: VisionKeys, g: Builder, x: Value) -> None:
    x = layer_norm(g, merge_rows(g, x, SIDE**2), "mm.input_norm", keys.eps)
    g.output("rows", two_products(g, keys, x, "mm.up", "mm.down"))


def _inserted(keys: VisionKeys) -> int:
    """The number of the layer that the merger follows."""
    found = keys.integers("wa_layer_indexes")
    if not found or not 0 <= found[0] < keys.n_layers:
        raise keys.bad("wa_layer_indexes", f"does not begin with one of {keys.n_layers} layers")
    return found[0]


def _merge(keys: VisionKeys) -> int:
    merge = keys.merge("projector.scale_factor", SIDE**2)
    if merge not in (SIDE, SIDE**2):
        raise keys.bad("projector.scale_factor", f"is {merge}, where 2 or 4 belongs")
    return merge
