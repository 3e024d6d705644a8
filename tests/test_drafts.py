"""Drafts by prompt lookup change the speed of an answer and nothing else."""
from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pytest
from fake_backend import toys
from tiny_models import tiny_model

import edgellm
from edgellm.engine.speculate.ngram import FIRST_PAUSE, MOST, NgramDrafter
from edgellm.errors import OptionError

PROMPT = [1, *[5, 6, 7, 8, 9, 10, 11] * 6]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("drafts") / "m.gguf", "llama", "F16", tokenizer="spm", n_layers=1, context=512)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts go on also where they do not pay, as on models that take microseconds for a token."""
    note = NgramDrafter.note
    monkeypatch.setattr(NgramDrafter, "note", lambda self, drafted, produced, seconds: note(
        self, drafted, produced, float(not drafted)))


def biased(ids: Any, logits: Any) -> Any:
    """Makes the token that followed the newest one before likely: answers repeat themselves, with exceptions."""
    if len(ids) % 9 == 0:
        return logits
    found = [k for k in range(len(ids) - 1) if ids[k] == ids[-1]]
    if found:
        logits[ids[found[-1] + 1]] += 14
    return logits


OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0.0}, {"temperature": 1.0, "seed": 3}, {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 4},
    {"temperature": 1.0, "seed": 5, "repeat_penalty": 1.3, "mirostat": 2}, {"temperature": 0.0, "logprobs": 2, "max_tokens": 37},
    {"seed": 6, "regex": "([a-c]{2,4} ){8,20}"}, {"seed": 7, "ignore_eos": True, "max_tokens": 300}]


@pytest.mark.parametrize("backend", ["toy", "cpu"])
@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
def test_the_answer_is_the_same(path: Path, always: None, backend: str, options: dict[str, Any]) -> None:
    """The context is small, so that answers go round the ring."""
    load = toys().load if backend == "toy" else edgellm.load
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


def test_a_conversation_goes_on_after_drafts(path: Path, always: None) -> None:
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


def test_other_drafts_are_refused(path: Path) -> None:
    with edgellm.load(path) as model, pytest.raises(OptionError, match="draft"):
        model.generate([1], draft="model")  # type: ignore[arg-type]  # wrong on purpose
