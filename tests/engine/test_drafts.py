"""Drafts by prompt lookup change the speed of an answer and nothing else."""

from __future__ import annotations

import functools
import random
from array import array
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_backend import toys
from seeds import seed
from tiny_models import tiny_model

import edgellm
from edgellm.engine.conversation import Conversation
from edgellm.engine.speculate import small_model
from edgellm.engine.speculate.drafter import FIRST_PAUSE, MOST, Drafter
from edgellm.engine.speculate.ngram import NgramDrafter
from edgellm.engine.speculate.small_model import CATCH_UP
from edgellm.errors import ModelNotFound, OptionError
from edgellm.sampling import chain
from edgellm.sampling.candidates import Candidates
from edgellm.sampling.drawing import Chances, draw_after

PROMPT = [1, *[5, 6, 7, 8, 9, 10, 11] * 6]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("drafts") / "m.gguf", "llama", "F16", tokenizer="spm", n_layers=1, context=512)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts go on also where they do not pay, as on models that take microseconds for a token."""
    note = Drafter.note
    monkeypatch.setattr(Drafter, "note", lambda self, drafted, produced, seconds: note(self, drafted, produced, float(not drafted)))


def biased(ids: Any, logits: Any) -> Any:
    """Makes the token that followed the newest one before likely: answers repeat themselves, with exceptions."""
    if len(ids) % 9 == 0:
        return logits
    found = [k for k in range(len(ids) - 1) if ids[k] == ids[-1]]
    if found:
        logits[ids[found[-1] + 1]] += 14
    return logits


OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.0, "seed": 3},
    {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 4},
    {"temperature": 1.0, "seed": 5, "repeat_penalty": 1.3, "mirostat": 2},
    {"temperature": 0.0, "logprobs": 2, "max_tokens": 37},
    {"seed": 6, "regex": "([a-c]{2,4} ){8,20}"},
    {"seed": 7, "ignore_eos": True, "max_tokens": 300},
]


@pytest.mark.parametrize("backend", ["toy", "cpu", "mlx"])
@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
def test_the_answer_is_the_same(path: Path, always: None, backend: str, options: dict[str, Any]) -> None:
    """The context is small, so that answers go round the ring."""
    load = toys().load if backend == "toy" else functools.partial(edgellm.load, backend=backend)
    wanted: dict[str, Any] = {"max_tokens": 120, "processors": [biased], **options}
    with load(path, context=96, sinks=2) as model:
        plain = model.generate(PROMPT, **wanted)
    with load(path, context=96, sinks=2) as model:
        drafted = model.generate(PROMPT, draft="ngram", **wanted)
        with model.session() as session, session.stream(PROMPT, draft="ngram", **wanted) as stream:
            pieces = list(stream)
            assert session.n_tokens <= len(PROMPT) + len(stream.result.token_ids)
        assert stream.result.token_ids == plain.token_ids == tuple(piece.token_id for piece in pieces if piece.token_id is not None)
    assert (drafted.token_ids, drafted.text, drafted.stop_reason) == (plain.token_ids, plain.text, plain.stop_reason)
    assert plain.stats.drafted_tokens == 0
    assert drafted.stats.drafted_tokens > 0 or "regex" in options
    if plain.logprobs is not None and drafted.logprobs is not None:
        for one, other in zip(plain.logprobs, drafted.logprobs, strict=True):
            assert one.token_id == other.token_id and one.logprob == pytest.approx(other.logprob, abs=1e-4)


def test_recurrent_states_are_taken_back(tmp_path: Path, always: None) -> None:
    path = tiny_model(tmp_path / "m.gguf", "lfm2", "F32", tokenizer="spm")
    answers = []
    for draft in (None, "ngram"):
        with edgellm.load(path) as model:
            answers.append(model.generate(PROMPT, draft=draft, max_tokens=60, temperature=0, processors=[biased]))
    assert answers[0].token_ids == answers[1].token_ids and answers[1].stats.drafted_tokens > answers[1].stats.accepted_tokens


def test_drafts_keep_the_snapshots_of_recurrent_states(tmp_path: Path, always: None) -> None:
    """The next prompt goes on from the end of the last one."""
    path, cached = tiny_model(tmp_path / "m.gguf", "lfm2", "F32", tokenizer="spm", context=512), []
    for draft in (None, "ngram"):
        with edgellm.load(path) as model:
            drafted = model.generate(PROMPT * 3, draft=draft, max_tokens=60, temperature=0, processors=[biased], ignore_eos=True)
            cached.append(model.generate([*PROMPT * 3, 20, 21, 22], max_tokens=1).stats.cached_tokens)
    assert drafted.stats.accepted_tokens > 0 and cached[0] == cached[1] > 2 * len(PROMPT)


def test_an_answer_that_repeats_itself_ends_at_the_same_token(path: Path, always: None) -> None:
    def repeating(ids: Any, logits: Any) -> Any:
        return logits + 1000 * (np.arange(len(logits)) == ids[-7])

    with edgellm.load(path, context=512) as model:
        plain, drafted = (
            model.generate(
                PROMPT, draft=draft, max_tokens=2000, temperature=0, processors=[repeating], ignore_eos=True, stop_loops=True
            )
            for draft in (None, "ngram")
        )
    assert plain.stop_reason == drafted.stop_reason == "loop" and drafted.stats.accepted_tokens > 0
    assert plain.token_ids == drafted.token_ids


@pytest.mark.parametrize("draft", [None, "ngram"])
def test_a_processor_may_use_the_model(path: Path, always: None, draft: str | None) -> None:
    """Its steps write the logits of others where those of this one were."""
    with edgellm.load(path, context=512) as model:

        def asks(ids: Any, logits: Any) -> Any:
            model.logits([9, 8, 7])
            return biased(ids, logits)

        plain, asked = (
            model.generate(PROMPT, draft=draft, max_tokens=40, logprobs=2, temperature=0, processors=[processor])
            for processor in (biased, asks)
        )
    assert asked.token_ids == plain.token_ids and plain.logprobs is not None and asked.logprobs is not None
    for one, other in zip(plain.logprobs, asked.logprobs, strict=True):
        assert other.logprob == pytest.approx(one.logprob, abs=1e-3)
        assert [token for token, _ in other.top] == [token for token, _ in one.top]


def test_a_conversation_continues_after_drafts(path: Path, always: None) -> None:
    with edgellm.load(path, context=96) as model:
        first = model.generate(PROMPT, draft="ngram", max_tokens=40, temperature=0, processors=[biased])
        assert first.stats.accepted_tokens > 0
        longer = [*PROMPT, *first.token_ids, 20, 21]
        second = model.generate(longer, max_tokens=20, temperature=0)
    with edgellm.load(path, context=96) as model:
        assert model.generate(longer, max_tokens=20, temperature=0).token_ids == second.token_ids


def drafter(plain: float = 1.0) -> NgramDrafter:
    found = NgramDrafter()
    found.note(0, 1, plain)
    return found


def test_what_followed_is_proposed() -> None:
    found = drafter()
    assert found.propose(array("i", [1, 2, 3, 4, 5, 6, 1, 2, 3]), 8) == [4, 5, 6, 1]
    assert found.propose(array("i", [1, 2, 3, 4, 5, 6, 1, 2, 3]), 2) == [4, 5]
    assert found.propose(array("i", [1, 2, 3, 4, 5, 6, 1, 2, 9]), 8) == []
    assert drafter().propose(array("i", [1, 2]), 8) == []


def test_drafts_that_do_not_pay_pause() -> None:
    found, ids = drafter(), array("i", [1, 2, 3, 4] * 5)
    for _ in range(3):
        assert found.propose(ids, 8)
        found.note(4, 1, 1.5)
    for _ in range(FIRST_PAUSE):
        assert not found.propose(ids, 8)
        found.note(0, 1, 1.0)
    assert found.propose(ids, 8)
    for _ in range(20):
        found.note(MOST, MOST + 1, 2.0)
        assert len(found.propose(ids, 8)) > 2


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models that guess: the same one, one that knows nothing of it, a recurrent one, and one with another vocabulary."""
    folder = tmp_path_factory.mktemp("small")
    return {
        "same": tiny_model(folder / "same.gguf", "llama", "F16", tokenizer="spm", n_layers=1, context=512),
        "other": tiny_model(folder / "other.gguf", "llama", "F32", tokenizer="spm", n_layers=1, context=512, seed=5),
        "recurrent": tiny_model(folder / "recurrent.gguf", "lfm2", "F32", tokenizer="spm"),
        "stranger": tiny_model(folder / "stranger.gguf", "llama", "F32", tokenizer="bpe"),
    }


@pytest.mark.parametrize("small", ["same", "other", "recurrent"])
@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[1], OPTIONS[3], OPTIONS[5]], ids=range(4))
def test_a_small_model_changes_no_answer(
    path: Path, others: dict[str, Path], always: None, monkeypatch: pytest.MonkeyPatch, small: str, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(small_model, "LEAST_PROBABILITY", 0.0)
    with edgellm.load(path, context=96, sinks=2) as model:
        wanted: dict[str, Any] = {"max_tokens": 120, **options}
        plain = model.generate(PROMPT, **wanted)
        drafted = model.generate(PROMPT, draft=others[small], **wanted)
        assert drafted.token_ids == plain.token_ids and drafted.stop_reason == plain.stop_reason
        assert drafted.stats.drafted_tokens > 0
        if small == "same" and options.get("temperature") == 0.0:
            assert drafted.stats.accepted_tokens > drafted.stats.drafted_tokens // 2


def excess(seen: Mapping[Any, int], chances: Mapping[Any, float]) -> float:
    """How many standard deviations the chi-squared of counts lies above what it is for draws from `chances`."""
    total, squared, cells, rare = sum(seen.values()), 0.0, 0, [0.0, 0.0]
    for what, chance in chances.items():
        if chance * total < 5:
            rare[0], rare[1] = rare[0] + seen.get(what, 0), rare[1] + chance * total
            continue
        squared, cells = squared + (seen.get(what, 0) - chance * total) ** 2 / (chance * total), cells + 1
    if rare[1] >= 1:
        squared, cells = squared + (rare[0] - rare[1]) ** 2 / rare[1], cells + 1
    free = max(1, cells - 1)  # Wilson and Hilferty's approximation
    return ((squared / free) ** (1 / 3) - (1 - 2 / (9 * free))) / (2 / (9 * free)) ** 0.5


@pytest.fixture
def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds that nobody chose are the same at each run; calls know nothing of it, and draft as they do without a seed."""
    monkeypatch.setattr("edgellm.sampling.chain.os.urandom", random.Random(seed(8)).randbytes)


def test_draws_after_a_guess_have_the_same_distribution() -> None:
    rng = np.random.default_rng(4)
    wanted, given = rng.dirichlet(np.full(12, 0.5)), rng.dirichlet(np.full(9, 0.5))
    candidates = Candidates(np.arange(3, 15), np.log(wanted), False)
    chances = Chances(np.arange(9), given)
    guesses = rng.choice(9, 20_000, p=given).tolist()
    drawn = [draw_after(candidates, guess, chances, 20, rng.random) for guess in guesses]
    expected = dict(zip(range(3, 15), wanted.tolist(), strict=True))
    assert excess(Counter(drawn), expected) < 5
    same = sum(a == b for a, b in zip(guesses, drawn, strict=True)) / len(drawn)
    assert same == pytest.approx(np.minimum(given[3:], wanted[:6]).sum(), abs=0.02), "as often as can be"
    wrong = Chances(np.arange(9), np.full(9, 1 / 9))
    drawn = [draw_after(candidates, guess, wrong, 20, rng.random) for guess in guesses]
    assert excess(Counter(drawn), expected) > 5, "the test sees a wrong distribution"


@pytest.mark.parametrize("rule", ["right", "wrong"])
def test_drawn_drafts_keep_the_distribution(
    path: Path, others: dict[str, Path], always: None, repeatable: None, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    """Answers without a seed: their frequencies against the model's own probabilities; a rule that takes any guess is found out."""
    monkeypatch.setattr(small_model, "LEAST_PROBABILITY", 0.0)
    if rule == "wrong":
        monkeypatch.setattr(chain, "draw_after", lambda candidates, guess, *rest: guess)
    options: dict[str, Any] = {"temperature": 3.0, "top_k": 2, "top_p": 1.0, "min_p": 0.0, "max_tokens": 5, "ignore_eos": True}
    with edgellm.load(path, context=96, kv_type="f32") as model:
        answers = [model.generate(PROMPT, draft=others["other"], **options) for _ in range(400)]
        chances = {(): 1.0}
        for _ in range(5):
            longer: dict[tuple[int, ...], float] = {}
            for said, chance in chances.items():
                row = model.logits([*PROMPT, *said])[-1].astype(np.float64)
                two = np.argsort(-row)[:2]
                odds = np.exp((row[two] - row[two[0]]) / 3.0)
                for token, odd in zip(two.tolist(), (odds / odds.sum()).tolist(), strict=True):
                    longer[*said, token] = chance * odd
            chances = longer
    assert sum(answer.stats.drafted_tokens for answer in answers) > 400
    found = excess(Counter(answer.token_ids for answer in answers), chances)
    assert (found < 5) if rule == "right" else (found > 5), found


def test_a_seed_gives_the_same_answer_with_drafts(
    path: Path, others: dict[str, Path], always: None, repeatable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_model, "LEAST_PROBABILITY", 0.0)
    with edgellm.load(path, context=96) as model:
        plain, drafted = (
            model.generate(PROMPT, draft=draft, seed=9, temperature=1.5, max_tokens=40) for draft in (None, others["same"])
        )
        free = model.generate(PROMPT, draft=others["same"], temperature=1.5, max_tokens=60, ignore_eos=True)
    assert plain.token_ids == drafted.token_ids
    assert free.stats.accepted_tokens > 0.9 * free.stats.drafted_tokens > 0, "its own distribution: every guess is right"


def test_guesses_are_what_the_answer_may_have(
    tmp_path: Path, always: None, repeatable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Biases and banned tokens hold for guesses too, also where the model that guesses has fewer tokens."""
    monkeypatch.setattr(small_model, "LEAST_PROBABILITY", 0.0)
    fewer = tiny_model(tmp_path / "fewer.gguf", "llama", "F16", tokenizer="bpe", n_layers=1, context=512)
    more = tiny_model(tmp_path / "more.gguf", "llama", "F16", tokenizer="bpe", n_layers=1, context=512, controls=["<one more>"])
    with edgellm.load(more) as model:
        never = range(3, model.n_vocab - 1, 2)
        answers = {
            draft: model.generate(
                PROMPT,
                draft=draft,
                temperature=1.5,
                max_tokens=200,
                ignore_eos=True,
                logit_bias={**dict.fromkeys(never, -100.0), model.n_vocab - 1: 2.0},
            )
            for draft in (fewer, more)
        }
    for answer in answers.values():
        assert answer.stats.drafted_tokens > 20 and not {*never} & {*answer.token_ids}
    assert answers[more].stats.accepted_tokens > 0.9 * answers[more].stats.drafted_tokens


def test_a_recurrent_model_takes_back_what_a_small_one_guessed(
    tmp_path: Path, others: dict[str, Path], always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_model, "LEAST_PROBABILITY", 0.0)
    with edgellm.load(tiny_model(tmp_path / "m.gguf", "lfm2", "F32", tokenizer="spm")) as model:
        answers = [model.generate(PROMPT, draft=draft, max_tokens=60, temperature=0) for draft in (None, others["other"])]
    assert answers[0].token_ids == answers[1].token_ids and answers[1].stats.drafted_tokens > answers[1].stats.accepted_tokens


def test_a_small_model_reads_a_long_prompt_beside_the_answer(path: Path, others: dict[str, Path], always: None) -> None:
    prompt = [1, *range(3, 3 + 3 * CATCH_UP)]
    with edgellm.load(path, context=512) as model:
        plain = model.generate(prompt, max_tokens=30, temperature=0)
        assert model.generate(prompt, max_tokens=30, temperature=0, draft=others["same"]).token_ids == plain.token_ids
        small, _ = model._maker.drafts.load(str(others["same"]))
        assert not small.engine.closed
    assert small.engine.closed


def test_a_small_model_does_not_guess_past_its_learned_positions(
    tmp_path: Path, always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_model, "LEAST_PROBABILITY", 0.0)
    read: list[int] = []
    compute = Conversation.compute

    def watched(self: Conversation, *args: Any) -> Any:
        logits = compute(self, *args)
        read.append(len(self))
        return logits

    monkeypatch.setattr(Conversation, "compute", watched)
    small = tiny_model(tmp_path / "small.gguf", "gpt2", "F32", context=64)
    with edgellm.load(tiny_model(tmp_path / "m.gguf", "llama", "F32", context=64)) as model:
        plain, drafted = (model.generate([1, 2, 3], draft=draft, max_tokens=70, temperature=0) for draft in (None, small))
    assert max(read) == 64 and drafted.token_ids == plain.token_ids


def test_other_drafts_are_refused(path: Path, others: dict[str, Path], tmp_path: Path) -> None:
    with edgellm.load(path) as model:
        with pytest.raises(OptionError, match="draft=3 is not possible"):
            model.generate([1], draft=3)  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(OptionError, match=r"draft=.*stranger.*another vocabulary"):
            model.generate([1], draft=others["stranger"])
        with pytest.raises(ModelNotFound):
            model.generate([1], draft="no/such/model.gguf")
        short = tiny_model(tmp_path / "short.gguf", "gpt2", "F32", context=16)
        with pytest.raises(OptionError, match=r"draft=.*cannot be loaded beside this model \(context=\d+ is not"):
            model.generate([1], draft=short)
