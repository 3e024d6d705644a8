"""Changes to single logits before anything is cut: biases, and penalties for tokens that occurred lately."""
from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import numpy.typing as npt

from edgellm.errors import OptionError, shown
from edgellm.sampling.options import SamplingOptions

History = npt.NDArray[np.int32]                  # (n,) the latest token ids, oldest first
Edit = Callable[[npt.NDArray[np.float32], History], None]   # changes logits (n_vocab,) in place


def logit_bias(options: SamplingOptions, n_vocab: int, banned: Collection[int]) -> Edit:
    """Add the user's biases, and ban tokens."""
    outside = [token for token in options.logit_bias if token >= n_vocab]
    if outside:
        raise OptionError(f"logit_bias names token {shown(outside[0])}, but the last one is {n_vocab - 1}; leave it out.")
    values = dict(options.logit_bias)
    values.update(dict.fromkeys(banned, -np.inf))
    ids = np.array(list(values), np.intp)
    bias = np.array(list(values.values()), np.float32)

    def edit(logits: npt.NDArray[np.float32], history: History) -> None:
        logits[ids] += bias

    return edit


def penalties(options: SamplingOptions, last_n: int) -> Edit:
    """Repeat, frequency and presence penalties over the last `last_n` tokens (llama.cpp: llama_sampler_penalties)."""
    repeat = np.float32(options.repeat_penalty)
    frequency, presence = np.float32(options.frequency_penalty), np.float32(options.presence_penalty)

    def edit(logits: npt.NDArray[np.float32], history: History) -> None:
        ids, counts = np.unique(history[max(0, len(history) - last_n) :], return_counts=True)
        values = logits[ids]
        values = np.where(values > 0, values / repeat, values * repeat)
        logits[ids] = values - (counts.astype(np.float32) * frequency + presence)

    return edit
