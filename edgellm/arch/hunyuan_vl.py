"""hunyuan_vl: HunyuanOCR (text); hunyuan-dense, whose base of angles is raised by an alpha that files name."""

from __future__ import annotations

from edgellm.arch import maincoder
from edgellm.graph import Builder
from edgellm.hparams import Keys


def build(keys: Keys, g: Builder) -> None:
    """Blocks of maincoder, of which hunyuan-dense is made, too."""
    maincoder.build(keys, g, style="neox")
