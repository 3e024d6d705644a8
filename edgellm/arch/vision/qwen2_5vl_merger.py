"""qwen2.5vl_merger: the encoder of Qwen2.5-VL, most of whose layers see windows of 112 x 112 pixels."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.vision._keys import VisionKeys
from edgellm.arch.vision.qwen2vl_merger import encoder
from edgellm.arch.vision.qwen3vl_merger import images_of
from edgellm.graph import Builder
from edgellm.hparams import MAX_LAYERS
from edgellm.image_spec import ImageSpec

WINDOW = 112  # pixels of a window's side, in no file


def build(keys: VisionKeys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Every `n_wa_pattern`-th layer sees all of the image."""
    period = _period(keys)
    encoder(keys, g, "rms", [layer for layer in range(keys.n_layers) if period and (layer + 1) % period])


def _period(keys: VisionKeys) -> int:
    return keys.integer("n_wa_pattern", 0, MAX_LAYERS)


def images(keys: VisionKeys) -> ImageSpec:
    return images_of(keys, window=WINDOW if _period(keys) else 0)
