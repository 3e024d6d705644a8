"""Log probabilities of tokens, as the model gave them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgellm.sampling.candidates import Candidates, best

Logprobs = tuple[float, tuple[tuple[int, float], ...]]


def log_probabilities(logits: npt.NDArray[np.float32], token: int, k: int) -> Logprobs:
    """The natural log probability of `token`, and (id, log probability) of the `k` likeliest, from logits (n_vocab,)."""
    peak = float(logits.max())
    total = peak + float(np.log(np.exp(logits - np.float32(peak)).sum(dtype=np.float64)))
    if not k:
        return float(logits[token]) - total, ()
    likeliest = best(Candidates(None, logits, False), k)
    assert likeliest.ids is not None
    return float(logits[token]) - total, tuple(zip(likeliest.ids.tolist(), (likeliest.logits - total).tolist(), strict=True))
