"""Banned texts: taken back to the token that they begin with, streamed or not, and never shown; log probabilities of prompts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tiny_models import tiny_model

import edgellm
from edgellm.engine.core import Core
from edgellm.engine.step import Step
from edgellm.errors import OptionError
from edgellm.sampling.bans import Bans

PIECES = {1: b" foo", 2: b"bar", 3: b" b", 4: b"az ", 5: b"f", 6: b"oo", 7: b""}
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 60, "ignore_eos": True}


def bans(*texts: str) -> Bans:
    return Bans(texts, PIECES.__getitem__)


def test_the_token_that_a_banned_text_begins_with_is_barred() -> None:
    found = bans("oobar")
    assert [found.push(token) for token in (3, 5)] == [0, 0] and found.pending == 0
    assert found.push(6) == 0 and found.pending == 1
    assert found.push(2) == 2 and found.barred == {6} and found.pending == 0
    assert found.push(4) == 0 and not found.barred
    other = bans("foobar", "o")
    assert other.push(5) == 0 and other.pending == 1  # "f" of "foobar"
    assert other.push(6) == 1 and other.barred == {6}
    assert other.push(7) == 0 and other.push(2) == 0


def test_what_is_barred_behind_a_place_is_forgotten_with_it() -> None:
    found = bans("fooaz", "foofoo")
    found.push(5)
    assert found.push(6) == 0 and found.push(4) == 3 and found.barred == {5}


@pytest.fixture(scope="module", params=["llama", "mamba", "gemma3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[edgellm.Model]:
    path = tiny_model(tmp_path_factory.mktemp("bans") / "m.gguf", request.param, "F32", tokenizer="bpe")
    with edgellm.load(path, context=128) as model:
        yield model


@pytest.mark.parametrize("prompt", ["Once upon", "the world"])
def test_answers_without_the_texts(model: edgellm.Model, prompt: str) -> None:
    plain = model.generate(prompt, **GREEDY)
    texts = [run[:3] for run in re.findall("[ -~]{2,}", plain.text)][:3]
    assert texts
    answer = model.generate(prompt, ban=texts, **GREEDY)
    assert not any(text in answer.text for text in texts)
    assert len(answer.token_ids) == 60 and answer.stop_reason == "length"
    at = min(plain.text.index(text) for text in texts)
    assert answer.text[: max(0, at - 8)] == plain.text[: max(0, at - 8)]  # the same up to the token that the first one begins with
    pieces = list(model.stream(prompt, ban=texts, logprobs=1, **GREEDY))
    assert "".join(pieces) == answer.text and not any(text in "".join(pieces) for text in texts)

    async def streamed() -> str:
        return "".join([piece async for piece in model.astream(prompt, ban=texts, **GREEDY)])

    assert asyncio.run(streamed()) == answer.text
    scored = model.generate(prompt, ban=texts, logprobs=1, **GREEDY)
    assert scored.logprobs is not None and [each.token_id for each in scored.logprobs] == list(scored.token_ids)
    assert model.generate(prompt, **GREEDY).token_ids == plain.token_ids  # nothing is left of what was taken back


def test_an_answer_ends_where_nothing_else_can_follow(model: edgellm.Model) -> None:
    only = next(token for token in range(model.n_vocab) if model.tokenizer.piece(token) == b"a")
    answer = model.generate("Once", ban="aaa", max_tokens=20, temperature=0, processors=[only_a(only)])
    assert answer.text == "" and answer.stop_reason == "stop"


def only_a(token: int) -> Any:
    def processor(ids: Any, logits: Any) -> Any:
        kept = logits[token]
        logits[:] = float("-inf")
        logits[token] = kept
        return logits

    return processor


def test_odd_bans(model: edgellm.Model) -> None:
    for wrong in ("", 3, ["a", None], "a" * 201):
        with pytest.raises(OptionError, match="ban="):
            model.generate("a", ban=wrong)  # type: ignore[arg-type]  # what is tested
    only = model.generate("a", ban="b", choices=["b"])
    assert (only.text, only.stop_reason, only.parsed) == ("", "stop", None)  # nothing else may follow
    assert model.generate("a", ban=[], **GREEDY).text == model.generate("a", **GREEDY).text


def test_log_probabilities_of_the_prompt(model: edgellm.Model) -> None:
    ids = model.tokenize("Once upon a time")
    answer = model.generate(ids, echo=True, logprobs=2, max_tokens=2)
    assert answer.prompt_logprobs == tuple(model.logprobs(ids, 2)) and len(answer.prompt_logprobs) == len(ids) - 1
    assert [each.token_id for each in answer.prompt_logprobs] == ids[1:]
    assert all(len(each.top) == 2 for each in answer.prompt_logprobs)
    assert model.generate(ids, max_tokens=1).prompt_logprobs is None
    assert model.generate(ids[:1], echo=True, max_tokens=1).prompt_logprobs == ()


def test_a_prompt_with_log_probabilities_is_computed_once(model: edgellm.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = model.tokenize("Once upon a time, there was a little girl. " * 40)
    greedy: dict[str, Any] = GREEDY | {"max_tokens": 3}
    wanted, computed, submit = tuple(model.logprobs(ids, 1)), list[int](), Core._submit

    def counted(core: Core, step: Step) -> None:
        computed.append(sum(len(part.tokens) for part in step.parts))
        submit(core, step)

    monkeypatch.setattr(Core, "_submit", counted)
    plain = model.generate(ids, **greedy)
    computed.clear()
    answer = model.generate(ids, echo=True, logprobs=1, **greedy)
    assert sum(computed) in (len(ids) + 2, len(ids) + 3)  # one token may be computed ahead
    assert answer.prompt_logprobs == wanted and answer.token_ids == plain.token_ids
    with model.session() as session:
        assert session.generate(ids, echo=True, **greedy).token_ids == plain.token_ids
        computed.clear()
        session.generate(" and", **greedy)
        assert sum(computed) < 12


def test_bans_beside_a_form(model: edgellm.Model) -> None:
    """The answer goes back in its form as well; it is valid, and without the texts."""
    for seed in range(6):
        assert model.generate("a", ban=["yes", "may"], choices=["yes", "maybe", "no"], seed=seed, temperature=2).text == "no"
        hot: dict[str, Any] = {"seed": seed, "temperature": 1.5, "max_tokens": 60}
        words = model.generate("a", ban=["a", "e", "12"], regex="[a-h]{20}-[1-3]{10}", **hot)
        assert not re.search("[ae]|12", words.text) and re.fullmatch("[b-h]{20}-[1-3]{10}", words.text), words.text
        schema = {"type": "array", "items": {"enum": ["aa", "ab", 11, 12]}, "minItems": 6, "maxItems": 6}
        listed = model.generate("a", ban=["aa", "12"], schema=schema, **hot)
        assert listed.stop_reason == "eog" and set(listed.parsed) <= {"ab", 11} and len(listed.parsed) == 6
        pieces = model.stream("a", ban=["aa", "12"], schema=schema, **hot)
        assert "".join(pieces) == listed.text and pieces.result.token_ids == listed.token_ids


def test_bans_beside_tools(model: edgellm.Model) -> None:
    x = {"enum": ["aa", "ab", 11, 12]}
    parameters = {"type": "object", "properties": {"x": x}, "required": ["x"], "additionalProperties": False}
    ended = 0
    model._loaded.template = edgellm.chat.ChatTemplate("{{ tools }}{{ messages[0].content }}{# <tool_call> #}")
    for seed in range(8):
        answer = model.chat(
            [{"role": "user", "content": "x"}],
            tools=[{"name": "f", "parameters": parameters}],
            tool_choice="f",
            parallel_tool_calls=False,
            ban=["aa", "12"],
            seed=seed,
            temperature=1.5,
            max_tokens=100,
        )
        assert [dict(call.arguments) for call in answer.tool_calls] in ([{"x": "ab"}], [{"x": 11}], [])
        ended += answer.stop_reason == "eog"
    assert ended
