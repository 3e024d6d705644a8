"""hunyuan-dense: Hunyuan 0.5B to 7B; maincoder with rotated halves."""

from __future__ import annotations

from edgellm.arch import maincoder
from edgellm.graph import Builder
from edgellm.hparams import Keys


def build(keys: Keys, g: Builder) -> None:
    """Blocks of maincoder."""
    maincoder.build(keys, g, style="neox")
