"""qwen2.5vl_merger: the encoder of Qwen2.5-VL, most of whose layers see windows of 112 x 112 pixels."""

from __future__ import annotations

from edgellm.arch.vision._keys import VisionKeys
from edgellm.arch.vision.qwen2vl_merger import encoder
from edgellm.arch.vision.qwen3vl_merger import images_of
from edgellm.graph import Builder
from edgellm.hparams import MAX_LAYERS
from edgellm.image_spec import ImageSpec

WINDOW = 112  # pixels of a window's side, in no file


def build(keys: VisionKeys, g: Builder) -> None:
    """Every `n_wa_pattern`-th layer sees all of the image."""
    every = period(keys)
    encoder(keys, g, "rms", [layer for layer in range(keys.n_layers) if every and (layer + 1) % every])


def period(keys: VisionKeys, default: int | None = None) -> int:
    """Layers from one that sees all of the image to the next; 0: all do."""
    return keys.integer("n_wa_pattern", 0, MAX_LAYERS, default=default)


def images(keys: VisionKeys) -> ImageSpec:
    return images_of(keys, window=WINDOW if period(keys) else 0)
