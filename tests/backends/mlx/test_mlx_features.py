"""Features of the API on MLX give the CPU's tokens, with weights, keys and values in f32.

Images, audio, adapters, drafts, rerankers and embeddings have tests of their own, for both back ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_model

import edgellm

pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")

PROMPT = "ab cd"
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
DRAWN: dict[str, Any] = {
    "temperature": 0.8,
    "top_k": 20,
    "top_p": 0.9,
    "min_p": 0.02,
    "seed": 7,
    "max_tokens": 24,
    "ignore_eos": True,
}
FIELDS = {"type": "object", "properties": {"a": {"enum": ["x", "yy"]}}, "required": ["a"], "additionalProperties": False}


def forked(model: edgellm.Model, folder: Path) -> object:
    with model.session() as talk:
        first = talk.generate(PROMPT, **DRAWN)
        with talk.fork() as other:
            return [first.token_ids, *(each.generate([*first.token_ids, 5], **DRAWN).token_ids for each in (talk, other))]


def several(model: edgellm.Model, folder: Path) -> object:
    streams = [model.stream(prompt, **DRAWN) for prompt in (PROMPT, "cd", "e")]
    pieces = list(zip(*streams, strict=False))  # a piece of each in turn
    assert len(pieces) > 10
    return pieces


def saved(model: edgellm.Model, folder: Path) -> object:
    with model.session() as talk:
        first = talk.generate(PROMPT, **GREEDY)
        talk.save(folder / "talk")
    with model.resume(folder / "talk") as talk:
        return talk.generate([*model.tokenizer.encode(PROMPT), *first.token_ids], **GREEDY).token_ids


FEATURES: dict[str, Callable[[edgellm.Model, Path], object]] = {
    "greedy": lambda model, _: model.generate(PROMPT, **GREEDY).token_ids,
    "past the context": lambda model, _: model.generate(PROMPT, **GREEDY | {"max_tokens": 150}).token_ids,
    "seeded draws": lambda model, _: model.generate(PROMPT, **DRAWN).token_ids,
    "penalties": lambda model, _: model.generate(PROMPT, **GREEDY, repeat_penalty=1.3, presence_penalty=0.5).token_ids,
    "biases": lambda model, _: model.generate(PROMPT, **GREEDY, logit_bias={40: 3.0, 41: -5.0}).token_ids,
    "mirostat": lambda model, _: model.generate(PROMPT, mirostat=2, seed=3, max_tokens=24, ignore_eos=True).token_ids,
    "processors": lambda model, _: model.generate(PROMPT, **GREEDY, processors=[lambda ids, logits: -logits]).token_ids,
    "logprobs": lambda model, _: [each.token_id for each in model.generate(PROMPT, **GREEDY, logprobs=2).logprobs or ()],
    "bans": lambda model, _: model.generate(PROMPT, **DRAWN, ban=["a", "b"]).text,
    "a schema": lambda model, _: model.generate(PROMPT, schema=FIELDS, seed=2, max_tokens=40).text,
    "drafts": lambda model, _: model.generate(PROMPT, **GREEDY, draft="ngram").token_ids,
    "infilling": lambda model, _: model.infill("ab", "cd", **GREEDY).token_ids,
    "several": several,
    "forks": forked,
    "saved sessions": saved,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[edgellm.Model]]:
    keys = {f"tokenizer.ggml.fim_{name}_token_id": k for k, name in ((4, "pre"), (5, "suf"), (6, "mid"), (7, "sep"))}
    path = tiny_model(tmp_path_factory.mktemp("features") / "m.gguf", "llama", "F32", tokenizer="bpe", metadata=keys)
    opened = [edgellm.load(path, backend=name, context=128, kv_type="f32", parallel=3) for name in ("cpu", "mlx")]
    yield opened
    for model in opened:
        model.close()


@pytest.mark.parametrize("name", FEATURES)
def test_features_are_those_of_the_cpu(models: list[edgellm.Model], tmp_path: Path, name: str) -> None:
    wanted, found = (FEATURES[name](model, tmp_path) for model in models)
    assert wanted and found == wanted
