"""Requests of a program: how many run and wait, the bound on those that wait, and answers whose beginning is given."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fake_backend import toys
from tiny_models import tiny_model
from waiting import until

import edgellm
from edgellm.errors import OptionError, QueueFull

GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
TEMPLATE = "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("requests")
    return tiny_model(folder / "m.gguf", "llama", tokenizer="bpe", template=TEMPLATE, n_layers=1, context=256)


def test_the_queue_is_bounded_and_counted(path: Path) -> None:
    with toys().load(path, queue=1) as model:
        assert model.load_stats() == (0, 0, 1)
        first = model.stream([5], max_tokens=50, **GREEDY)
        next(first)
        second = ThreadPoolExecutor(1).submit(model.generate, [6], max_tokens=2, **GREEDY)
        until(lambda: model.load_stats().waiting == 1)
        assert model.load_stats() == (1, 1, 1)
        with pytest.raises(QueueFull, match=r"1 requests wait already, as many as queue=1 allows"):
            model.generate([7], max_tokens=2)
        first.close()
        assert [len(second.result(60).token_ids), len(model.generate([7], max_tokens=2, **GREEDY).token_ids)] == [2, 2]
        assert model.load_stats() == (0, 0, 1)
    for wrong in (-1, 1.5, "many"):
        with pytest.raises(OptionError, match="queue"):
            edgellm.load(path, queue=wrong)  # type: ignore[arg-type]  # what is tested


def test_an_answer_continues_what_the_assistant_began(path: Path) -> None:
    ask = [{"role": "user", "content": "Name a river."}, {"role": "assistant", "content": "The Rh"}]
    with toys().load(path) as model:
        answer = model.chat(ask, continue_final_message=True, max_tokens=3, **GREEDY)
        begun = model.detokenize(model.chat_prompt(ask[:1])) + "The Rh"
        assert len(answer.token_ids) == 3 and answer.stats.prompt_tokens <= len(begun)
        other = model.chat(ask, max_tokens=3, **GREEDY)
        assert other.stats.prompt_tokens > answer.stats.prompt_tokens, "no end of turn, and no beginning of another"
        assert model.apply_template(ask[:1]) == "<u>Name a river.</s><a>"
        assert model.detokenize(model.tokenize("Name a river.")).endswith("Name a river.")
