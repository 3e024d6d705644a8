"""A full context: tokens slide, turns are dropped, or it is an error; the answer always reports it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_backend import Loader, references, toys
from tiny_models import tiny_model

import edgellm
from edgellm.errors import ContextFull, OptionError
from edgellm.options.generation import CONTEXT_POLICY

GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
TEMPLATE = "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}{% endfor %}{% if m is defined %}{{ m.pinned }}{% endif %}"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    return tiny_model(folder / "m.gguf", "llama", tokenizer="bpe", template=TEMPLATE, n_layers=1, context=256)


@pytest.fixture(scope="module")
def model(path: Path) -> edgellm.Model:
    return toys().load(path, context=128)


def talk(turns: int, *, words: str = "one two three", system: str = "Be brief.") -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
    for k in range(turns):
        messages += [{"role": "user", "content": f"{k} {words}"}, {"role": "assistant", "content": f"{words} {k}"}]
    return [*messages, {"role": "user", "content": "the last"}]


def test_a_short_chat_is_the_same_under_all_policies(model: edgellm.Model) -> None:
    answers = [model.chat(talk(1), max_tokens=6, context_policy=policy, **GREEDY) for policy in CONTEXT_POLICY.values]
    assert len({answer.token_ids for answer in answers}) == 1
    assert all(answer.stats.forgotten_messages == () and answer.stats.evicted_tokens == 0 for answer in answers)
    stats = answers[0].stats
    assert stats.computed_tokens == stats.prompt_tokens - stats.cached_tokens + 6


def test_the_ring_says_which_messages_fell_out(model: edgellm.Model) -> None:
    messages = talk(12)
    ends = [model.chat(messages[: k + 1], max_tokens=0).stats.prompt_tokens for k in range(len(messages))]
    answer = model.chat(messages, max_tokens=9, **GREEDY)
    seen_from = answer.stats.prompt_tokens + 9 - (128 - 4)
    assert answer.stats.evicted_tokens == seen_from - 4 > 40 and answer.stop_reason == "length"
    out = answer.stats.forgotten_messages
    assert out == tuple(range(len(out))) and ends[len(out) - 1] <= seen_from + 1 and ends[len(out)] >= seen_from - 1


def test_turns_go_oldest_first_and_seldom(model: edgellm.Model) -> None:
    losses = []
    for turns in range(1, 25):
        messages = talk(turns, words="ab")
        answer = model.chat(messages, max_tokens=4, context_policy="drop-oldest-turns", **GREEDY)
        out = answer.stats.forgotten_messages
        assert answer.stats.evicted_tokens == 0 and answer.stats.prompt_tokens <= 128 - 4
        assert out == tuple(range(1, 1 + len(out))) and len(out) % 2 == 0, "whole turns, and never the system message"
        losses.append(len(out))
    assert losses[0] == 0 < losses[-1] and losses == sorted(losses)
    assert len(set(losses)) <= 12, "what is left is read anew only now and then"


@pytest.mark.parametrize("policy", ["ring", "drop-oldest-turns"])
def test_pinned_messages_stay(model: edgellm.Model, policy: Any) -> None:
    messages = talk(14)
    messages[3] = {**messages[3], "pinned": True}
    answer = model.chat(messages, max_tokens=4, context_policy=policy, **GREEDY)
    assert answer.stats.evicted_tokens == 0
    assert 3 not in answer.stats.forgotten_messages and {1, 2, 4, 5} <= set(answer.stats.forgotten_messages)


def test_what_cannot_be_left_out_is_an_error(model: edgellm.Model) -> None:
    with pytest.raises(ContextFull, match="message is too long"):
        model.chat(talk(2, system="many words " * 90), context_policy="drop-oldest-turns")
    messages = talk(2)
    messages[0] = {"role": "system", "content": "many words " * 90, "pinned": True}
    assert model.chat(messages, max_tokens=2, **GREEDY).stats.evicted_tokens > 0, "the ring goes on"


def test_error_raises_and_ends_answers(model: edgellm.Model) -> None:
    with pytest.raises(ContextFull, match="context_policy"):
        model.chat(talk(20), context_policy="error")
    with pytest.raises(ContextFull, match="context_policy"):
        model.generate([5] * 200, context_policy="drop-oldest-turns")
    trained = model.info.context_train  # no larger context is advised than the model was trained for
    for policy in ("error", "drop-oldest-turns"):
        with pytest.raises(ContextFull, match=rf"larger context, such as context={trained}\.$"):
            model.generate([5] * (trained - 1), context_policy=policy, **GREEDY)
        with pytest.raises(ContextFull, match=rf"; the model was trained for {trained} tokens\.$"):
            model.generate([5] * trained, context_policy=policy, **GREEDY)
    answer = model.generate([5] * 100, context_policy="error", max_tokens="unlimited", **GREEDY)
    assert answer.stop_reason == "context" and answer.stats.evicted_tokens == 0
    assert 100 + len(answer.token_ids) == 129, "the last token needs no place"


def test_the_policy_of_a_model_and_of_a_session(path: Path) -> None:
    with toys().load(path, context=128, context_policy="error") as model:
        with pytest.raises(ContextFull):
            model.generate([5] * 200)
        with model.session(context_policy="ring") as session, session.fork() as other:
            assert other.generate([5] * 200, max_tokens=3, **GREEDY).stats.evicted_tokens == 75
        with model.session() as session, pytest.raises(ContextFull):
            session.generate([5] * 200)
        with pytest.raises(OptionError, match="context_policy='x' is not possible; give ring, drop"):
            model.session(context_policy="x")  # type: ignore[arg-type]  # what is tested
        with pytest.raises(OptionError, match="give ring"):
            model.generate([5], context_policy=5)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(OptionError, match="context_policy"):
        edgellm.load(path, context_policy="no")  # type: ignore[arg-type]  # what is tested


def test_turns_left_out_change_nothing_else(path: Path) -> None:
    """The answer is that to the messages which are left, on the reference back end."""
    loader: Loader = references()
    with loader.load(path, context=64) as model:
        messages = talk(9, words="ab")
        answer = model.chat(messages, max_tokens=5, context_policy="drop-oldest-turns", **GREEDY)
        left = [message for k, message in enumerate(messages) if k not in answer.stats.forgotten_messages]
        assert len(left) < len(messages)
        assert model.chat(left, max_tokens=5, **GREEDY).token_ids == answer.token_ids


def test_the_pinned_system_prompt_is_never_evicted(path: Path, tmp_path: Path) -> None:
    """As if it were the sinks: the same tokens, also after the session was saved, and while an answer goes on for long."""
    messages = talk(12)
    system = "<s>" + messages[0]["content"]
    with edgellm.load(path, context=128, pinned=40, backend="cpu") as model:
        kept = len(model.tokenizer.encode(system))
        with model.session() as session:
            answer = session.chat(messages, max_tokens=150, **GREEDY)
            session.save(tmp_path / "s")
        assert answer.stats.evicted_tokens > 200 and answer.stats.forgotten_messages == tuple(range(1, len(messages)))
        ids = [*model.tokenizer.encode("".join(f"<{m['role'][0]}>{m['content']}" for m in messages))]
        again = [*messages, {"role": "assistant", "content": answer.text}, {"role": "user", "content": "and?"}]
        with model.resume(tmp_path / "s") as session:
            assert session.chat(messages, max_tokens=5, **GREEDY).token_ids == answer.token_ids[:5]
            assert session.chat(again, max_tokens=5, **GREEDY).stats.forgotten_messages[0] == 1
        other = model.chat([{"role": "system", "content": "Another, longer one."}, *messages[1:]], max_tokens=3, **GREEDY)
        assert other.stats.forgotten_messages[0] == 1
        with pytest.raises(ContextFull, match="pinned=40"):
            model.chat([{"role": "system", "content": "x " * 60}, *messages[1:]], max_tokens=3)
        plain = model.generate(ids, max_tokens=150, **GREEDY)
    with edgellm.load(path, context=128, sinks=kept, backend="cpu") as model:
        assert model.generate(ids, max_tokens=150, **GREEDY).token_ids == answer.token_ids != plain.token_ids
    with pytest.raises(OptionError, match="pinned"):
        edgellm.load(path, pinned=-1)
