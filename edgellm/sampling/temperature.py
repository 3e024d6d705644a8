"""The last two stages: temperature, fixed or by entropy, then the draw of one token."""

from __future__ import annotations

import math

import numpy as np

from edgellm.options.sampling import SamplingOptions
from edgellm.sampling.candidates import Candidates
from edgellm.sampling.truncation import Select, SelectStage, Uniform


def temperature(options: SamplingOptions, uniform: Uniform) -> Select:
    """Divide by the temperature; logits come out relative to the best."""
    return lambda candidates: _scaled(candidates, options.temperature)


def dynamic_temperature(options: SamplingOptions, uniform: Uniform) -> Select:
    """A temperature between temperature -+ range, higher the more even the candidates are (llama.cpp, temp_ext)."""
    low = max(0.0, options.temperature - options.dynatemp_range)
    high = options.temperature + options.dynatemp_range

    def select(candidates: Candidates) -> Candidates:
        if len(candidates.logits) < 2:
            return candidates
        probability = candidates.probabilities().astype(np.float64)
        surprise = -np.log(np.maximum(probability, np.finfo(np.float64).tiny))
        evenness = float(probability @ surprise) / math.log(len(probability))
        return _scaled(candidates, low + (high - low) * min(evenness, 1.0) ** options.dynatemp_exponent)

    return select


def _scaled(candidates: Candidates, value: float) -> Candidates:
    relative = candidates.logits.astype(np.float64)
    relative -= relative[0] if candidates.descending else relative.max()
    return Candidates(candidates.ids, relative / max(value, np.finfo(np.float64).tiny), candidates.descending)


STAGES = (
    SelectStage("temperature", lambda o: o.dynatemp_range == 0, temperature, scales=True),
    SelectStage("dynamic_temperature", lambda o: o.dynatemp_range > 0, dynamic_temperature, scales=True),
)


def most_probable(candidates: Candidates) -> int:
    """The best token; of equals the one with the lowest id."""
    at = 0 if candidates.descending else int(np.argmax(candidates.logits))
    return at if candidates.ids is None else int(candidates.ids[at])
