"""Each sampling stage against its definition written out in plain Python, and the chain as a whole."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.errors import NumericError, OptionError
from edgellm.sampling import Sampler, SamplingOptions
from edgellm.sampling import truncation as stages
from edgellm.sampling.candidates import Candidates, best
from edgellm.sampling.temperature import dynamic_temperature, temperature

ALL_OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
LEVELS = [-3.0, -1.5, 0.0, 0.25, 0.5, 1.0, 2.0, 2.5, 4.0, -math.inf]
some_logits = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=40).filter(lambda values: max(values) > -math.inf)


def everything(logits: list[float]) -> Candidates:
    return Candidates(None, np.array(logits, np.float32), False)


def ids_of(candidates: Candidates) -> list[int]:
    return list(range(len(candidates.logits))) if candidates.ids is None else [int(i) for i in candidates.ids]


def ranked(logits: list[float]) -> list[int]:
    """Ids of tokens that are not banned, best first, ties by id."""
    return sorted((i for i, x in enumerate(logits) if x > -math.inf), key=lambda i: (-logits[i], i))


def softmax(values: list[float]) -> list[float]:
    weights = [math.exp(x - max(values)) for x in values]
    return [w / sum(weights) for w in weights]


def kept_by(name: str, logits: list[float], options: SamplingOptions) -> set[int]:
    """The definition of each stage: which tokens are left of all of the vocabulary."""
    order = ranked(logits)
    chance = dict(zip(order, softmax([logits[i] for i in order]), strict=True))
    if name == "top_k":
        return set(order[: max(options.top_k, options.min_keep)])
    if name == "min_p":
        kept = [i for i in order if chance[i] >= options.min_p * chance[order[0]] * (1 - 1e-6)]
        return set(order[: max(len(kept), options.min_keep)])
    if name == "top_n_sigma":
        values = [logits[i] for i in order]
        mean = sum(values) / len(values)
        sigma = math.sqrt(sum((x - mean) ** 2 for x in values) / len(values))
        return {i for i in order if logits[i] >= max(values) - options.top_n_sigma * sigma - 1e-6}
    total = 0.0
    if name == "top_p":
        for n, i in enumerate(order, 1):
            total += chance[i]
            if total >= options.top_p - 1e-6 and n >= options.min_keep:
                return set(order[:n])
        return set(order)
    assert name == "typical"
    entropy = -sum(p * math.log(p) for p in chance.values())
    nearest = sorted(order, key=lambda i: (abs(-math.log(chance[i]) - entropy), i))
    for n, i in enumerate(nearest, 1):
        total += chance[i]
        if total > options.typical_p and n >= options.min_keep:
            return set(nearest[:n])
    return set(order)


TABLE: list[tuple[str, dict[str, float]]] = [
    ("top_k", {"top_k": 5}),
    ("top_k", {"top_k": 1}),
    ("top_k", {"top_k": 2, "min_keep": 4}),
    ("top_k", {"top_k": 1000}),
    ("top_p", {"top_p": 0.9}),
    ("top_p", {"top_p": 0.31}),
    ("top_p", {"top_p": 0.0}),
    ("top_p", {"top_p": 0.1, "min_keep": 3}),
    ("min_p", {"min_p": 0.1}),
    ("min_p", {"min_p": 0.9}),
    ("min_p", {"min_p": 0.9, "min_keep": 3}),
    ("top_n_sigma", {"top_n_sigma": 1.0}),
    ("top_n_sigma", {"top_n_sigma": 0.3}),
]


@pytest.mark.parametrize("after_top_k", [False, True])
@pytest.mark.parametrize(("name", "settings_"), TABLE)
@settings(max_examples=40, deadline=None)
@given(logits=some_logits)
def test_stage_against_its_definition(after_top_k: bool, name: str, settings_: dict[str, float], logits: list[float]) -> None:
    """On all of the vocabulary, and on candidates that top-k has sorted before."""
    options = SamplingOptions(**{**ALL_OFF, **settings_})  # type: ignore[arg-type]  # names and types as in TABLE
    select = getattr(stages, name)(options, lambda: 0.0)
    candidates = best(everything(logits), len(logits)) if after_top_k else everything(logits)
    left = select(candidates)
    assert {i for i in ids_of(left) if logits[i] > -math.inf} == kept_by(name, logits, options)
    assert [logits[i] for i in ids_of(left)] == left.logits.tolist()


def test_top_p_keeps_what_min_keep_asks_for() -> None:
    """More than it looks at first."""
    logits = np.linspace(0, -20, 3000).tolist()
    left = stages.top_p(SamplingOptions(top_p=0.1, min_keep=700), lambda: 0.0)(everything(logits))
    assert list(ids_of(left)) == list(range(700))


@given(some_logits, st.sampled_from([0.2, 0.5, 0.9]), st.integers(0, 3))
def test_typical_against_its_definition(logits: list[float], p: float, min_keep: int) -> None:
    options = SamplingOptions(typical_p=p, min_keep=min_keep)
    candidates = best(everything(logits), len(logits))
    kept, wanted = set(ids_of(stages.typical(options, lambda: 0.0)(candidates))), kept_by("typical", logits, options)
    # Equally typical tokens are interchangeable: compare what was kept by value.
    assert sorted(logits[i] for i in kept) == sorted(logits[i] for i in wanted) or len(kept ^ wanted) <= 2


@given(some_logits, st.booleans(), st.sampled_from([0.0, 0.05, 0.1, 0.3]), st.integers(0, 4))
def test_xtc_drops_all_that_reach_it_but_the_least(logits: list[float], after_top_k: bool, threshold: float, min_keep: int) -> None:
    order = ranked(logits)
    chance = softmax([logits[i] for i in order])
    last = max((n for n, p in enumerate(chance) if p >= threshold), default=0)
    n_all = len(order) if after_top_k else len(logits)
    dropped = set(order[:last]) if n_all - last >= min_keep else set()
    options = SamplingOptions(xtc_probability=0.5, xtc_threshold=threshold, min_keep=min_keep)
    candidates = best(everything(logits), len(logits)) if after_top_k else everything(logits)
    assert set(ids_of(candidates)) - set(ids_of(stages.xtc(options, lambda: 0.4)(candidates))) == dropped
    assert stages.xtc(options, lambda: 0.6)(candidates) is candidates, "it acts only sometimes"


@given(some_logits, st.sampled_from([0.1, 0.7, 2.0]), st.sampled_from([0.0, 0.5, 1.5]), st.sampled_from([0.5, 1.0, 2.0]))
def test_temperature(logits: list[float], value: float, spread: float, exponent: float) -> None:
    options = SamplingOptions(temperature=value, dynatemp_range=spread, dynatemp_exponent=exponent)
    candidates = best(everything(logits), len(logits))
    values = [logits[i] for i in ranked(logits)]
    chance = softmax(values)
    if len(values) > 1 and spread:
        evenness = -sum(p * math.log(p) for p in chance) / math.log(len(values))
        low = max(0.0, value - spread)
        value = low + (value + spread - low) * evenness**exponent
    scaled = (dynamic_temperature if spread else temperature)(options, lambda: 0.0)(candidates)
    if spread == 0 or len(values) > 1:
        np.testing.assert_allclose(scaled.probabilities(), softmax([x / value for x in values]), atol=1e-9)


def pick(logits: list[float] | np.ndarray, history: list[int] | None = None, **options: object) -> int:
    """The greedy choice under `options`."""
    values = np.array(logits, np.float32)
    sampler = Sampler(SamplingOptions(temperature=0, **options), n_vocab=len(values), context=64, end_tokens=[1])  # type: ignore[arg-type]
    return sampler.sample(values, array("i", history or [0]))


def edited(logits: list[float], history: list[int], **options: object) -> list[float]:
    """The logits after biases and penalties, seen through the sampler's own edits."""
    values = np.array(logits, np.float32)
    sampler = Sampler(SamplingOptions(**options), n_vocab=len(values), context=8)  # type: ignore[arg-type]
    sampler.sample(values, array("i", history))
    assert values.tolist() == np.array(logits, np.float32).tolist(), "the back end's array is as it was"
    sampler._edit(values, array("i", history))
    result: list[float] = values.tolist()
    return result


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=20),
    st.sampled_from([1.0, 1.3]),
    st.sampled_from([0.0, 0.4]),
    st.sampled_from([0.0, -0.5]),
    st.sampled_from([-1, 3, 8, 64]),
)
def test_penalties(history: list[int], repeat: float, frequency: float, presence: float, last_n: int) -> None:
    logits = [-1.0, 0.0, 0.5, 2.0, 3.0, -2.5]
    latest = history[-(8 if last_n < 0 else last_n) :]
    wanted = list(logits)
    for token in set(latest):
        x = logits[token]
        wanted[token] = (x / repeat if x > 0 else x * repeat) - latest.count(token) * frequency - presence
    options = {"repeat_penalty": repeat, "frequency_penalty": frequency, "presence_penalty": presence, "repeat_last_n": last_n}
    assert edited(logits, history, **options) == pytest.approx(wanted, abs=1e-6)  # sums in f32 near 0


class Letters:
    """A vocabulary whose tokens are these texts; plain text is encoded letter by letter."""

    TEXTS = ("a", "b", "c", ".", "c.", "x<", "|", ">")

    def pieces(self) -> tuple[str, ...]:
        return self.TEXTS

    def encode(self, text: str) -> list[int]:
        return [self.TEXTS.index(letter) for letter in text]


def dry_by_definition(history: list[int], allowed: int, breakers: set[int]) -> dict[int, float]:
    """The penalty per token: every earlier copy of the newest tokens since the last breaker, the longest counts."""
    since = next((k for k, token in enumerate(reversed(history)) if token in breakers), len(history))
    found: dict[int, int] = {}
    for end in range(len(history) - 1):
        length = 0
        while length < min(since, end + 1) and history[end - length] == history[len(history) - 1 - length]:
            length += 1
        if length >= allowed:
            found[history[end + 1]] = max(found.get(history[end + 1], 0), length)
    return {token: 0.8 * 1.75 ** (length - allowed) for token, length in found.items()}


@given(st.lists(st.integers(0, 4), min_size=1, max_size=24), st.integers(1, 3))
def test_dry(history: list[int], allowed: int) -> None:
    options = SamplingOptions(dry_multiplier=0.8, dry_allowed_length=allowed, dry_sequence_breakers=(".",))
    sampler = Sampler(options, n_vocab=8, context=64, vocabulary=Letters())
    got = np.zeros(8, np.float32)
    sampler._edit(got, array("i", history))
    wanted = np.zeros(8)
    for token, penalty in dry_by_definition(history, allowed, {3, 4}).items():
        wanted[token] -= penalty
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_dry_breaker_that_spans_tokens() -> None:
    """`<|>` is begun inside `x<` and completed by `|` and `>`: what stands before it is not a repetition."""
    again = [0, 1, 2, 0, 1]
    broken = [0, 1, 2, 5, 6, 7, 0, 1]
    options = SamplingOptions(dry_multiplier=1.0, dry_sequence_breakers=("<|>",), dry_allowed_length=3)
    for history, length in ((again, 2), (broken, 2), ([2, *again], 3), ([5, 6, 7, 0, 1, 2, 5, 6, 7, 0, 1], 2)):
        got = np.zeros(8, np.float32)
        Sampler(options, n_vocab=8, context=64, vocabulary=Letters())._edit(got, array("i", history))
        assert (got[2] < 0) == (length >= 3)


def test_dry_penalty_stays_finite() -> None:
    history = [1] * 300
    got = edited([0.0] * 4, history, dry_multiplier=5.0, dry_base=10.0, dry_last_n=300)
    assert math.isfinite(got[1]) and got[1] < -1e37 and got[0] == 0


def test_bias_and_ignored_ends() -> None:
    logits = [1.0, 5.0, 2.0, 0.0]
    assert pick(logits) == 1
    assert pick(logits, ignore_eos=True) == 2
    assert pick(logits, logit_bias={1: -math.inf, 3: 9.0}) == 3
    with pytest.raises(OptionError, match="token 4"):
        pick(logits, logit_bias={4: 1.0})


@given(
    st.lists(st.integers(-3, 3), min_size=3, max_size=8),
    st.dictionaries(st.integers(0, 2), st.sampled_from([-math.inf, -2.0, 0.0, 1.0])),
    st.booleans(),
    st.booleans(),
)
def test_greedy_takes_the_best_after_biases(values: list[int], bias: dict[int, float], ends: bool, writable: bool) -> None:
    """The lowest id of equals, whether biases are all below 0 or not; the logits are as they were."""
    logits = np.array(values, np.float32)
    logits.flags.writeable = writable
    wanted = [value + bias.get(token, 0.0) + (-math.inf if ends and token == 2 else 0.0) for token, value in enumerate(values)]
    options = SamplingOptions(temperature=0, logit_bias=bias, ignore_eos=ends)
    sampler = Sampler(options, n_vocab=len(values), context=8, end_tokens=[2])
    if max(wanted) == -math.inf:
        with pytest.raises(NumericError):
            sampler.sample(logits, array("i", [0]))
    else:
        assert sampler.sample(logits, array("i", [0])) == wanted.index(max(wanted))
    assert logits.tolist() == values


def test_processors_see_all_ids_and_change_the_choice() -> None:
    seen = []

    def forbid_best(ids: np.ndarray, logits: np.ndarray) -> np.ndarray:
        seen.append(ids.tolist())
        logits[int(logits.argmax())] = -np.inf
        return logits

    logits = np.array([0, 3, 2, 1], np.float32)
    sampler = Sampler(SamplingOptions(temperature=0, repeat_penalty=1.5), n_vocab=4, context=8, processors=[forbid_best])
    assert sampler.sample(logits, array("i", [0, 3] * 50)) == 2
    assert seen == [[0, 3] * 50] and logits[1] == 3
    for wrong in ([3], 3, [lambda ids, logits: logits[:2]]):
        with pytest.raises(OptionError, match="processor"):
            Sampler(SamplingOptions(), n_vocab=4, context=8, processors=wrong).sample(logits, array("i", [1]))  # type: ignore[arg-type]


@pytest.mark.parametrize("writable", [True, False])
def test_an_array_that_a_processor_returns_stays_as_it_is(writable: bool) -> None:
    own = np.array([0, 3, 2.5, 1], np.float32)
    own.flags.writeable = writable

    def add_one(ids: np.ndarray, logits: np.ndarray) -> np.ndarray:
        logits += 1
        return logits

    sampler = Sampler(
        SamplingOptions(temperature=0, frequency_penalty=1.0, repeat_last_n=64),
        n_vocab=4,
        context=8,
        processors=[lambda ids, logits: own, add_one],
    )
    logits = np.zeros(4, np.float32)
    assert [sampler.sample(logits, array("i", ids)) for ids in ([3], [3, 1], [3, 1, 2])] == [1, 2, 1]
    assert own.tolist() == [0, 3, 2.5, 1] and not logits.any()


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0}, {"top_k": 0}, {"top_n_sigma": 1.0}, {"repeat_penalty": 1.2}, {"typical_p": 0.5}]
)
@pytest.mark.filterwarnings("error")
def test_no_numbers_no_token(options: dict[str, float]) -> None:
    sampler = Sampler(SamplingOptions(**options), n_vocab=5000, context=8)  # type: ignore[arg-type]
    for bad in (math.nan, math.inf):
        for place in (0, 777, 4999):
            logits = np.linspace(-4, 4, 5000, dtype=np.float32)
            logits[place] = bad
            with pytest.raises(NumericError, match="NaN or Inf"):
                sampler.sample(logits, array("i", [1, 2]))
    with pytest.raises(NumericError, match="no token is left"):
        sampler.sample(np.full(5000, -np.inf, np.float32), array("i", [1, 2]))
    lone = np.full(5000, -np.inf, np.float32)
    lone[4321] = -7
    assert sampler.sample(lone, array("i", [1, 2])) == 4321


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 70000), st.integers(1, 600), st.integers(0, 2**32 - 1), st.sampled_from(["normal", "ties", "banned", "equal"])
)
def test_best_equals_sorting_everything(n: int, k: int, seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 4, n).astype(np.float32)
    if kind == "ties":
        logits = np.round(logits)
    if kind == "banned":
        logits[rng.random(n) < 0.99] = -np.inf
    if kind == "equal":
        logits[:] = 1.5
    wanted = np.argsort(-logits, kind="stable")[:k]
    wanted = wanted[logits[wanted] > -np.inf]
    assert ids_of(best(Candidates(None, logits, False), k)) == wanted.tolist()


def chi_square(counts: np.ndarray, chance: np.ndarray) -> float:
    expected = counts.sum() * chance
    return float(((counts - expected) ** 2 / expected).sum())


CHAINS: list[tuple[dict[str, float], Callable[[list[float]], set[int]]]] = [
    ({**ALL_OFF}, lambda x: set(range(len(x)))),
    ({**ALL_OFF, "top_k": 4}, lambda x: kept_by("top_k", x, SamplingOptions(top_k=4))),
    ({**ALL_OFF, "min_p": 0.2}, lambda x: kept_by("min_p", x, SamplingOptions(min_p=0.2))),
    ({**ALL_OFF, "top_p": 0.8}, lambda x: kept_by("top_p", x, SamplingOptions(top_p=0.8))),
]


@pytest.mark.parametrize(("options", "kept"), CHAINS)
def test_draws_follow_the_softmax(options: dict[str, float], kept: Callable[[list[float]], set[int]]) -> None:
    """8,000 seeded draws; the bound is chi-square's 99.9 % point for 9 degrees of freedom."""
    logits = [0.1, 1.2, -0.4, 2.0, 1.1, 0.7, -1.0, 1.9, 0.2, 1.6]
    left = sorted(kept(logits))
    chance = np.array(softmax([logits[i] / 0.7 for i in left]))
    sampler = Sampler(SamplingOptions(temperature=0.7, seed=11, **options), n_vocab=10, context=8)  # type: ignore[arg-type]
    values, history = np.array(logits, np.float32), array("i", [0])
    counts = np.bincount([sampler.sample(values, history) for _ in range(8000)], minlength=10)
    assert set(np.flatnonzero(counts)) == set(left)
    assert chi_square(counts[left], chance) < 27.9


def test_seeds() -> None:
    logits = np.random.default_rng(3).normal(0, 2, 3000).astype(np.float32)

    def run(seed: int | None) -> tuple[list[int], int]:
        sampler = Sampler(SamplingOptions(seed=seed), n_vocab=3000, context=8)
        return [sampler.sample(logits, array("i", [1])) for _ in range(40)], sampler.seed

    assert run(5) == run(5) != run(6)
    tokens, seed = run(None)
    assert run(seed)[0] == tokens, "a seed that was drawn can be given again"
    assert run(None)[1] != seed


def test_greedy_obeys_stages_that_drop_the_best() -> None:
    logits = np.array([3.0, 2.9, 2.8, -2.0], np.float32)
    sampler = Sampler(SamplingOptions(temperature=0, xtc_probability=1.0), n_vocab=4, context=8)
    assert sampler.sample(logits, array("i", [1])) == 2
    assert pick([1.0, 2.0, 2.0, 0.0]) == 1, "of equals the lowest id"
