"""From logits to the next token: llama.cpp's chain in its order and with its defaults."""

from __future__ import annotations

from edgellm.options.sampling import ResolvedOptions, SamplingKeywords, SamplingOptions, model_defaults, resolve_options
from edgellm.sampling.chain import Processor, Sampler
from edgellm.sampling.penalties import TokenPieces

__all__ = [
    "Processor",
    "ResolvedOptions",
    "Sampler",
    "SamplingKeywords",
    "SamplingOptions",
    "TokenPieces",
    "model_defaults",
    "resolve_options",
]
