"""Answers about images are the same bits in pieces, cached, forked, resumed, beside others and with drafts."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_projectors import KINDS, picture, seeing

import edgellm

ANSWER: dict[str, Any] = {"max_tokens": 5, "temperature": 0, "logprobs": 2}
QUICK = ("idefics3", "gemma3", "mlp")  # tiles, rows that see each other both ways, a class token
KV_TYPES = ("f16", "f32", "q8_0", "q4_0")
CASES = [  # these kinds with all, the others with one, in turn: the cache has rows of every kind alike
    pytest.param(kind, kv_type, marks=() if kind in QUICK and kv_type == "f16" else pytest.mark.slow)
    for number, kind in enumerate(sorted(KINDS))
    for place, kv_type in enumerate(KV_TYPES)
    if kind in QUICK or number % len(KV_TYPES) == place
]


def prompt_of(seed: int) -> list[Any]:
    return ["see ", edgellm.Image(picture(64, 64, seed)), " and ", edgellm.Image(picture(48, 80, seed + 1)), " now"]


def bits(answer: Any) -> tuple[Any, ...]:
    return answer.token_ids, repr(answer.logprobs)


@pytest.mark.parametrize(("kind", "kv_type"), CASES)
def test_the_cpu_answers_with_the_same_bits(tmp_path: Path, kind: str, kv_type: str) -> None:
    options: dict[str, Any] = {"kv_type": kv_type, "context": 1024, "backend": "cpu"}
    with seeing(tmp_path, kind, **options) as model:
        wanted = model.logits(prompt_of(1))
        with model.engine.alone() as executable:
            executable.step_size.tokens = executable.step_size._most = 16
        assert np.array_equal(model.logits(prompt_of(1)), wanted)
    _answers_are_alike(tmp_path, kind, options)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="mlx is not installed here; pip install mlx[cpu]")
@pytest.mark.parametrize("kind", sorted({*QUICK, *sorted(KINDS)[::3]}))  # rows of all: test_mlx_images.py
@pytest.mark.usefixtures("mlx_products")
def test_mlx_answers_with_the_same_bits(tmp_path: Path, kind: str) -> None:
    _answers_are_alike(tmp_path, kind, {"kv_type": "f16", "context": 1024, "backend": "mlx"})


def _answers_are_alike(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    with seeing(tmp_path, kind, **options) as model:
        wanted = [bits(model.generate(prompt_of(seed), **ANSWER)) for seed in (1, 3)]
        assert wanted[0] != wanted[1]
        assert model.generate(prompt_of(1), **ANSWER, draft="ngram").token_ids == wanted[0][0]
        session = model.session()
        first = session.generate(prompt_of(1), **ANSWER)
        assert bits(first) == wanted[0]
        session.save(tmp_path / "talk")
        more = [*prompt_of(1), *first.token_ids, " or ", edgellm.Image(picture(64, 64, 5)), " then"]
        forked, own = session.fork().generate(more, **ANSWER), session.generate(more, **ANSWER)
        resumed = model.resume(tmp_path / "talk").generate(more, **ANSWER)
        assert bits(forked) == bits(own) == bits(resumed) == bits(model.generate(more, **ANSWER))
        assert forked.stats.cached_tokens > 0 and resumed.stats.cached_tokens > 0
    with seeing(tmp_path, kind, **options, parallel=2) as model:
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda seed: bits(model.generate(prompt_of(seed), **ANSWER)), (1, 3)))
        assert found == wanted
    with seeing(tmp_path, kind, **options) as model:
        again = [model.generate(prompt_of(1), **ANSWER) for _ in range(2)]
        assert [bits(answer) for answer in again] == wanted[:1] * 2 and again[1].stats.cached_tokens > 0
