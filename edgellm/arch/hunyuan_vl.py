"""hunyuan_vl: HunyuanOCR (text); hunyuan-dense, whose base of angles is raised by an alpha that files name."""

from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch import maincoder
from edgellm.graph import Builder
from edgellm.hparams import Keys


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Blocks of maincoder, of which hunyuan-dense is made, too."""
    maincoder.build(keys, tensors, g, style="neox")
