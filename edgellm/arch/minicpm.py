"""minicpm: MiniCPM 1, 2 and 4; granite with factors that older files do not have."""

from __future__ import annotations

import math

from edgellm.arch.granite import build_scaled
from edgellm.graph import Builder
from edgellm.hparams import Keys

EMBEDDING, DEPTH, WIDTH = 12.0, 1.4, 256  # of MiniCPM 2B: of embeddings, all residuals together, the width it was tuned at


def build(keys: Keys, g: Builder) -> None:
    """Granite's blocks; every layer rotates."""
    build_scaled(keys, g, embedding=EMBEDDING, residual=DEPTH / math.sqrt(keys.n_layers), logit=keys.n_embd / WIDTH)
