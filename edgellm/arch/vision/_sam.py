"""SAM's encoder (Kirillov et al. 2023) with the convolutions of Vary (Wei et al. 2023): a row for each square of 4 x 4 patches."""

from __future__ import annotations

import math

from edgellm.arch._stages import Stage
from edgellm.arch.vision._keys import MOST_PIXELS, MOST_WIDTH, VisionKeys
from edgellm.graph import Builder, KVSpec, Value
from edgellm.image_spec import ImageSpec
from edgellm.ops.attention import attend, kv_write
from edgellm.ops.dense import activation, add, columns, matmul
from edgellm.ops.heads import head_scale, join
from edgellm.ops.norm import layer_norm
from edgellm.ops.places import inside, place_marks, place_scores, places
from edgellm.ops.vision import features, grid_embed, merge_rows, patch_conv, pixels

EPS = 1e-6  # of its norms
WHOLE = (2, 5, 8, 11)  # layers that see all of an image, the others windows of it
POSITIONS, PATCHES, NECK, HALVED = (f"v.sam.{name}.weight" for name in ("pos_embd", "patch_embd", "neck.0", "net_2"))
NEWLINE = "v.image_newline"
SEPARATOR = "v.view_seperator"  # as makers and files spell it
STRIDES = 4  # patches of the side of the square that becomes a row
MOST_TILES = 256


def stages(keys: VisionKeys, tile: int) -> tuple[Stage, ...]:
    """The layers, the neck's convolution, and the first one of stride 2, for images and tiles of `tile` patches on a side."""
    n, _ = keys.kernel(NECK)
    inner, _ = keys.kernel(HALVED)

    def neck(g: Builder) -> None:
        y = patch_conv(g, features(g, 9 * n), "v.sam.neck.2.weight", n, channels=n)
        g.output("rows", merge_rows(g, layer_norm(g, y, "v.sam.neck.3", EPS), 1))

    def halved(g: Builder) -> None:
        g.output("rows", merge_rows(g, patch_conv(g, features(g, 9 * n), HALVED, inner, channels=n), 1))

    return (
        Stage(lambda g: _layers(g, keys, tile), layers=True),
        Stage(neck, (3, 3), around=1),
        Stage(halved, (3, 3), stride=2, around=1),
    )


def quartered(g: Builder, keys: VisionKeys) -> Value:
    """The second convolution of stride 2, with which the graph of what follows begins."""
    channels, _ = keys.kernel(HALVED)
    return patch_conv(g, features(g, 9 * channels), "v.sam.net_3.weight", keys.n_embd, channels=channels)


def grid(keys: VisionKeys) -> int:
    """Patches on a side of the images that positions were learned for. Raises ShapeMismatch, BadHParam."""
    side, (_, patch) = math.isqrt(keys.grid(POSITIONS)), keys.kernel(PATCHES)
    if not 4 <= side <= MOST_PIXELS // patch:
        raise keys.bad("image_size", f"images of {side} x {side} patches of {patch} pixels cannot be encoded")
    return side


def _layers(g: Builder, keys: VisionKeys, tile: int) -> None:
    """Windows that are not full are filled up with zeros, which patches see."""
    n, side = keys.integer("sam.embedding_length", 1, MOST_WIDTH), grid(keys)
    heads, patch = keys.integer("sam.head_count", 1, n), keys.kernel(PATCHES)[1]
    if n % heads:
        raise keys.bad("sam.head_count", f"{heads} heads cannot share {n} dims")
    x = patch_conv(g, pixels(g, patch), PATCHES, n, "v.sam.patch_embd.bias")
    x = add(g, x, grid_embed(g, "v.sam.pos_embd", side * side, n, "smooth_bicubic"))
    sides = {False: (side, tile), True: (_window(keys),)}  # by whether a layer sees windows
    at = {window: places(g, sides[window], window) for window in sides}
    marks = {window: place_marks(g, sides[window], window) for window in sides}
    own, scale = inside(g), (n // heads) ** -0.5
    for layer in range(keys.integer("sam.block_count", 1, len(WHOLE) * 3)):
        block, window = f"v.sam.blk.{layer}", layer not in WHOLE
        y = layer_norm(g, x, f"{block}.pre_ln", EPS)
        y = matmul(g, head_scale(g, y, own) if window else y, f"{block}.attn.qkv", 3 * n)
        q, k, v = (columns(g, y, first, first + n) for first in (0, n, 2 * n))
        q = join(g, q, place_scores(g, q, at[window], f"{block}.attn.pos", heads, scale, sides[window]), heads)
        k = join(g, k, marks[window], heads, shared=True)
        state = kv_write(g, k, v, KVSpec(heads, g.n(k) // heads, n // heads, causal=False, chunked=window))
        x = add(g, x, matmul(g, attend(g, q, state, heads, scale), f"{block}.attn.out", n))
        y = layer_norm(g, x, f"{block}.post_ln", EPS)
        y = activation(g, "gelu_erf", matmul(g, y, f"{block}.mlp.lin1", keys.rows(f"{block}.mlp.lin1.weight")))
        x = add(g, x, matmul(g, y, f"{block}.mlp.lin2", n))
    y = patch_conv(g, x, NECK, keys.kernel(NECK)[0], channels=n)
    g.output("rows", merge_rows(g, layer_norm(g, y, "v.sam.neck.1", EPS), 1))


def _window(keys: VisionKeys) -> int:
    return keys.integer("window_size", 1, MOST_PIXELS)


def images(keys: VisionKeys, tile: int, most_tiles: int, newline: str = "") -> ImageSpec:
    """Tiles and an overview. The file's sizes are those of CLIP's own patches, which nothing reads."""
    patch = keys.kernel(PATCHES)[1]
    most = keys.integer("preproc_max_tiles", 1, MOST_TILES, default=most_tiles)
    return ImageSpec(
        patch=patch,
        merge=1,
        mean=keys.colours("image_mean"),
        std=keys.colours("image_std"),
        resample="bicubic",
        layout="framed_overview",
        strides=STRIDES,
        size=grid(keys) * patch,
        tile_size=tile * patch,
        least_tiles=keys.integer("preproc_min_tiles", 1, most, default=2),
        most_tiles=most,
        padding=(127, 127, 127),
        window=_window(keys) * patch,
        filled_windows=True,
        newline=newline,
        separator=SEPARATOR,
        end="\n",
    )
