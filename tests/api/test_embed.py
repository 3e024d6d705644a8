"""Embedding models: vectors against the reference, the same bits whoever stands beside a text, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from encoder_variants import POOLED, encoder_file
from isa_levels import FLOAT_LEVELS
from tiny_encoders import ENCODERS
from tiny_models import tiny_model
from variants import GOLD, fingerprint, tokens

import edgellm
from edgellm import Model
from edgellm.api.embed import compute
from edgellm.arch import load_graph
from edgellm.errors import ContextFull, NoTokenizer, NumericError, OptionError, Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.graph import KVSpec
from edgellm.memory.documents import first_slots, place
from edgellm.memory.layout import plan_documents
from edgellm.passes import optimise
from edgellm.reference import Reference
from edgellm.tokenizer.tokenizer import Manners
from edgellm.weights import WeightStore

Vectors = npt.NDArray[np.float32]
LENGTHS = (1, 5, 33, 32, 31, 1, 100, 64, 128, 2, 17, 90)
POOLINGS = {"mean": 1, "cls": 2, "last": 3, "rank": 4}


@pytest.fixture(autouse=True)
def threads_for_small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgellm.loading.load.SMALL_MODEL", 0)


def texts(lengths: tuple[int, ...] = LENGTHS, n_vocab: int = 96) -> list[npt.NDArray[np.int32]]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, n_vocab, n).astype(np.int32) for n in lengths]


def reference(path: Path, ids: npt.NDArray[np.int32]) -> Vectors:
    gguf = open_gguf(path)
    weights = WeightStore(gguf)
    try:
        return Reference(optimise(load_graph(gguf)[1]), weights).output("embedding", ids)[0]
    finally:
        weights.close()


def error(a: Vectors, b: Vectors) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


@contextmanager
def loaded(path: Path, **options: Any) -> Iterator[Model]:
    with edgellm.load(path, **{"backend": "cpu", "threads": 2, **options}) as model:
        yield model


@pytest.mark.parametrize("arch", ENCODERS)
def test_every_encoder_equals_the_reference_beside_any_neighbour(tmp_path: Path, arch: str) -> None:
    path, ids = tiny_model(tmp_path / "m.gguf", arch), texts()
    with loaded(path) as model:
        together = compute(model._loaded, ids)
        alone = np.concatenate([compute(model._loaded, [each]) for each in ids])
        assert np.array_equal(together, alone)
        assert np.array_equal(compute(model._loaded, ids[::-1]), together[::-1])
    for one, vector in list(zip(ids, together, strict=True))[::4]:
        assert error(vector, reference(path, one)) < 1e-5
    with loaded(path, threads=1) as model:
        assert np.array_equal(compute(model._loaded, ids), together)


@pytest.mark.parametrize("isa", FLOAT_LEVELS)
@pytest.mark.parametrize("backend", ["cpu", "mlx"])
def test_biases_by_distance_to_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, isa: str) -> None:
    """T5: texts past the distance from which biases are the same, and a feed-forward without gates, as the first version has it."""
    if backend == "mlx":
        pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    monkeypatch.setenv("EDGELLM_ISA", isa)
    plain: dict[str, Any] = {f"enc.blk.{layer}.ffn_gate.weight": None for layer in range(2)}
    path = tiny_model(tmp_path / "m.gguf", "t5encoder", context=512, tensors=plain)
    with loaded(path, backend=backend, kv_type="f32") as model:
        for ids in texts((300, 7, 137, 40)):
            assert error(compute(model._loaded, [ids])[0], reference(path, ids)) < 1e-5


@pytest.mark.parametrize("name", POOLED)
def test_vectors_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    """1e-5 of the largest value; the reference differs by 2e-6 at most."""
    gold, path = np.load(GOLD / f"encoder-{name}.npz"), encoder_file(tmp_path / "m.gguf", name)
    weights = WeightStore(open_gguf(path))
    assert fingerprint({key: weights[key].array() for key in weights.names()}) == gold["fingerprint"], (
        "NumPy draws other weights than when the gold was made: run tests/data/make_encoder_gold.py again"
    )
    with loaded(path) as model:
        assert error(model.embed(tokens(96), normalize=False)[0], gold["vector"]) < 1e-5


@pytest.mark.parametrize("quant", ["Q8_0", "Q4_K"])
def test_quantised_encoders_do_not_depend_on_neighbours_either(tmp_path: Path, quant: str) -> None:
    path, ids = tiny_model(tmp_path / "m.gguf", "bert", quant), texts()
    with loaded(path) as model:
        together = compute(model._loaded, ids)
        assert np.array_equal(together, np.concatenate([compute(model._loaded, [each]) for each in ids]))
    assert error(together[2], reference(path, ids[2])) < 0.05


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
@pytest.mark.parametrize("arch", ["bert", "qwen3", "gemma3"])
def test_poolings_of_encoders_and_of_models_that_see_only_the_past(tmp_path: Path, arch: str, pooling: str) -> None:
    path = tiny_model(tmp_path / "m.gguf", arch, tied=True, metadata={"{arch}.pooling_type": POOLINGS[pooling]})
    ids = texts((20, 3))
    with loaded(path) as model:
        assert model.info.pooling == pooling and model.info.embedding == 64
        found = compute(model._loaded, ids)
        assert np.array_equal(found[:1], compute(model._loaded, ids[:1]))
    for one, vector in zip(ids, found, strict=True):
        assert error(vector, reference(path, one)) < 1e-5


def test_a_pooled_decoder_gives_the_hidden_row_of_its_last_token(tmp_path: Path) -> None:
    """The logits of the same model are that row times the embedding."""
    ids = texts((20,))[0]
    writes, embeds = (
        tiny_model(tmp_path / f"{kind}.gguf", "llama", tied=True, metadata={"llama.pooling_type": kind}) for kind in (0, 3)
    )
    with loaded(embeds, context=64) as model, loaded(writes, context=64, kv_type="f32") as other:
        table = WeightStore(open_gguf(writes))["token_embd.weight"].array()
        assert error(model.embed(ids, normalize=False)[0] @ table.T, other.logits(ids)[-1]) < 1e-5


def head(n_embd: int = 64, labels: int = 1, *, dense: bool = True) -> dict[str, npt.NDArray[np.float32]]:
    rng = np.random.default_rng(2)
    found = {"cls.output.weight": rng.standard_normal((labels, n_embd)), "cls.output.bias": rng.standard_normal(labels)}
    if dense:
        found |= {"cls.weight": rng.standard_normal((n_embd, n_embd)) / 8, "cls.bias": rng.standard_normal(n_embd)}
    return {name: array.astype(np.float32) for name, array in found.items()}


@pytest.mark.parametrize("arch", ["bert", "modern-bert"])
def test_rerankers_give_scores(tmp_path: Path, arch: str) -> None:
    path = tiny_model(tmp_path / "m.gguf", arch, metadata={"{arch}.pooling_type": 4}, tensors=head())
    ids = texts((20, 3))
    with loaded(path) as model:
        assert model.info.pooling == "rank" and model.info.embedding == 1
        scores = compute(model._loaded, ids)
        assert np.array_equal(model.embed(ids[0]), scores[:1])  # never normalised
    assert error(scores[0], reference(path, ids[0])) < 1e-5


def test_a_reranking_decoder_gives_probabilities(tmp_path: Path) -> None:
    path = tiny_model(
        tmp_path / "m.gguf",
        "qwen3",
        tied=True,
        metadata={"qwen3.pooling_type": 4},
        tensors={"cls.output.weight": head(labels=2)["cls.output.weight"]},
    )
    ids = texts((20, 3))
    with loaded(path) as model:
        scores = compute(model._loaded, ids)
    assert scores.shape == (2, 2) and np.allclose(scores.sum(axis=1), 1) and 0 < scores[0, 0] < 1
    assert error(scores[0], reference(path, ids[0])) < 1e-5


def test_a_reranker_without_a_head_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"cls\.output\.weight"):
        edgellm.load(tiny_model(tmp_path / "m.gguf", "bert", metadata={"bert.pooling_type": 4}))


def test_dense_layers_behind_the_pooling(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    dense = {
        "dense_2.weight": rng.standard_normal((128, 64)).astype(np.float32),
        "dense_3.weight": rng.standard_normal((32, 128)).astype(np.float32),
    }
    plain, more = (tiny_model(tmp_path / f"{len(tensors)}.gguf", "gemma-embedding", tensors=tensors) for tensors in ({}, dense))
    ids = texts((20,))[0]
    with loaded(plain) as model, loaded(more) as other:
        wanted = model.embed(ids, normalize=False) @ dense["dense_2.weight"].T @ dense["dense_3.weight"].T
        assert other.info.embedding == 32 and error(other.embed(ids, normalize=False), wanted) < 1e-5


def test_texts_and_what_is_done_with_them(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "bert", tokenizer="spm")
    with loaded(path) as model:
        three = ["Once upon a time", "", "there was a model."]
        told: list[tuple[int, int]] = []
        vectors = model.embed(three, progress=lambda done, of: told.append((done, of)))
        assert vectors.shape == (3, 64) and vectors.dtype == np.float32 and told == [(3, 3)]
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
        raw = model.embed(three, normalize=False)
        assert np.allclose(raw / np.linalg.norm(raw, axis=1, keepdims=True), vectors, atol=1e-6)
        assert np.array_equal(model.embed("Once upon a time"), vectors[:1])
        assert np.array_equal(model.embed(model.tokenizer.encode("Once upon a time", add_special=True)), vectors[:1])
        assert np.array_equal(asyncio.run(model.aembed(three)), vectors)
        assert model.embed([]).shape == (0, 64)
        with pytest.raises(OptionError, match=r"texts has 3 among its texts"):
            model.embed(["a", 3])  # type: ignore[list-item]
        with pytest.raises(OptionError, match="texts is bytes"):
            model.embed(b"abc")
    with pytest.raises(edgellm.ModelClosed):
        model.embed("abc")


def test_what_an_embedding_model_cannot_do(tmp_path: Path) -> None:
    with loaded(tiny_model(tmp_path / "m.gguf", "bert")) as model:
        for call in (lambda: model.generate([1]), lambda: model.logits([1]), lambda: model.session()):
            with pytest.raises(OptionError, match=r"m\.gguf is an embedding model and writes no text; use model\.embed"):
                call()
        with pytest.raises(NoTokenizer):
            model.embed("text")
        with pytest.raises(OptionError, match="token id 96 at place 1"):
            model.embed([1, 96])
    with (
        loaded(tiny_model(tmp_path / "m.gguf", "llama")) as model,
        pytest.raises(OptionError, match="names no pooling; take an embedding model"),
    ):
        model.embed([1, 2])


def test_a_text_that_is_too_long_says_what_to_do(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "bert")
    with loaded(path, context=64) as model:
        assert model.embed([1] * 64).shape == (1, 64)
        with pytest.raises(ContextFull, match=r"texts\[0\] has 65 tokens.*at most 64 .*shorter texts, or load .* context=65"):
            model.embed([1] * 65)
    with loaded(path) as model, pytest.raises(ContextFull, match=r"shorter texts\.$"):
        model.embed([1] * 129)
    with loaded(path, context=500) as model:  # more than the model has learned
        assert model.context == 128


def test_values_that_are_not_numbers(tmp_path: Path) -> None:
    table = np.random.default_rng(0).standard_normal((96, 64)).astype(np.float32)
    table[7] = np.nan
    with loaded(tiny_model(tmp_path / "m.gguf", "bert", tensors={"token_embd.weight": table})) as model:
        fine = model.embed([1, 2, 3])
        with pytest.raises(NumericError, match=r"texts\[1\] has NaN or Inf values"):
            compute(model._loaded, [np.array([1, 2], np.int32), np.array([7], np.int32)])
        assert np.array_equal(model.embed([1, 2, 3]), fine)


def test_documents_begin_where_their_sums_are_the_same() -> None:
    layout = plan_documents([KVSpec(1, 8, 8, causal=False)], context=512, chunk=512)
    assert first_slots([10, 40, 200, 300, 1], layout, 32) == [0, 32, 256]
    assert first_slots([300, 200, 12, 1], layout, 32) == [0, 512, 712 // 32 * 32 + 32]
    assert first_slots([1] * 100, layout, 32) == list(range(0, 1024, 32))
    spans = place([3, 2], [0, 32], layout).spans[0]
    assert spans.tolist() == [[0, 0, 0, 3], [1, 0, 0, 3], [2, 0, 0, 3], [32, 0, 32, 2], [33, 0, 32, 2]]


def test_windows_reach_to_both_sides() -> None:
    layers = [KVSpec(1, 8, 8, 4, causal=False), KVSpec(1, 8, 8, 2), KVSpec(1, 8, 8, 2, chunked=True)]
    layout = plan_documents(layers, context=8, chunk=512)
    both, past, side_by_side = place([5], [0], layout).spans
    assert both[:, 2:].tolist() == [[0, 3], [0, 4], [0, 5], [1, 4], [2, 3]]
    assert past[:, 2:].tolist() == [[0, 1], [0, 2], [1, 2], [2, 2], [3, 2]]
    assert side_by_side[:, 2:].tolist() == [[0, 1], [0, 2], [2, 1], [2, 2], [4, 1]]


def test_fewer_dimensions_are_normalised_again(tmp_path: Path) -> None:
    with loaded(tiny_model(tmp_path / "m.gguf", "bert", tokenizer="spm")) as model:
        raw = model.embed(["Once upon", "a time"], normalize=False)
        assert np.array_equal(model.embed(["Once upon", "a time"], normalize=False, dimensions=8), raw[:, :8])
        short = model.embed(["Once upon", "a time"], dimensions=8)
        assert np.allclose(short, raw[:, :8] / np.linalg.norm(raw[:, :8], axis=1, keepdims=True), atol=1e-6)
        for wrong in (0, 65, "8", True):
            with pytest.raises(OptionError, match=r"dimensions=.*from 1 to 64"):
                model.embed("a", dimensions=wrong)
        with pytest.raises(OptionError, match="dimension is not an option of embed"):
            model.embed("a", dimension=8)  # type: ignore[call-overload]  # what is tested


def test_texts_are_cut_and_counted_on_request(tmp_path: Path) -> None:
    with loaded(tiny_model(tmp_path / "m.gguf", "bert", tokenizer="spm"), context=16) as model:
        long = "Once upon a time there was a model."
        ids = model.tokenize(long)
        vectors, counts = model.embed(["a", long], truncate=True, return_counts=True)
        assert counts.tolist() == [len(model.tokenize("a")), 16] and len(ids) > 16
        assert np.array_equal(vectors[1], model.embed(ids[:16])[0])
        with pytest.raises(ContextFull):
            model.embed(long)
        model.tokenizer._manners = Manners(begin=1, end=2)  # as of an encoder that ends each text
        assert np.array_equal(model.embed(long, truncate=True)[0], model.embed([*ids[:15], 2])[0])


def test_lists_of_ids(tmp_path: Path) -> None:
    with loaded(tiny_model(tmp_path / "m.gguf", "bert", tokenizer="spm")) as model:
        wanted = model.embed(["Once upon", "a time"])
        ids = [model.tokenize("Once upon"), model.tokenize("a time")]
        assert np.array_equal(model.embed(ids), wanted)
        assert np.array_equal(model.embed([np.array(ids[0]), "a time"]), wanted)  # type: ignore[list-item]
        assert model.embed(np.array([[1, 2], [3, 4]])).shape == (2, 64)
        for wrong in (["a", None], [None, "a"], ["a", b"b"], [[1], None], [[1], [None]], [[1], []], [[1.5]]):
            with pytest.raises(OptionError, match="texts"):
                model.embed(wrong)  # type: ignore[call-overload]  # what is tested


def test_another_pooling(tmp_path: Path) -> None:
    path, ids = tiny_model(tmp_path / "m.gguf", "bert"), texts((20,))[0]
    found = {}
    for pooling in ("mean", "cls", "last"):
        named = tiny_model(tmp_path / f"{pooling}.gguf", "bert", metadata={"bert.pooling_type": POOLINGS[pooling]})
        with loaded(path, pooling=pooling) as model, loaded(named) as wanted:
            assert model.info.pooling == pooling
            found[pooling] = model.embed(ids)
            assert np.array_equal(found[pooling], wanted.embed(ids))
    assert not np.allclose(found["cls"], found["last"])
    writes = tiny_model(tmp_path / "llama.gguf", "llama")
    with loaded(writes, pooling="last") as model:
        assert model.embed(ids).shape == (1, 64)
    with pytest.raises(OptionError, match=r"pooling='max'.*mean, cls or last"):
        edgellm.load(path, pooling="max")


def test_a_cancelled_task_ends_its_computing(tmp_path: Path) -> None:
    """The model is free for others at once: 4,000 texts take some seconds."""
    with loaded(tiny_model(tmp_path / "m.gguf", "bert", tokenizer="spm")) as model:
        steps = []

        async def embed_and_leave() -> None:
            task = asyncio.ensure_future(model.aembed(["Once upon a time"] * 4000, progress=lambda done, of: steps.append(done)))
            while not steps:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(embed_and_leave())
        assert steps[-1] < 4000
        seen = len(steps)
        model.embed("a")
        assert len(steps) <= seen + 1
