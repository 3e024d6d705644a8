"""Draws that adapt to what was drawn (mirostat, adaptive-p), tokens that a file bars, and masks of constraints."""

from __future__ import annotations

import math
from array import array

import numpy as np
import numpy.typing as npt
import pytest

from edgellm.errors import NumericError, OptionError
from edgellm.sampling import Sampler, SamplingOptions
from edgellm.sampling.constraint import Mask

N = 2000
NONE = array("i")


def zipf(slope: float = 1.1) -> npt.NDArray[np.float32]:
    return (-slope * np.log(np.arange(1, N + 1))).astype(np.float32)


def drawn(sampler: Sampler, logits: npt.NDArray[np.float32], n: int) -> list[int]:
    return [sampler.sample(logits, NONE) for _ in range(n)]


def entropy(ids: list[int]) -> float:
    """Of what was drawn, in bits: what mirostat's surprise is on average."""
    chances = np.unique(ids, return_counts=True)[1] / len(ids)
    return float(-(chances * np.log2(chances)).sum())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [2.0, 4.0])
def test_mirostat_keeps_the_surprise_near_tau(version: int, tau: float) -> None:
    sampler = Sampler(SamplingOptions(temperature=1, mirostat=version, mirostat_tau=tau, seed=1), n_vocab=N, context=64)
    plain = Sampler(SamplingOptions(temperature=1, top_k=0, top_p=1, min_p=0, seed=1), n_vocab=N, context=64)
    assert entropy(drawn(sampler, zipf(), 1600)[600:]) == pytest.approx(tau, abs=0.4)
    assert entropy(drawn(plain, zipf(), 800)) > 5.5


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("eta", [250.0, 1e6])
def test_mirostat_with_a_large_step(version: int, eta: float) -> None:
    """mu swings between what keeps all tokens and what keeps one."""
    options = SamplingOptions(temperature=1, mirostat=version, mirostat_eta=eta, seed=1)
    assert 0 in drawn(Sampler(options, n_vocab=N, context=64), zipf(), 50)


def test_mirostat_replaces_the_stages_that_cut() -> None:
    options = SamplingOptions(temperature=1, top_k=1, mirostat=2, mirostat_tau=8, seed=0)
    assert len(set(drawn(Sampler(options, n_vocab=N, context=64), zipf(), 200))) > 20


def test_adaptive_p_draws_tokens_of_the_probability_that_is_asked_for() -> None:
    logits = np.log(np.array([0.4, 0.3, 0.15, 0.1, 0.05], np.float32))
    means = []
    for target in (0.1, 0.3):
        options = SamplingOptions(temperature=1, top_k=0, top_p=1, min_p=0, adaptive_target=target, seed=0)
        ids = drawn(Sampler(options, n_vocab=5, context=64), logits, 2000)
        means.append(float(np.exp(logits)[ids].mean()))
    assert means[0] == pytest.approx(0.1, abs=0.04) and means[1] == pytest.approx(0.3, abs=0.04)


def test_first_draw_of_adaptive_p_has_llama_cpps_weights() -> None:
    """PEAK - SHARPNESS d^2 / (1 + d), d the distance from the target in widths of 0.3; softmax of that."""
    chances = [0.5, 0.3, 0.2]
    preference = [5 - 10 * d * d / (1 + d) for d in (abs(p - 0.3) / 0.3 for p in chances)]
    wanted = np.exp(preference) / np.exp(preference).sum()
    logits = np.log(np.array(chances, np.float32))
    options = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "adaptive_target": 0.3}
    counts = np.bincount(
        [Sampler(SamplingOptions(**options, seed=seed), n_vocab=3, context=64).sample(logits, NONE) for seed in range(1500)],
        minlength=3,
    )
    np.testing.assert_allclose(counts / 1500, wanted, atol=0.04)


@pytest.mark.parametrize(
    ("name", "value"), [("mirostat", 3), ("mirostat_tau", -1), ("adaptive_decay", 1.0), ("adaptive_target", 2)]
)
def test_values_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(OptionError, match=name):
        SamplingOptions(**{name: value})  # type: ignore[arg-type]  # a name of the fields


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_tokens_that_the_file_bars_are_never_sampled(temperature: float) -> None:
    logits = np.array([1, 5, 4, 3], np.float32)
    sampler = Sampler(SamplingOptions(temperature=temperature, logit_bias={1: 50.0}), n_vocab=4, context=8, suppressed={1, 2})
    assert set(drawn(sampler, logits, 50)) <= {0, 3} and logits[1] == 5


class Only:
    """Allows some tokens, others each time; counts how often it is asked."""

    complete = False

    def __init__(self, *allowed: set[int], n_vocab: int = 70) -> None:
        self._allowed, self._n = list(allowed), n_vocab
        self.accepted: list[int] = []
        self.asked = 0

    def mask(self) -> Mask:
        self.asked += 1
        bits = np.zeros(-(-self._n // 32) * 32, np.uint8)
        bits[list(self._allowed[len(self.accepted)])] = 1
        return np.packbits(bits, bitorder="little").view(np.uint32)

    def accept(self, token: int) -> None:
        self.accepted.append(token)

    def rollback(self, n: int) -> None:
        del self.accepted[len(self.accepted) - n :]


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 1.5},
        {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
        {"mirostat": 2},
        {"temperature": 1.0, "top_k": 0, "top_n_sigma": 1.0},
        {"xtc_probability": 1.0, "typical_p": 0.5},
        {"repeat_penalty": 1.5},
    ],
)
def test_only_tokens_of_the_mask_are_sampled(options: dict[str, float]) -> None:
    rng = np.random.default_rng(0)
    sets = [{3}, {0, 69}, set(range(70)), {31, 32, 33, 64}]
    for seed in range(30):
        constraint = Only(*sets)
        sampler = Sampler(SamplingOptions(**options, seed=seed), n_vocab=70, context=8, constraint=constraint)
        for allowed in sets:
            token = sampler.sample(rng.normal(0, 3, 70).astype(np.float32), array("i", [1, 2, 3]))
            assert token in allowed
            sampler.accept(token)


def test_a_mask_is_computed_once_for_each_token() -> None:
    constraint = Only({1}, {2})
    sampler = Sampler(SamplingOptions(), n_vocab=70, context=8, constraint=constraint)
    logits = np.zeros(70, np.float32)
    sampler.prepare()
    assert [sampler.sample(logits, NONE), sampler.sample(logits, NONE), constraint.asked] == [1, 1, 1]  # its logits got lost
    sampler.accept(1)
    sampler.prepare()
    assert [sampler.sample(logits, NONE), constraint.asked] == [2, 2]


def test_processors_that_bar_every_token_are_reported() -> None:
    def bar(ids: npt.NDArray[np.int32], logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        logits[3] = -math.inf
        return logits

    sampler = Sampler(SamplingOptions(), n_vocab=70, context=8, constraint=Only({3}), processors=[bar])
    with pytest.raises(NumericError, match="no token is left"):
        sampler.sample(np.zeros(70, np.float32), NONE)
