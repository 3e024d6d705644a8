"""How far a model's predictions are from another's: Kullback-Leibler divergence, agreement of the likeliest token, changes of p."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
PERCENTILES = (99.9, 99.0, 95.0, 90.0, 75.0, 50.0, 25.0, 10.0, 5.0, 1.0, 0.1)


@dataclass(frozen=True, slots=True)
class Divergence:
    """Over all scored tokens: divergences in nats, `same_top` a share of 1, changes of the right token's probability p in 0..1.

    Errors are one standard error. `percentiles` and `delta_p_percentiles` are keyed by percent.
    """

    base_perplexity: float
    base_perplexity_error: float
    mean: float
    error: float
    minimum: float
    maximum: float
    percentiles: Mapping[float, float]
    same_top: float
    same_top_error: float
    delta_p_mean: float
    delta_p_rms: float
    delta_p_percentiles: Mapping[float, float]

    @property
    def median(self) -> float:
        return self.percentiles[50.0]


class Divergences:
    """Collects three numbers a token; rows of probabilities are not kept."""

    def __init__(self) -> None:
        self._divergences: list[Doubles] = []
        self._same: list[npt.NDArray[np.bool_]] = []
        self._changes: list[Doubles] = []
        self._base_losses: list[Doubles] = []

    def add(self, base: Floats, ours: Floats, tokens: npt.NDArray[np.int32]) -> None:
        """Log-probabilities (rows, n_vocab) of both models, and the tokens (rows,) that really follow."""
        with np.errstate(invalid="ignore"):  # -inf - -inf: a token that neither model thinks possible
            terms = np.exp(base) * (base - ours)
        self._divergences.append(np.nansum(terms, axis=-1, dtype=np.float64))
        self._same.append(base.argmax(axis=-1) == ours.argmax(axis=-1))
        rows = np.arange(len(tokens))
        before, after = base[rows, tokens].astype(np.float64), ours[rows, tokens].astype(np.float64)
        self._base_losses.append(-before)
        self._changes.append(np.exp(after) - np.exp(before))

    def result(self) -> Divergence:
        """The statistics of everything that was added."""
        values, changes = np.concatenate(self._divergences), np.concatenate(self._changes)
        losses, same = np.concatenate(self._base_losses), float(np.concatenate(self._same).mean())
        freedom = max(len(values) - 1, 1)
        base = float(np.exp(losses.mean()))
        return Divergence(
            base_perplexity=base,
            base_perplexity_error=base * float(losses.std()) / freedom**0.5,
            mean=float(values.mean()),
            error=float(values.std()) / freedom**0.5,
            minimum=float(values.min()),
            maximum=float(values.max()),
            percentiles=_percentiles(values),
            same_top=same,
            same_top_error=(same * (1 - same) / freedom) ** 0.5,
            delta_p_mean=float(changes.mean()),
            delta_p_rms=float(np.sqrt((changes**2).mean())),
            delta_p_percentiles=_percentiles(changes),
        )


def _percentiles(values: Doubles) -> dict[float, float]:
    return dict(zip(PERCENTILES, np.percentile(values, PERCENTILES).tolist(), strict=True))
