"""What a user can ask of the sampler: names, defaults, ranges, and which of the values came from the model file."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal, TypedDict, cast

from edgellm.errors import BadHParam, OptionError, shown

MAX_NUMBER = 1e6  # of what multiplies or is added to float32 logits, which end at 3e38
MAX_INTEGER = 2**63 - 1
Source = Literal["default", "model", "user"]


class SamplingKeywords(TypedDict, total=False):
    """The sampling options as keywords of `generate`, `stream` and `chat`; the same names as in `SamplingOptions`."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    dynatemp_range: float
    dynatemp_exponent: float
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    adaptive_target: float
    adaptive_decay: float
    repeat_penalty: float
    repeat_last_n: int
    frequency_penalty: float
    presence_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_last_n: int
    dry_sequence_breakers: tuple[str, ...]
    logit_bias: Mapping[int, float]
    ignore_eos: bool
    min_keep: int
    seed: int | None


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """The chain's settings, checked. Defaults are llama.cpp's (`common/common.h`, common_params_sampling).

    Raises OptionError, naming option and value, for a value of the wrong type or out of range.
    """

    temperature: float = 0.8  # <= 0: the most probable token
    top_k: int = 40  # <= 0: off
    top_p: float = 0.95  # 1: off
    min_p: float = 0.05  # 0: off
    typical_p: float = 1.0  # 1: off
    top_n_sigma: float = -1.0  # <= 0: off
    xtc_probability: float = 0.0  # 0: off
    xtc_threshold: float = 0.1  # > 0.5: off
    dynatemp_range: float = 0.0  # 0: off
    dynatemp_exponent: float = 1.0
    mirostat: int = 0  # 1 or 2: its version, which replaces the stages that cut; 0: off
    mirostat_tau: float = 5.0  # surprise to keep to, in bits
    mirostat_eta: float = 0.1  # how fast it adapts
    adaptive_target: float = -1.0  # probability that drawn tokens should have on average; < 0: off
    adaptive_decay: float = 0.9  # of that average
    repeat_penalty: float = 1.0  # 1: off
    repeat_last_n: int = 64  # tokens that penalties look at; 0: off, -1: the context
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0  # 0: off
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_last_n: int = 64  # 0: off, -1: the context
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    ignore_eos: bool = False
    min_keep: int = 0  # candidates that truncation leaves, at least
    seed: int | None = None  # None: a new one each time

    def __post_init__(self) -> None:
        for name, rule in _RULES.items():
            value = getattr(self, name)
            rule.check(name, value)
            if not isinstance(value, int | float | None):  # NumPy's numbers, fractions
                object.__setattr__(self, name, rule.kind(value))
        _check_breakers(self.dry_sequence_breakers)
        _check_bias(self.logit_bias)


@dataclass(frozen=True, slots=True)
class _Rule:
    """The type and range of one option: `low` to `high`, both included."""

    kind: type
    low: float
    high: float
    optional: bool = False

    def check(self, name: str, value: object) -> None:
        if value is None and self.optional:
            return
        if not _has_kind(value, self.kind):
            words = {int: "a whole number", float: "a number", bool: "True or False"}[self.kind]
            raise OptionError(f"{name}={shown(value)} is not {words}; give {words}.")
        number = cast(float, value)  # or an int of any length; NaN is in no range
        if not self.low <= number <= self.high:
            raise OptionError(f"{name}={shown(value)} is out of range; give {self.words(number)}.")

    def words(self, number: float) -> str:
        high = f" and at most {self.high:g}" if self.high < MAX_INTEGER or number > self.high else ""
        return f"a finite number at least {self.low:g}{high}"


def _has_kind(value: object, kind: type) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    return isinstance(value, numbers.Integral if kind is int else numbers.Real)


_RULES: dict[str, _Rule] = {
    "temperature": _Rule(float, -MAX_NUMBER, MAX_NUMBER),
    "top_k": _Rule(int, -MAX_INTEGER, MAX_INTEGER),
    "top_p": _Rule(float, 0, 1),
    "min_p": _Rule(float, 0, 1),
    "typical_p": _Rule(float, 0, 1),
    "top_n_sigma": _Rule(float, -MAX_NUMBER, MAX_NUMBER),
    "xtc_probability": _Rule(float, 0, 1),
    "xtc_threshold": _Rule(float, 0, 1),
    "dynatemp_range": _Rule(float, 0, MAX_NUMBER),
    "dynatemp_exponent": _Rule(float, 0, MAX_NUMBER),
    "mirostat": _Rule(int, 0, 2),
    "mirostat_tau": _Rule(float, 0, MAX_NUMBER),
    "mirostat_eta": _Rule(float, 0, MAX_NUMBER),
    "adaptive_target": _Rule(float, -MAX_NUMBER, 1),
    "adaptive_decay": _Rule(float, 0, 0.99),
    "repeat_penalty": _Rule(float, 1 / MAX_NUMBER, MAX_NUMBER),
    "repeat_last_n": _Rule(int, -1, MAX_INTEGER),
    "frequency_penalty": _Rule(float, -MAX_NUMBER, MAX_NUMBER),
    "presence_penalty": _Rule(float, -MAX_NUMBER, MAX_NUMBER),
    "dry_multiplier": _Rule(float, 0, MAX_NUMBER),
    "dry_base": _Rule(float, 1, MAX_NUMBER),
    "dry_allowed_length": _Rule(int, 1, MAX_INTEGER),
    "dry_last_n": _Rule(int, -1, MAX_INTEGER),
    "ignore_eos": _Rule(bool, 0, 1),
    "min_keep": _Rule(int, 0, MAX_INTEGER),
    "seed": _Rule(int, 0, math.inf, optional=True),
}


def _check_breakers(breakers: object) -> None:
    if not isinstance(breakers, tuple | list) or not all(isinstance(text, str) and text for text in breakers):
        raise OptionError(f"dry_sequence_breakers={shown(breakers)} is not a tuple of texts; give e.g. ('\\n', ':').")


def _check_bias(bias: object) -> None:
    if not isinstance(bias, Mapping):
        raise OptionError(f"logit_bias={shown(bias)} is not a mapping of token ids to biases; give e.g. {{13: -5.0}}.")
    for token, value in bias.items():
        if not _has_kind(token, int) or token < 0:
            raise OptionError(f"logit_bias has the key {shown(token)}; give token ids, 0 or greater.")
        if not _has_kind(value, float) or not (-MAX_NUMBER <= value <= MAX_NUMBER or value == -math.inf):
            raise OptionError(
                f"logit_bias[{token}]={shown(value)} is not a bias; give a number from -1e6 to 1e6, or float('-inf')."
            )


# GGUF key (gguf-py constants, Keys.General.SAMPLING_*) -> option. `sequence` has no counterpart here.
_MODEL_KEYS = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.xtc_probability": "xtc_probability",
    "general.sampling.xtc_threshold": "xtc_threshold",
    "general.sampling.penalty_last_n": "repeat_last_n",
    "general.sampling.penalty_repeat": "repeat_penalty",
    "general.sampling.mirostat": "mirostat",
    "general.sampling.mirostat_tau": "mirostat_tau",
    "general.sampling.mirostat_eta": "mirostat_eta",
}


def model_defaults(metadata: Mapping[str, object], file: str) -> dict[str, int | float]:
    """The options that the model's maker recommends (`general.sampling.*`). Raises BadHParam for one out of range."""
    found: dict[str, int | float] = {}
    for key, option in _MODEL_KEYS.items():
        if key not in metadata:
            continue
        value = metadata[key]
        try:
            number = _RULES[option].kind(value)
            _RULES[option].check(option, number)
        except (OptionError, TypeError, ValueError, OverflowError) as error:
            message = f"{shown(value)} is not a value for {option}; correct the key or convert the model again"
            raise BadHParam(message, file=file, field=key) from error
        found[option] = number
    return found


@dataclass(frozen=True, slots=True)
class ResolvedOptions:
    """Settings in force and where each came from: the user, the model file, or our defaults."""

    options: SamplingOptions
    sources: Mapping[str, Source]


def resolve_options(user: SamplingKeywords, model: Mapping[str, int | float]) -> ResolvedOptions:
    """The user's values, else the model's, else ours. Raises OptionError for unknown names and bad values."""
    known = [f.name for f in fields(SamplingOptions)]
    for name in user:
        if name not in known:
            raise OptionError(f"{name} is not an option of generation; there are {', '.join(known)}.")
    sources: dict[str, Source] = {name: "user" if name in user else "model" if name in model else "default" for name in known}
    merged: SamplingKeywords = {**model, **user}  # type: ignore[typeddict-item]  # model's names are checked against _RULES
    return ResolvedOptions(replace(SamplingOptions(), **merged), sources)
