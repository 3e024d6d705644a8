"""exaone4_5: the encoder of EXAONE 4.5, that of Qwen2.5-VL whose heads of queries share those of keys."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision._keys import MOST_PIXELS, VisionKeys
from edgellm.arch.vision.qwen2_5vl_merger import WINDOW, period
from edgellm.arch.vision.qwen2vl_merger import encoder
from edgellm.arch.vision.qwen3vl_merger import images_of
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec


def build(keys: VisionKeys, g: Builder) -> None:
    every = period(keys, 0)
    encoder(keys, g, "rms", [layer for layer in range(keys.n_layers) if every and (layer + 1) % every])


def images(keys: VisionKeys) -> ImageSpec:
    window = keys.integer("window_size", 1, MOST_PIXELS, default=WINDOW) if period(keys, 0) else 0
    return replace(images_of(keys, window=window), begin="<vision>", end="</vision>")
