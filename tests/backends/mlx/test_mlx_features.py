"""Features of the API on MLX give the CPU's tokens, with weights, keys and values in f32.

Images, audio, adapters, drafts, rerankers and embeddings have tests of their own, for both back ends.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import tiny_model

import edgellm
from edgellm.engine.core import Core
from edgellm.options.sampling import SamplingOptions
from edgellm.sampling import Sampler

mx = pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")

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


CHOICES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "biases": {"temperature": 0, "logit_bias": {40: 3.0, 41: -5.0}, "ignore_eos": True},
    "usual draws": {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "ignore_eos": True},
    "the whole vocabulary": {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "top-p alone": {"temperature": 1.5, "top_k": 0, "top_p": 0.9, "min_p": 0.0},
    "top-k of more than there are": {"temperature": 1.5, "top_k": 10**6, "top_p": 1.0, "min_p": 0.05},
}


@pytest.mark.parametrize("name", CHOICES)
def test_device_chooses_as_the_sampler_does(name: str) -> None:
    from edgellm.backends.mlx.choosing import chosen

    sampler = Sampler(SamplingOptions(seed=3, **CHOICES[name]), n_vocab=500, context=64, end_tokens=[7], suppressed=[9])
    agreed = 0
    for logits in np.random.default_rng(1).standard_normal((50, 500), np.float32) * 3:
        logits[[7, 9, 40]] = logits.max() + np.float32([0, 2, -2])
        choice = sampler.choice()
        assert choice is not None
        agreed += chosen(mx.array(logits), choice).item() == sampler.sample(logits, array("i", [1]))
    assert agreed >= 49


OTHERS: tuple[dict[str, Any], ...] = ({"repeat_penalty": 1.1}, {"mirostat": 2}, {"typical_p": 0.9}, {"min_keep": 3})


@pytest.mark.parametrize("options", OTHERS)
def test_other_chains_are_the_samplers_alone(options: dict[str, Any]) -> None:
    assert Sampler(SamplingOptions(**options), n_vocab=500, context=64).choice() is None


@pytest.fixture
def tied(mlx_products: None, tmp_path: Path) -> Iterator[edgellm.Model]:
    """A model whose token embeddings are its output matrix, in a type whose scales are rounded on the device; steps as on a GPU."""
    path = tiny_model(tmp_path / "m.gguf", "gemma2", "Q4_K", tokenizer="bpe")
    with edgellm.load(path, backend="mlx", context=32, parallel=2) as model:
        yield model


def test_steps_are_begun_before_their_token_is_known(tied: edgellm.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also past the context; guesses that turn out wrong leave no trace."""
    from edgellm.backends.mlx import executable

    guesses, keep = list[bool](), Core._keep_following

    def noted(self: Core, following: Any, request: Any) -> None:
        keep(self, following, request)
        guesses.append(self.ahead is not None)

    monkeypatch.setattr(Core, "_keep_following", noted)
    options = DRAWN | {"max_tokens": 36}
    found = tied.generate(PROMPT, **options).token_ids
    assert len(guesses) == 34 and sum(guesses) >= 33  # not for the first token, nor after the last
    monkeypatch.setattr(executable, "chosen", lambda logits, choice: mx.array([5], mx.int32))
    assert tied.generate(PROMPT, **options).token_ids == found
    assert sum(guesses[34:]) < 5
    monkeypatch.setattr(executable.MlxExecutable, "follow", lambda *_: None)
    assert tied.generate(PROMPT, **options).token_ids == found


@pytest.mark.usefixtures("mlx_products")
@pytest.mark.parametrize("arch", ["lfm2", "qwen35", "mamba", "rwkv7", "falcon-h1"])
def test_wrong_guesses_leave_recurrent_states_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: str) -> None:
    """Every second guess is wrong; conversations go on as without guesses, past the context too."""
    from edgellm.backends.mlx import executable, groups

    monkeypatch.setattr(groups, "SMALL_TABLE", 0)  # tiny models have large tables
    right, follow, guesses = executable.chosen, executable.MlxExecutable.follow, list[bool]()

    def every_second(logits: Any, choice: Any) -> Any:
        guesses.append(len(guesses) % 2 == 0)
        return right(logits, choice) if guesses[-1] else mx.array([5], mx.int32)

    def answers(model: edgellm.Model) -> list[tuple[int, ...]]:
        with model.session() as session:
            return [session.generate(text, **DRAWN | {"max_tokens": n}).token_ids for text, n in ((PROMPT, 36), (" e", 6))]

    path = tiny_model(tmp_path / "m.gguf", arch, "Q8_0", tokenizer="bpe")
    with edgellm.load(path, backend="mlx", context=32) as model:
        monkeypatch.setattr(executable.MlxExecutable, "follow", lambda *_: None)
        wanted = answers(model)
        monkeypatch.setattr(executable.MlxExecutable, "follow", follow)
        monkeypatch.setattr(executable, "chosen", every_second)
        assert answers(model) == wanted and len(guesses) > 30


def test_a_second_reader_gets_its_turn(tied: edgellm.Model) -> None:
    """A chain of steps that the device goes on with is left where another conversation waits."""
    alone = [tied.generate(prompt, **GREEDY).token_ids for prompt in (PROMPT, "cd")]
    first = tied.stream(PROMPT, **GREEDY)
    pieces = [next(first).token_id for _ in range(5)]
    assert tied.generate("cd", **GREEDY).token_ids == alone[1]
    assert (*pieces, *(piece.token_id for piece in first)) == alone[0]
