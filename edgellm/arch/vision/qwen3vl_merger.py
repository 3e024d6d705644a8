"""qwen3vl_merger: the encoder of Qwen3-VL, Qwen3.5 and their successors, some of which add rows of inner layers (deepstack)."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision._blocks import encoded, placed, rope_2d, two_products
from edgellm.arch.vision._keys import MOST_PIXELS, VisionKeys
from edgellm.graph import Builder, Value
from edgellm.image_spec import ImageSpec
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import merge_rows

LEAST_ROWS, MOST_ROWS = 8, 4096  # llama.cpp's limits


def build(keys: VisionKeys, g: Builder) -> None:
    """Learned positions, resized to the image, beside rotary ones; squares of patches become one row."""
    count = keys.merge("spatial_merge_size", 2) ** 2
    x = placed(g, keys, "corners", still=True)
    deep = keys.layer_flags("is_deepstack_layers")
    found: list[Value] = []

    def after(layer: int, x: Value) -> None:
        if deep[layer]:
            block = f"v.deepstack.{layer}"
            y = layer_norm(g, merge_rows(g, x, count), f"{block}.norm", keys.eps)
            found.append(two_products(g, keys, y, f"{block}.fc1", f"{block}.fc2"))

    x = merge_rows(g, encoded(g, keys, x, rotation=rope_2d(keys, 10000.0), after=after), count)
    g.output("rows", two_products(g, keys, x, "mm.0", "mm.2"))
    for number, value in enumerate(found, 1):
        g.output(f"rows_{number}", value)


def images(keys: VisionKeys) -> ImageSpec:
    return images_of(keys)


def images_of(
    keys: VisionKeys,
    window: int = 0,
    *,
    merge: str = "spatial_merge_size",
    rows: tuple[int, int] = (LEAST_ROWS, MOST_ROWS),
    marks: tuple[str, str] = ("<|vision_start|>", "<|vision_end|>"),
) -> ImageSpec:
    """The form of images of Qwen's encoders, and of others that resize as they do.

    `window`: pixels of the side of attention windows. `merge`: the key of the patches of a row's side, "": one. `rows`: least and
    most of an image, unless the file has limits of pixels. `marks`: the texts around an image.
    """
    side = keys.merge(merge, 2) if merge else 1
    area = (keys.patch * side) ** 2
    least, most = (
        max(keys.integer(key, 1, MOST_PIXELS**2, default=default * area) // area, 1)
        for key, default in zip(("image_min_pixels", "image_max_pixels"), rows, strict=True)
    )
    return replace(
        keys.spec(side), layout="dynamic", least_rows=min(least, most), most_rows=most, window=window, begin=marks[0], end=marks[1]
    )
