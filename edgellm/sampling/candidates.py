"""The tokens still in question, and how the best few of 150,000 are found without sorting them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Ids = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tokens that may come next. Ties stand in the order of their ids."""

    ids: Ids | None  # (n,) token ids; None: all of the vocabulary, in order
    logits: Logits  # (n,) float32 as the model gave them, float64 once there are few
    descending: bool  # best first

    def take(self, kept: npt.NDArray[np.intp] | slice) -> Candidates:
        """The candidates at ascending positions `kept`."""
        if self.ids is None:
            assert not isinstance(kept, slice)
            return Candidates(kept, self.logits[kept], self.descending)
        return Candidates(self.ids[kept], self.logits[kept], self.descending)

    def probabilities(self) -> Logits:
        """Softmax over the candidates, in the precision of their logits."""
        logits = self.logits
        best = logits[0] if self.descending else logits.max()
        weights: Logits = np.exp(logits - best)
        weights /= weights.sum()
        return weights


def best(candidates: Candidates, k: int) -> Candidates:
    """The `k` best candidates, best first, in float64; fewer where others are banned (-inf)."""
    if candidates.descending:
        return candidates if k >= len(candidates.logits) else candidates.take(slice(0, k))
    logits = candidates.logits
    floor = _floor(logits, k)
    found = np.flatnonzero(logits >= floor) if floor > -np.inf else np.flatnonzero(logits > floor)
    values = logits[found].astype(np.float64)
    order = np.argsort(-values, kind="stable")[:k]
    ids = found if candidates.ids is None else candidates.ids[found]
    return Candidates(ids[order], values[order], True)


def _floor(logits: Logits, k: int) -> float:
    """A value that at least `k` logits reach, and few more do: the k-th largest of block maxima.

    Blocks are columns of a (rows, n_blocks) view, so their maxima take one pass of vector instructions: 15 us for 150,000.
    """
    n, n_blocks = len(logits), 1 << (8 * k - 1).bit_length()
    if k >= n:
        return -np.inf
    if n >= 4 * n_blocks:
        rows = n // n_blocks
        summary = logits[: rows * n_blocks].reshape(rows, n_blocks).max(axis=0)
        rest = logits[rows * n_blocks :]
        np.maximum(summary[: len(rest)], rest, out=summary[: len(rest)])
    else:
        summary = logits
    return float(np.partition(summary, len(summary) - k)[len(summary) - k])
