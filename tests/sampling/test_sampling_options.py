"""Sampling options: defaults, ranges with sentences, and values that come with the model file."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

from edgellm.errors import BadHParam, OptionError
from edgellm.options.sampling import SAMPLING
from edgellm.sampling import SamplingKeywords, SamplingOptions, model_defaults, resolve_options


def test_defaults_are_llama_cpps() -> None:
    o = SamplingOptions()
    assert (o.temperature, o.top_k, o.top_p, o.min_p, o.typical_p, o.top_n_sigma) == (0.8, 40, 0.95, 0.05, 1.0, -1.0)
    assert (o.repeat_penalty, o.repeat_last_n, o.frequency_penalty, o.presence_penalty) == (1.0, 64, 0.0, 0.0)
    assert (o.xtc_probability, o.xtc_threshold, o.dynatemp_range, o.dynatemp_exponent) == (0.0, 0.1, 0.0, 1.0)
    assert (o.dry_multiplier, o.dry_base, o.dry_allowed_length, o.dry_last_n) == (0.0, 1.75, 2, 64)
    with pytest.raises(FrozenInstanceError):
        o.top_k = 3  # type: ignore[misc]


def test_keywords_and_rules_name_every_option() -> None:
    names = {f.name for f in fields(SamplingOptions)}
    assert set(SamplingKeywords.__annotations__) == names
    assert {row.name for row in SAMPLING} == names - {"dry_sequence_breakers", "logit_bias"}
    assert all(row.default == getattr(SamplingOptions(), row.name) and row.help and row.flags for row in SAMPLING)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", math.nan),
        ("temperature", "hot"),
        ("temperature", math.inf),
        ("top_k", 4.0),
        ("top_k", True),
        ("top_p", 1.5),
        ("top_p", -0.1),
        ("min_p", 2),
        ("typical_p", -1),
        ("xtc_probability", 1.1),
        ("xtc_threshold", -0.2),
        ("dynatemp_range", -1),
        ("dynatemp_exponent", -1),
        ("repeat_penalty", 0),
        ("repeat_penalty", -1),
        ("repeat_last_n", -2),
        ("frequency_penalty", math.nan),
        ("presence_penalty", None),
        ("dry_multiplier", -1),
        ("dry_base", 0.5),
        ("dry_allowed_length", 0),
        ("dry_last_n", -2),
        ("dry_sequence_breakers", "abc"),
        ("dry_sequence_breakers", ("",)),
        ("logit_bias", [1]),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {"a": 1.0}),
        ("logit_bias", {3: math.nan}),
        ("logit_bias", {3: math.inf}),
        ("ignore_eos", 1),
        ("min_keep", -1),
        ("seed", -1),
        ("seed", 1.5),
        ("top_p", 10**400),
        ("top_k", np.float32(3)),
        ("top_n_sigma", math.nan),
    ],
)
def test_bad_values_are_named(name: str, value: object) -> None:
    with pytest.raises(OptionError) as caught:
        SamplingOptions(**{name: value})  # type: ignore[arg-type]  # wrong on purpose
    text = str(caught.value)
    assert name in text and text.endswith((".", ")")) and ";" in text
    assert caught.value.exit_code == 2


def test_values_at_the_ends_of_their_ranges_pass() -> None:
    SamplingOptions(
        temperature=-1,
        top_k=-5,
        top_p=0,
        min_p=1,
        typical_p=0,
        xtc_threshold=1,
        repeat_penalty=1e-6,
        repeat_last_n=-1,
        dry_base=1,
        dry_last_n=-1,
        logit_bias={0: -math.inf},
        seed=10**400,
    )
    assert SamplingOptions(top_k=np.int64(5), top_p=np.float32(0.5)).top_k == 5  # type: ignore[arg-type]  # as arrays give them


def test_model_values_stand_between_the_users_and_ours() -> None:
    metadata = {
        "general.sampling.temp": np.float32(0.6),
        "general.sampling.top_k": 20,
        "general.sampling.penalty_last_n": 32,
        "general.sampling.mirostat": 2,
        "general.name": "x",
    }
    model = model_defaults(metadata, "m.gguf")
    assert model == {"temperature": pytest.approx(0.6), "top_k": 20, "repeat_last_n": 32, "mirostat": 2}
    resolved = resolve_options({"top_k": 7, "seed": None}, model)
    assert (resolved.options.top_k, resolved.options.repeat_last_n, resolved.options.top_p) == (7, 32, 0.95)
    assert [resolved.sources[name] for name in ("top_k", "temperature", "top_p", "seed")] == ["user", "model", "default", "user"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("general.sampling.top_p", 7.0),
        ("general.sampling.temp", math.nan),
        ("general.sampling.top_k", "many"),
        ("general.sampling.min_p", np.zeros(3)),
        ("general.sampling.penalty_repeat", 0.0),
    ],
)
def test_bad_model_values_name_file_and_key(key: str, value: object) -> None:
    with pytest.raises(BadHParam) as caught:
        model_defaults({key: value}, "m.gguf")
    assert key in str(caught.value) and "m.gguf" in str(caught.value)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(OptionError, match="topk is not an option"):
        resolve_options({"topk": 3}, {})  # type: ignore[typeddict-unknown-key]  # wrong on purpose
