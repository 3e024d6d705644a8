"""Stages that leave fewer candidates: top-n-sigma, top-k, typical, top-p, min-p, and XTC, which takes from the top.

Definitions are llama.cpp's (src/llama-sampling.cpp); each takes all of the vocabulary or what an earlier stage left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgellm.options.sampling import SamplingOptions
from edgellm.sampling.candidates import Candidates, best

Select = Callable[[Candidates], Candidates]
Uniform = Callable[[], float]  # the next random number in [0, 1)

FIRST_LOOK = 256  # top-p over all of the vocabulary sorts this many first, then 8 x more


class UniformNumbers:
    """The random numbers of a seed, one after the other."""

    def __init__(self, seed: int) -> None:
        self._draw: Uniform = np.random.Generator(np.random.PCG64(seed)).random
        self._next: float | None = None

    def __call__(self) -> float:
        number, self._next = self.peek(), None
        return number

    def peek(self) -> float:
        """The one that comes next."""
        if self._next is None:
            self._next = self._draw()
        return self._next


@dataclass(frozen=True, slots=True)
class SelectStage:
    """A choice among candidates, or a new scale for them. `keeps_best`: greedy decoding can do without it."""

    name: str
    active: Callable[[SamplingOptions], bool]
    build: Callable[[SamplingOptions, Uniform], Select]
    keeps_best: bool = True
    scales: bool = False  # it cuts nothing: mirostat leaves it in place


def top_n_sigma(options: SamplingOptions, uniform: Uniform) -> Select:
    """Keep logits within n standard deviations of the best (arXiv 2411.07641); banned tokens do not count."""

    def select(candidates: Candidates) -> Candidates:
        logits = candidates.logits
        finite = logits[logits > -np.inf]
        deviation = finite.std(dtype=np.float64)
        return candidates.take(np.flatnonzero(logits >= finite.max() - options.top_n_sigma * deviation))

    return select


def top_k(options: SamplingOptions, uniform: Uniform) -> Select:
    """Keep the k most probable."""
    k = max(options.top_k, options.min_keep)
    return lambda candidates: best(candidates, k)


def typical(options: SamplingOptions, uniform: Uniform) -> Select:
    """Keep those whose surprise is nearest the entropy, until their probabilities pass typical_p (arXiv 2202.00666)."""

    def select(candidates: Candidates) -> Candidates:
        probability = candidates.probabilities().astype(np.float64)
        surprise = -np.log(np.maximum(probability, np.finfo(np.float64).tiny))
        distance = np.abs(surprise - float(probability @ surprise))
        nearest = np.argsort(distance, kind="stable")
        passed = np.cumsum(probability[nearest]) > options.typical_p
        passed[: max(options.min_keep - 1, 0)] = False
        n = int(np.argmax(passed)) + 1 if passed.any() else len(passed)
        return candidates.take(np.sort(nearest[:n]))

    return select


def top_p(options: SamplingOptions, uniform: Uniform) -> Select:
    """Keep the most probable until their sum reaches p, the one that reaches it included."""

    def select(candidates: Candidates) -> Candidates:
        if candidates.descending:
            reached = _reaching(candidates.probabilities(), options.top_p)
            return candidates.take(slice(0, max(reached or len(candidates.logits), options.min_keep)))
        total = float(np.exp(candidates.logits - candidates.logits.max()).sum(dtype=np.float64))
        look = max(FIRST_LOOK, options.min_keep)
        while True:
            head = best(candidates, look)
            reached = _reaching(np.exp(head.logits - head.logits[0]) / total, options.top_p)
            if reached or len(head.logits) < look:
                return head.take(slice(0, max(reached or len(head.logits), options.min_keep)))
            look *= 8

    return select


def _reaching(probabilities: npt.NDArray[np.floating], p: float) -> int | None:
    """How many of the first probabilities are needed for a sum of `p`; None: all of them do not reach it."""
    sums = np.cumsum(probabilities)
    n = int(np.searchsorted(sums, p)) + 1
    return n if n <= len(sums) else None


def min_p(options: SamplingOptions, uniform: Uniform) -> Select:
    """Keep those at least min_p times as probable as the best."""
    distance = -math.log(options.min_p)

    def select(candidates: Candidates) -> Candidates:
        logits = candidates.logits
        if candidates.descending:
            n = int(np.count_nonzero(logits >= logits[0] - distance))
            return candidates.take(slice(0, max(n, options.min_keep)))
        kept = np.flatnonzero(logits >= logits.max() - distance)
        return candidates.take(kept) if len(kept) >= options.min_keep else best(candidates, options.min_keep)

    return select


def xtc(options: SamplingOptions, uniform: Uniform) -> Select:
    """Sometimes drop every candidate that reaches the threshold except the least probable of them (p-e-w's XTC)."""

    def select(candidates: Candidates) -> Candidates:
        if len(candidates.logits) < 2 or uniform() > options.xtc_probability:
            return candidates
        logits = candidates.logits
        reach = (candidates.probabilities() >= options.xtc_threshold) & (logits > -np.inf)  # banned tokens reach none, not even 0
        reaching = np.flatnonzero(reach)
        n_left = len(logits) - (len(reaching) - 1)
        if len(reaching) < 2 or n_left < options.min_keep:
            return candidates
        least = reaching[::-1][np.argmin(logits[reaching[::-1]])]
        kept = ~reach
        kept[least] = True
        return candidates.take(np.flatnonzero(kept))

    return select


STAGES = (
    SelectStage("top_n_sigma", lambda o: o.top_n_sigma > 0, top_n_sigma),
    SelectStage("top_k", lambda o: o.top_k > 0, top_k),
    SelectStage("typical_p", lambda o: o.typical_p < 1, typical, keeps_best=False),
    SelectStage("top_p", lambda o: o.top_p < 1, top_p),
    SelectStage("min_p", lambda o: o.min_p > 0, min_p),
    SelectStage("xtc", lambda o: o.xtc_probability > 0 and o.xtc_threshold <= 0.5, xtc, keeps_best=False),
)
