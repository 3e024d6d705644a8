"""Several answers to one prompt: `n` of `generate`, `chat` and their asynchronous twins."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_backend import toys
from tiny_models import tiny_model
from waiting import until

import edgellm
from edgellm.errors import OptionError

TEMPLATE = "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
MESSAGES = [{"role": "user", "content": "Name a river. " * 8}]
PROMPT = list(range(5, 105))
DRAWN: dict[str, Any] = {"seed": 7, "temperature": 1.5, "ignore_eos": True, "max_tokens": 40}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    return tiny_model(folder / "m.gguf", "llama", tokenizer="bpe", template=TEMPLATE, n_layers=1, context=256)


def asked(model: edgellm.Model, call: str, **options: Any) -> list[edgellm.Generation]:
    """The answers of one of the four calls."""
    prompt: Any = MESSAGES if "chat" in call else PROMPT
    found = getattr(model, call)(prompt, **options)
    return asyncio.run(found) if call.startswith("a") else found


@pytest.mark.parametrize("parallel", [1, 2, 4])
@pytest.mark.parametrize("call", ["generate", "chat", "agenerate", "achat"])
def test_the_prompt_is_computed_once_and_steps_are_shared(path: Path, call: str, parallel: int) -> None:
    loader = toys()
    with loader.load(path, parallel=parallel) as model:
        loader.toy.fail = partial(time.sleep, 0.001)  # a step takes longer than beginning an answer
        answers = asked(model, call, n=4, **DRAWN)
        log = list(loader.toy.log)
        assert [answer.seed for answer in answers] == [7, 11, 15, 19] and len({answer.token_ids for answer in answers}) == 4
        prompt, *others = (answer.stats for answer in answers)
        assert prompt.cached_tokens == 0 and all(each.cached_tokens == each.prompt_tokens - 1 for each in others)
        assert sum(log) <= prompt.prompt_tokens + 4 * 40 + 4, "rows: the prompt once"
        assert parallel == 1 or sum(rows <= parallel for rows in log) <= 4 * 40 * 3 // 4, "several rows a step"
        model.generate([3], max_tokens=1)
        for answer in answers:
            assert asked(model, call, n=1, **{**DRAWN, "seed": answer.seed})[0].token_ids == answer.token_ids
        assert model.load_stats() == (0, 0, parallel)


def test_another_answer_of_a_form_has_a_seed_that_no_choice_has(path: Path) -> None:
    """Answers under a schema that is checked afterwards are tried again, with the seeds in between."""
    schema = {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "uniqueItems": True}
    with toys().load(path, parallel=3) as model:
        answers = model.generate("a", n=3, schema=schema, strict=False, seed=2, temperature=2, max_tokens=30)
        assert [(answer.seed - 2) // 4 for answer in answers] == [0, 1, 2]


def test_what_cannot_be_several_is_said(path: Path) -> None:
    with toys().load(path, parallel=2) as model, model.session() as session:
        for wrong in (0, -1, 1.5, "three", True):
            with pytest.raises(OptionError, match="number of answers, 1 or greater"):
                model.generate("a", n=wrong)  # type: ignore[call-overload]  # what is tested
        for call in (model.chat, lambda *args, **options: asyncio.run(model.achat(*args, **options))):
            with pytest.raises(OptionError, match="n and stream=True exclude each other"):
                call(MESSAGES, n=2, stream=True)
            with pytest.raises(OptionError, match="n and run_tools=True exclude each other"):
                call(MESSAGES, n=2, run_tools=True)
        with pytest.raises(OptionError, match="a session continues one conversation; call the model itself"):
            session.generate("a", n=2)
        with pytest.raises(OptionError, match="n is not an option of a stream, which is one answer"):
            model.stream("a", n=2)  # type: ignore[call-arg]  # what is tested
        assert len(session.generate("a", n=1, max_tokens=1)) == 1
        with pytest.raises(OptionError, match="top_k"):
            model.generate("a", n=2, top_k="many")  # type: ignore[call-overload]  # what is tested


def test_an_error_and_a_cancelled_task_end_all_of_them(path: Path) -> None:
    endless: dict[str, Any] = {"max_tokens": "unlimited", "ignore_eos": True}

    def fails(ids: Any, logits: Any) -> Any:
        if len(ids) > len(PROMPT) + 5:
            raise ArithmeticError("a processor failed")
        return logits

    with toys().load(path, parallel=3) as model:
        for call in ("generate", "agenerate"):
            with pytest.raises(ArithmeticError):
                asked(model, call, n=3, processors=[fails], **endless)
            until(lambda: model.load_stats() == (0, 0, 3))

        async def given_up() -> None:
            task = asyncio.create_task(model.agenerate(PROMPT, n=5, **endless))
            while model.load_stats().running < 3:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(given_up())
        until(lambda: model.load_stats() == (0, 0, 3))
        assert len(model.generate("a", n=2, max_tokens=2, ignore_eos=True)) == 2
