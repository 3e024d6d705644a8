"""baichuan: Baichuan 1 and 2; the 7B is llama, the positions of the 13B are biases of scores (ALiBi), which no key says."""

from __future__ import annotations

from edgellm.arch import llama, refact
from edgellm.graph import Builder
from edgellm.hparams import Keys

LAYERS = 40  # of the 13B


def build(keys: Keys, g: Builder) -> None:
    """Blocks of one or the other, by the number of layers, as in llama.cpp."""
    (refact if keys.n_layers == LAYERS else llama).build(keys, g)
