"""The sampler's rows of the option table: names, defaults, ranges, and which values came from the model file."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypedDict, TypeVar

from edgellm.errors import BadHParam, OptionError, shown
from edgellm.options.option import MAX_INTEGER, MAX_NUMBER, Option

T = TypeVar("T")
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


def _row(default: T, low: float = -MAX_NUMBER, high: float = MAX_NUMBER, **row: Any) -> T:  # Any: fields of Option
    """A field of SamplingOptions, and its row of the option table."""
    option = Option(kind=row.pop("kind", type(default)), default=default, low=low, high=high, **row)
    made: T = field(default=default, metadata={"option": option})
    return made


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """The chain's settings, checked. Defaults are llama.cpp's (`common/common.h`, common_params_sampling).

    Raises OptionError, naming option and value, for a value of the wrong type or out of range.
    """

    temperature: float = _row(
        0.8,
        least=0,
        flags=("--temp", "--temperature"),
        gguf="general.sampling.temp",
        help="Sampling temperature; 0 is greedy. The model may recommend other sampling defaults.",
    )
    top_k: int = _row(
        40,
        -MAX_INTEGER,
        MAX_INTEGER,
        least=-1,
        metavar="K",
        gguf="general.sampling.top_k",
        help="Sample from the K most likely tokens; 0 disables.",
    )
    top_p: float = _row(
        0.95,
        0,
        1,
        metavar="P",
        gguf="general.sampling.top_p",
        help="Sample from the most likely tokens whose probabilities add up to P; 1 disables.",
    )
    min_p: float = _row(
        0.05,
        0,
        1,
        metavar="P",
        gguf="general.sampling.min_p",
        help="Leave out tokens less likely than P times the most likely one; 0 disables.",
    )
    typical_p: float = _row(
        1.0,
        0,
        1,
        flags=("--typical", "--typical-p"),
        metavar="P",
        listed=False,
        help="Sample from the tokens whose surprise is nearest to the average, up to probability P; 1 disables.",
    )
    top_n_sigma: float = _row(
        -1.0,
        flags=("--top-n-sigma", "--top-nsigma"),
        metavar="N",
        listed=False,
        help="Leave out tokens whose logit is more than N standard deviations below the highest; 0 or less disables.",
    )
    xtc_probability: float = _row(
        0.0,
        0,
        1,
        metavar="P",
        gguf="general.sampling.xtc_probability",
        listed=False,
        help="Chance of XTC, which leaves out the most likely tokens; 0 disables.",
    )
    xtc_threshold: float = _row(
        0.1,
        0,
        1,
        metavar="P",
        gguf="general.sampling.xtc_threshold",
        listed=False,
        help="XTC keeps one token of at least this probability; more than 0.5 disables.",
    )
    dynatemp_range: float = _row(0.0, 0, listed=False, help="Vary the temperature by X with the entropy; 0 disables.")
    dynatemp_exponent: float = _row(
        1.0, 0, flags=("--dynatemp-exp", "--dynatemp-exponent"), listed=False, help="Exponent of the dynamic temperature."
    )
    mirostat: int = _row(
        0,
        0,
        2,
        metavar="N",
        gguf="general.sampling.mirostat",
        listed=False,
        help="Mirostat 1 or 2 in place of top-k, top-p and the like; 0 disables.",
    )
    mirostat_tau: float = _row(
        5.0,
        0,
        flags=("--mirostat-ent", "--mirostat-tau"),
        gguf="general.sampling.mirostat_tau",
        listed=False,
        help="The surprise in bits that Mirostat aims at.",
    )
    mirostat_eta: float = _row(
        0.1,
        0,
        flags=("--mirostat-lr", "--mirostat-eta"),
        gguf="general.sampling.mirostat_eta",
        listed=False,
        help="Mirostat's learning rate.",
    )
    adaptive_target: float = _row(
        -1.0, high=1, metavar="P", listed=False, help="The average probability of sampled tokens to aim at; below 0 disables."
    )
    adaptive_decay: float = _row(0.9, 0, 0.99, listed=False, help="Decay of that average.")
    repeat_penalty: float = _row(
        1.0, 1 / MAX_NUMBER, gguf="general.sampling.penalty_repeat", help="Penalise tokens that are among the last 64; 1 disables."
    )
    repeat_last_n: int = _row(
        64,
        -1,
        MAX_INTEGER,
        metavar="N",
        gguf="general.sampling.penalty_last_n",
        listed=False,
        help="Tokens that the penalties look back on; 0 disables, -1 is the context.",
    )
    frequency_penalty: float = _row(0.0, help="Subtract X from the logit of such a token for each occurrence.")
    presence_penalty: float = _row(0.0, help="Subtract X from the logit of each such token.")
    dry_multiplier: float = _row(0.0, 0, listed=False, help="Strength of DRY, a penalty on repeated sequences; 0 disables.")
    dry_base: float = _row(1.75, 1, listed=False, help="DRY's penalty grows by X with each token.")
    dry_allowed_length: int = _row(2, 1, MAX_INTEGER, metavar="N", listed=False, help="DRY allows repeats of N tokens.")
    dry_last_n: int = _row(
        64,
        -1,
        MAX_INTEGER,
        flags=("--dry-penalty-last-n", "--dry-last-n"),
        metavar="N",
        listed=False,
        help="Tokens that DRY looks back on; 0 disables, -1 is the context.",
    )
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    ignore_eos: bool = _row(False, 0, 1, listed=False, help="Never end the answer before its limit of tokens.")
    min_keep: int = _row(0, 0, MAX_INTEGER, metavar="N", listed=False, help="Leave at least N tokens to sample from.")
    seed: int | None = _row(
        None,
        0,
        math.inf,
        kind=int,
        unset=(-1, "for a new one each time"),
        usual="a new one for each answer",
        flags=("--seed", "-s"),
        metavar="N",
        help="Seed for sampling; -1 for a random one.",
    )

    def __post_init__(self) -> None:
        for row in SAMPLING:
            value = getattr(self, row.name)
            if value is row.default:
                continue
            row.check(value)
            if not isinstance(value, int | float | None):  # NumPy's numbers, fractions
                object.__setattr__(self, row.name, row.kind(value))
        _check_breakers(self.dry_sequence_breakers)
        _check_bias(self.logit_bias)


SAMPLING: tuple[Option, ...] = tuple(
    replace(each.metadata["option"], name=each.name) for each in fields(SamplingOptions) if each.metadata
)
_NAMES = tuple(each.name for each in fields(SamplingOptions))


def _check_breakers(breakers: object) -> None:
    if not isinstance(breakers, tuple | list) or not all(isinstance(text, str) and text for text in breakers):
        raise OptionError(
            "is not a tuple of texts", option="dry_sequence_breakers", value=breakers, advice="give e.g. ('\\n', ':')"
        )


def _check_bias(bias: object) -> None:
    if not isinstance(bias, Mapping):
        raise OptionError("is not a mapping of token ids to biases", option="logit_bias", value=bias, advice="give e.g. {13: -5.0}")
    for token, value in bias.items():
        if not isinstance(token, numbers.Integral) or isinstance(token, bool) or token < 0:
            raise OptionError(f"logit_bias has the key {shown(token)}; give token ids, 0 or greater.")
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not real or not (-MAX_NUMBER <= value <= MAX_NUMBER or value == -math.inf):
            raise OptionError(
                f"logit_bias[{token}]={shown(value)} is not a bias; give a number from -1e6 to 1e6, or float('-inf')."
            )


def model_defaults(metadata: Mapping[str, object], file: str) -> dict[str, int | float]:
    """The options that the model's maker recommends (gguf-py, Keys.General.SAMPLING_*). Raises BadHParam for one out of range."""
    found: dict[str, int | float] = {}
    for row in SAMPLING:
        if row.gguf not in metadata:
            continue
        value = metadata[row.gguf]
        try:
            number = row.kind(value)
            row.check(number)
        except (OptionError, TypeError, ValueError, OverflowError) as error:
            message = f"{shown(value)} is not a value for {row.name}; correct the key or convert the model again"
            raise BadHParam(message, file=file, field=row.gguf) from error
        found[row.name] = number
    return found


@dataclass(frozen=True, slots=True)
class ResolvedOptions:
    """Settings in force and where each came from: the user, the model file, or our defaults."""

    options: SamplingOptions
    sources: Mapping[str, Source]


def resolve_options(user: SamplingKeywords, model: Mapping[str, int | float]) -> ResolvedOptions:
    """The user's values, else the model's, else ours. Raises OptionError for unknown names and bad values."""
    for name in user:
        if name not in _NAMES:
            raise OptionError(f"{name} is not an option of generation; there are {', '.join(_NAMES)}.")
    sources: dict[str, Source] = {name: "user" if name in user else "model" if name in model else "default" for name in _NAMES}
    merged: SamplingKeywords = {**model, **user}  # type: ignore[typeddict-item]  # model's names are checked by their rows
    return ResolvedOptions(SamplingOptions(**merged), sources)


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """How the next token is drawn from logits, as options have it: cut by top_k, top_p and min_p, then by a number in [0, 1)."""

    temperature: float  # 0: the best token
    top_k: int  # 0: all
    top_p: float
    min_p: float
    uniform: float
    biases: Mapping[int, float]  # added to the logits of these tokens before
