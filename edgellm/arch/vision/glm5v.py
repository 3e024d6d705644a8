"""glm5v: the encoder of GLM-5.3-Flash; that of GLM-4V with bounded gates, and pictures in the corner of a canvas."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision import glm4v
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec


def build(keys: VisionKeys, g: Builder) -> None:
    glm4v.encoder(keys, g, keys.number("swiglu_clamp"))


def images(keys: VisionKeys) -> ImageSpec:
    return replace(glm4v.images(keys), layout="canvas")
