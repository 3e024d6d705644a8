"""Layers that draft tokens, after those of the model itself."""

from __future__ import annotations

from edgellm.graph import Builder
from edgellm.hparams import Keys


def drafting_layers(g: Builder, keys: Keys) -> int:
    """How many of the last layers only draft. They are left out of the graph. Raises BadHParam."""
    n = keys.integer("nextn_predict_layers", 0, keys.n_layers - 1, default=0)
    for layer in range(keys.n_layers - n, keys.n_layers):
        g.leave_out(f"blk.{layer}.")
    return n
