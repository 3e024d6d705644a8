"""deepseek2-ocr: DeepSeek-OCR (text); deepseek with rotated halves."""

from __future__ import annotations

from functools import partial

from edgellm.arch.blocks.decoder import decoder
from edgellm.arch.blocks.moe import experts_of
from edgellm.arch.blocks.transformer import Layer

build = decoder("neox", ffn=Layer.dense_or_moe, experts=partial(experts_of, normalise=False))
