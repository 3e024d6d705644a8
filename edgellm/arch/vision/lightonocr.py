"""lightonocr: Pixtral's encoder in LightOnOCR, without tokens at the ends of lines; a page is made as large as the file says."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision import pixtral
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec


def build(keys: VisionKeys, g: Builder) -> None:
    pixtral.build(keys, g)


def images(keys: VisionKeys) -> ImageSpec:
    return replace(
        keys.spec(keys.merge("spatial_merge_size", 1)),
        layout="longest_edge",
        longest_edge=keys.longest_edge(keys.image_size),
        begin="<|im_start|>",
        end="<|im_end|>",
    )
