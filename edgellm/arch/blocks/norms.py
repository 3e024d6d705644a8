"""What all norms of a model have in common."""
from __future__ import annotations

from edgellm.hparams import Keys


def norm_epsilon(keys: Keys) -> float:
    """What all norms of the model add to the variance."""
    rms, plain = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"
    return keys.number(plain if keys.has(plain) and not keys.has(rms) else rms, high=1.0, zero=True)
