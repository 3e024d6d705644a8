"""hunyuan-dense: Hunyuan 0.5B to 7B; maincoder with rotated halves."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch import maincoder
from edgellm.graph import Builder
from edgellm.hparams import Keys


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Blocks of maincoder."""
    maincoder.build(keys, tensors, g, style="neox")
