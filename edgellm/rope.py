"""Angular frequencies of rotary embeddings, in float64, so that position 10 million is as good as 10."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from edgellm.graph import RopeSpec

Float64s = npt.NDArray[np.float64]


@np.errstate(all="ignore")  # damaged factors end as NaN or Inf logits, and those are refused
def frequencies(spec: RopeSpec, factors: npt.ArrayLike | None = None) -> tuple[Float64s, float]:
    """Radians per position of each pair (n_rot/2,), and the magnitude of cos and sin.

    `factors`: values of the tensor `spec.factors` (n_rot/2, or more), where the spec names one.
    YaRN (Peng et al. 2023, as in transformers' modeling_rope_utils): slow pairs are interpolated by `freq_scale` and
    fast ones left alone, with a ramp between the pairs that turn `beta_slow` and `beta_fast` times in the old context.
    """
    pairs = np.asarray(spec.powers or range(spec.n_rot // 2), np.float64)
    turning = spec.base ** (-2.0 * pairs / spec.n_rot)
    if factors is not None:
        turning = turning / np.asarray(factors, np.float64).reshape(-1)[: len(pairs)]
    interpolated = turning * spec.freq_scale
    if spec.yarn is None:
        return interpolated, spec.magnitude
    kept = yarn_kept(spec)
    return interpolated * (1.0 - kept) + turning * kept, spec.magnitude


def cos_sin(
    spec: RopeSpec, positions: npt.NDArray[np.int64], turning: Float64s, magnitude: float
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """The tables (T, n_rot/2) of what `frequencies` gave, for tokens at `positions` (T,), or (T, axes) where the spec has axes."""
    turned = positions[:, list(spec.axes)] if positions.ndim == 2 else positions[:, None]
    angles, size = turned * turning, np.full((len(positions), 1), magnitude)
    if spec.temperature is not None:
        growth, every, ahead = spec.temperature
        size *= 1.0 + growth * np.log1p((positions[:, None] + ahead) // every)
    return (size * np.cos(angles)).astype(np.float32), (size * np.sin(angles)).astype(np.float32)


def yarn_kept(spec: RopeSpec) -> Float64s:
    """Share (n_rot/2,) of each pair's frequency that YaRN leaves as it is."""
    assert spec.yarn is not None
    ext_factor, beta_fast, beta_slow, original_context = spec.yarn

    def pair_that_turns(times: float) -> float:
        return spec.n_rot * math.log(original_context / (times * 2.0 * math.pi)) / (2.0 * math.log(spec.base))

    low, high = pair_that_turns(beta_fast), pair_that_turns(beta_slow)
    if spec.yarn_whole_pairs:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, spec.n_rot - 1)
    ramp = (np.arange(spec.n_rot // 2, dtype=np.float64) - low) / max(high - low, 0.001)
    return ext_factor * (1.0 - np.clip(ramp, 0.0, 1.0))


def yarn_magnitude(factor: float) -> float:
    """YaRN's factor of cos and sin, where a file says nothing else."""
    return 0.1 * math.log(factor) + 1.0 if factor > 1.0 else 1.0
