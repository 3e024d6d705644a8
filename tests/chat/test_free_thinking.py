"""Thinking before an answer with a form is free and may be closed by a budget; answers that repeat themselves are ended."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import tiny_model

import edgellm
from edgellm.chat.thinking import _MARKS, HARMONY, Marks
from edgellm.errors import OptionError
from edgellm.sampling.channels import ChannelConstraint, Channels, ChannelTokens
from edgellm.sampling.constraint import TokenConstraint, allowed_ids
from edgellm.sampling.loops import repeats
from edgellm.sampling.pieces import Mask, Pieces

TEMPLATE = """{% for message in messages %}{{ message.content }} {% endfor %}\
{% if enable_thinking is defined and not enable_thinking %}<think></think>{% elif opened %}<think>{% endif %}"""


def thinks(inner: TokenConstraint | None, tokens: ChannelTokens, **options: Any) -> ChannelConstraint:
    return ChannelConstraint(Channels(tokens, inner, **options))


HOT: dict[str, Any] = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "stop_loops": False}
ASK = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module", params=["spm", "bpe"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[edgellm.Model]:
    path = tiny_model(
        tmp_path_factory.mktemp("think") / "m.gguf",
        "llama",
        "F16",
        tokenizer=request.param,
        n_layers=1,
        context=2048,
        template=TEMPLATE,
    )
    with edgellm.load(path, context=2048) as model:
        yield model


@pytest.mark.parametrize("budget", [0, 1, 20])
def test_a_budget_closes_the_thinking(model: edgellm.Model, budget: int) -> None:
    for seed in range(3):
        answer = model.chat(ASK, template_options={"opened": True}, think_budget=budget, seed=seed, max_tokens=100, **HOT)
        close = len(model.tokenizer.encode_continuation("</think>"))
        text = model.tokenizer.decode(answer.token_ids, skip_special=False)
        assert "</think>" in text and len(model.tokenizer.encode(answer.thinking)) <= 4 * (budget + close)
        assert len(answer.token_ids) == 100 or answer.stop_reason == "eog"


def test_thinking_is_free_and_the_answer_has_its_form(model: edgellm.Model) -> None:
    ended = 0
    for seed in range(6):
        answer = model.chat(
            ASK,
            template_options={"opened": True},
            think_budget=30,
            seed=seed,
            max_tokens=300,
            schema={"type": "array", "items": {"type": "integer"}, "maxItems": 3},
            **HOT,
        )
        assert answer.thinking
        if answer.stop_reason == "eog":
            ended += 1
            assert isinstance(json.loads(answer.text), list) and answer.parsed == json.loads(answer.text)
    assert ended


@pytest.mark.parametrize("marks", _MARKS, ids=lambda marks: marks.open or marks.close)
def test_forms_hold_behind_the_thinking_of_every_family(marks: Marks, tmp_path: Path) -> None:
    """Marks of calls among what is thought are no calls where there are no tools."""
    names = [marks.open, marks.close, *marks.others, *marks.calls, *(marks.answer or ())]
    template = (
        "{{ messages[0].content }}{% if enable_thinking %}{% endif %}{# "
        + " ".join(names)
        + " #}"
        + ("" if marks is HARMONY else marks.open)
    )
    controls = tuple(sorted({*names, marks.token, "<|call|>", "<|return|>"} - {"", HARMONY.open, HARMONY.close}))
    path = tiny_model(
        tmp_path / "m.gguf", "llama", "F16", tokenizer="bpe", n_layers=1, context=512, controls=controls, template=template
    )
    ended = 0
    with edgellm.load(path, context=512) as model:
        for budget in (None, 0, 1, 3):
            for seed in range(12):
                answer = model.chat(ASK, choices=["yes", "no"], think_budget=budget, seed=seed, max_tokens=200, **HOT)
                if answer.stop_reason == "eog":
                    assert answer.text in ("yes", "no"), answer.text
                    ended += 1
                assert budget is None or len(model.tokenizer.encode(answer.thinking)) < 60, answer.thinking
    assert ended > 12


def test_without_thinking_the_form_holds_from_the_beginning(model: edgellm.Model) -> None:
    answer = model.chat(ASK, think=False, choices=["yes", "no"], **HOT)
    assert answer.text in ("yes", "no") and not answer.thinking


def test_bad_budgets_are_refused(model: edgellm.Model) -> None:
    with pytest.raises(OptionError, match="think_budget"):
        model.chat(ASK, think_budget=-1)


PIECES = [b"<think>", b"</think>", b"{", b" ", b"\n\n", b"a", b"</", b"think", b">", b">{", b"x</think>y", b""]
END = len(PIECES) - 1


class Brace:
    """Wants one brace."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    @property
    def complete(self) -> bool:
        return self.taken == [2]

    def mask(self) -> Mask:
        return allowed_mask([2] if not self.taken else [END])

    def accept(self, token: int) -> None:
        self.taken.append(token)

    def rollback(self, n: int) -> None:
        del self.taken[len(self.taken) - n :]


def allowed_mask(ids: list[int]) -> Mask:
    mask = np.zeros(1, np.uint32)
    for token in ids:
        mask[0] |= np.uint32(1 << token)
    return mask


def make(inner: Brace | None, *, inside: bool = False, may_open: bool = True, budget: int | None = None) -> ChannelConstraint:
    tokens = ChannelTokens(Pieces(PIECES), opening=0, closing=(1,), close=b"</think>", ends={END})
    return thinks(inner, tokens, inside=inside, may_open=may_open, budget=budget)


def allowed(constraint: ChannelConstraint) -> set[bytes]:
    mask = constraint.mask()
    assert mask is not None
    return {PIECES[i] for i in allowed_ids(mask, len(PIECES))}


def test_the_answer_may_open_its_thinking() -> None:
    inner = Brace()
    constraint = make(inner)
    assert allowed(constraint) == {b"<think>", b"{"} and allowed(make(Brace(), may_open=False)) == {b"{"}
    constraint.accept(0)
    assert allowed(constraint) == set(PIECES) - {b"", b"x</think>y"}  # not the end, not the answer's beginning
    for token in (5, 2, 6, 7):
        constraint.accept(token)
    assert b">{" not in allowed(constraint) and b">" in allowed(constraint)  # "</think" stands there
    constraint.accept(8)
    assert allowed(constraint) == {b"{", b" ", b"\n\n"} and not inner.taken
    constraint.accept(4)
    constraint.accept(2)
    assert constraint.complete and inner.taken == [2]
    constraint.rollback(2)
    assert not constraint.complete and not inner.taken and allowed(constraint) == {b"{", b" ", b"\n\n"}


def test_the_gap_is_bounded() -> None:
    constraint = make(Brace(), inside=True)
    for token in (1, 3, 3, 3, 3):
        constraint.accept(token)
    assert allowed(constraint) == {b"{"}


def test_a_budget_without_a_form() -> None:
    constraint = make(None, budget=2)
    assert constraint.mask() is None
    for token in (0, 5, 5):
        constraint.accept(token)
    assert allowed(constraint) == {b"</think>"}
    constraint.accept(1)
    assert constraint.mask() is None and not constraint.complete


@pytest.mark.parametrize(
    ("span", "times", "found"),
    [
        (1, 600, True),
        (1, 400, False),
        (7, 80, True),
        (30, 10, False),
        (30, 20, True),
        (300, 8, True),
        (300, 5, False),
        (512, 8, True),
        (600, 9, False),
    ],
)
def test_loops_are_long_and_exact(span: int, times: int, found: bool) -> None:
    ids = array("i", [3, 1, 4, 1, 5, *list(range(100, 100 + span)) * times])
    assert repeats(ids, 2) is found
    assert not repeats(ids, len(ids) - 100)  # of the prompt, most of it
    for at in (-10, -500):
        other = ids[:]
        if len(other) > 500:
            other[at] = 9
            assert not repeats(other, 0)


def test_a_chat_that_repeats_itself_ends_with_the_reason(model: edgellm.Model) -> None:
    looping: dict[str, Any] = {"logit_bias": {20: 1000.0}, "temperature": 0, "max_tokens": 600}
    answer = model.chat(ASK, think=False, **looping)
    assert answer.stop_reason == "loop" and len(answer.token_ids) == 512
    assert model.chat(ASK, think=False, stop_loops=False, **looping).stop_reason == "length"
    assert model.generate("hello", **looping).stop_reason == "length"
    assert model.generate("hello", stop_loops=True, **looping).stop_reason == "loop"


def test_a_sentence_closes_thinking_whose_budget_is_used_up(model: edgellm.Model) -> None:
    message = "\n\nTime is up; I answer now."
    for seed in range(3):
        answer = model.chat(
            ASK, template_options={"opened": True}, think_budget=5, think_message=message, seed=seed, max_tokens=100, **HOT
        )
        assert answer.thinking.endswith(message.rstrip()) or answer.thinking.endswith(message)
        assert message.strip() not in answer.text
    with pytest.raises(OptionError, match="think_message needs think_budget"):
        model.chat(ASK, think_message=message)
    with pytest.raises(OptionError, match="think_message=3"):
        model.chat(ASK, think_budget=3, think_message=3)  # type: ignore[call-overload]  # what is tested
