"""The draw of one token from the last candidates: by their probabilities, or by one of the rules that adapt to what was drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from edgellm.options.sampling import SamplingOptions
from edgellm.sampling.candidates import Candidates, Ids, Logits, best
from edgellm.sampling.truncation import Uniform

Draw = Callable[[Candidates], int]

MIROSTAT_HEAD = 100  # candidates from which version 1 estimates the distribution's slope
PEAK, SHARPNESS, WIDTH = 5.0, 10.0, 0.3  # shape of adaptive-p's preference, as llama.cpp has it


def build_draw(options: SamplingOptions, n_vocab: int, uniform: Uniform) -> Draw:
    """The draw that the options ask for."""
    if options.mirostat:
        return _Mirostat(options, n_vocab, uniform)
    if options.adaptive_target >= 0:
        return _Adaptive(options, uniform)
    return lambda candidates: draw(candidates, uniform)


def draw(candidates: Candidates, uniform: Uniform) -> int:
    """One token, each with its softmax probability."""
    return _id(candidates, _place(candidates.probabilities(), uniform))


class Chances(NamedTuple):
    """From what a guess was drawn: tokens, and how likely each was."""

    ids: Ids
    probabilities: Logits


def chances_of(candidates: Candidates) -> Chances:
    """The distribution of the candidates."""
    ids = np.arange(len(candidates.logits)) if candidates.ids is None else candidates.ids
    return Chances(ids, candidates.probabilities())


def draw_after(candidates: Candidates, guess: int, chances: Chances, n_vocab: int, uniform: Uniform) -> int:
    """One token with its softmax probability, and as often as possible the guess, which was drawn from other chances.

    Speculative sampling: Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", algorithm 1.
    """
    wanted, given = chances_of(candidates), np.zeros(n_vocab)
    given[chances.ids] = chances.probabilities
    likely = float(wanted.probabilities[wanted.ids == guess].sum())
    if uniform() * given[guess] < likely:
        return guess
    rest = np.maximum(wanted.probabilities - given[wanted.ids], 0.0)
    return int(wanted.ids[_place(rest if rest.sum() > 0 else wanted.probabilities, uniform)])


def _place(weights: Logits, uniform: Uniform) -> int:
    sums = np.cumsum(weights)
    return min(int(np.searchsorted(sums, uniform() * sums[-1], side="right")), len(sums) - 1)


def _id(candidates: Candidates, at: int) -> int:
    return at if candidates.ids is None else int(candidates.ids[at])


class _Mirostat:
    """Cuts so that the surprise of what is drawn stays near tau (arXiv 2007.14966; llama.cpp's llama_sampler_mirostat, _v2)."""

    def __init__(self, options: SamplingOptions, n_vocab: int, uniform: Uniform) -> None:
        self._version, self._tau, self._eta = options.mirostat, options.mirostat_tau, options.mirostat_eta
        self._n_vocab, self._uniform = n_vocab, uniform
        self._mu = 2 * options.mirostat_tau

    def __call__(self, candidates: Candidates) -> int:
        probability = candidates.probabilities().astype(np.float64)
        n = (
            self._by_slope(candidates, probability)
            if self._version == 1
            else int(np.count_nonzero(probability >= 2.0 ** min(-self._mu, 0)))
        )
        kept = best(candidates, max(1, n))
        chances = kept.probabilities()
        at = _place(chances, self._uniform)
        self._mu -= self._eta * (-math.log2(chances[at]) - self._tau)
        return _id(kept, at)

    def _by_slope(self, candidates: Candidates, probability: Logits) -> int:
        """How many candidates a Zipf distribution of the head's slope needs for a surprise of mu."""
        head = best(candidates, MIROSTAT_HEAD).logits
        if len(head) < 2:
            return 1
        steps = np.arange(1, len(head))
        t, b = np.log((steps + 1) / steps), head[:-1] - head[1:]  # of probabilities: log p_i / p_i+1
        slope = float(t @ b) / float(t @ t)
        excess = slope - 1
        if slope <= 0 or abs(excess) < 1e-9:
            return len(probability)
        with np.errstate(all="ignore"):
            k = np.power(excess * np.exp2(self._mu) / (1 - np.power(float(self._n_vocab), -excess)), 1 / slope)
        return int(min(k, len(probability))) if np.isfinite(k) else len(probability)


class _Adaptive:
    """Prefers tokens near a probability, and corrects it by what was drawn (llama.cpp's llama_sampler_adaptive_p)."""

    def __init__(self, options: SamplingOptions, uniform: Uniform) -> None:
        self._target, self._decay, self._uniform = options.adaptive_target, options.adaptive_decay, uniform
        self._weight = 1 / (1 - self._decay)  # as if the target had been met so far
        self._sum = self._target * self._weight

    def __call__(self, candidates: Candidates) -> int:
        probability = candidates.probabilities().astype(np.float64)
        wanted = min(max(2 * self._target - self._sum / self._weight, 0.0), 1.0)
        distance = np.abs(probability - wanted) / WIDTH
        preference = PEAK - SHARPNESS * distance * distance / (1 + distance)
        preference[candidates.logits == -np.inf] = -np.inf
        at = _place(np.exp(preference - preference.max()), self._uniform)
        self._sum = probability[at] + self._decay * self._sum
        self._weight = 1 + self._decay * self._weight
        return _id(candidates, at)
