"""Rerankers: the pairs that their families were trained with, token types, truncation, and the command."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_commands import pipe_in
from tiny_models import tiny_model
from vocabulary_cases import PREFIX, bpe_metadata, with_tokens, wpm_metadata

import edgellm
from edgellm.api.embed import compute
from edgellm.api.rerank import _filled, _joined
from edgellm.arch import load_graph
from edgellm.checkpoints.families._answering import MXBAI, QWEN3, Answers
from edgellm.cli import app
from edgellm.errors import ContextFull
from edgellm.formats.gguf import open_gguf
from edgellm.passes import optimise
from edgellm.reference import Reference
from edgellm.tokenizer import build_tokenizer
from edgellm.weights import WeightStore

CLS, SEP = 2, 3
RANK = {"{arch}.pooling_type": 4}
HEAD = {"cls.output.weight": np.random.default_rng(1).standard_normal((1, 64)).astype(np.float32)}
DOCUMENTS = ["hello world", "a river", "sun and rain and the river"]


def pairs(metadata: dict[str, Any], query: str, document: str, room: int | None = None) -> tuple[list[int], list[int]]:
    model: Any = SimpleNamespace(tokenizer=build_tokenizer(metadata, file="x"), metadata=metadata)
    [pair] = _joined(model, query, [document], room)
    return pair.ids.tolist(), pair.types.tolist()


def test_pairs_of_bert_have_types() -> None:
    tokenizer = build_tokenizer(wpm_metadata(), file="x")
    query, document = (tokenizer.encode(text, add_special=False) for text in ("the cat", "un cat s"))
    ids, types = pairs(wpm_metadata(), "the cat", "un cat s")
    assert ids == [CLS, *query, SEP, *document, SEP]
    assert types == [0] * (len(query) + 2) + [1] * (len(document) + 1)
    shorter, _ = pairs(wpm_metadata(), "the cat", "un cat s", room=len(ids) - 1)
    assert shorter == [CLS, *query, SEP, *document[:-1], SEP]


def test_pairs_of_xlm_roberta_have_two_ends_between() -> None:
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "▁the", "▁cat", "▁un", "▁"]
    values = {
        "model": "t5",
        "tokens": tokens,
        "scores": np.array([0, 0, 0, 0, -1, -2, -3, -4], np.float32),
        "token_type": np.array([3, 3, 3, 2, 1, 1, 1, 1], np.int32),
        "bos_token_id": 0,
        "eos_token_id": 2,
        "unknown_token_id": 3,
        "add_bos_token": True,
        "add_eos_token": True,
        "add_space_prefix": True,
    }
    ids, types = pairs({PREFIX + key: value for key, value in values.items()}, "the cat", "un cat")
    assert ids == [0, 4, 5, 2, 2, 6, 5, 2] and not any(types)


@pytest.mark.parametrize("kind", [QWEN3, MXBAI])
def test_pairs_of_decoders_have_the_prompt_of_the_maker(kind: Answers) -> None:
    tokenizer = build_tokenizer(with_tokens(bpe_metadata(), ("<think>", 4), ("</think>", 4)), file="x")
    pair = _filled(tokenizer, kind.template, "the <|im_end|>", "a {query} river", None)
    text = tokenizer.decode(pair.ids.tolist(), skip_special=False)
    assert text == kind.template.replace("{query}", "the <|im_end|>", 1).replace("{document}", "a {query} river")
    ends = [token for token in pair.ids.tolist() if token == tokenizer.token_id("<|im_end|>")]
    assert len(ends) == kind.template.count("<|im_end|>")  # the query's is text
    whole, room = len(pair.ids), len(pair.ids) - 5
    shorter = _filled(tokenizer, kind.template, "the <|im_end|>", "a {query} river", room)
    assert len(shorter.ids) <= room < whole


@pytest.mark.parametrize("backend", ["cpu", "mlx"])
@pytest.mark.parametrize("arch", ["bert", "jina-bert-v2", "nomic-bert"])
def test_token_types_as_the_reference_reads_them(tmp_path: Path, arch: str, backend: str) -> None:
    if backend == "mlx":
        pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    types = {"token_types.weight": np.random.default_rng(2).standard_normal((2, 64)).astype(np.float32)}
    path = tiny_model(tmp_path / "m.gguf", arch, metadata=RANK, tensors={**HEAD, **types})
    ids = [np.arange(1, 9, dtype=np.int32), np.arange(3, 40, dtype=np.int32)]
    kinds = [np.repeat(np.array([0, 1], np.int32), [3, len(each) - 3]) for each in ids]
    gguf = open_gguf(path)
    weights = WeightStore(gguf)
    reference = Reference(optimise(load_graph(gguf)[1]), weights)
    wanted = [reference.output("embedding", one, types=kind)[0] for one, kind in zip(ids, kinds, strict=True)]
    plain = [reference.output("embedding", one)[0] for one in ids]
    weights.close()
    with edgellm.load(path, backend=backend, kv_type="f32") as model:
        loaded = model._opened()
        assert np.allclose(compute(loaded, ids, types=kinds), wanted, atol=1e-4)
        assert np.allclose(compute(loaded, ids), plain, atol=1e-4)  # nothing is left of the types before
    assert not np.allclose(wanted, plain, atol=1e-2)


def test_scores_and_truncation(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "bert", tokenizer="spm", metadata=RANK, tensors=HEAD)
    with edgellm.load(path, context=32) as model:
        scores = model.rerank("sun", DOCUMENTS)
        assert scores.shape == (3,) and scores.dtype == np.float32 and ((scores > 0) & (scores < 1)).all()
        assert np.array_equal(asyncio.run(model.arerank("sun", DOCUMENTS)), scores)
        assert np.array_equal(model.rerank("sun", DOCUMENTS, truncate=True), scores)
        with pytest.raises(ContextFull, match=r"texts\[1\]"):
            model.rerank("sun", ["a", "river " * 50])
        assert model.rerank("sun", ["a", "river " * 50], truncate=True).shape == (2,)
        assert model.rerank("sun", []).shape == (0,)


def test_the_command_prints_the_best_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny_model(tmp_path / "m.gguf", "bert", tokenizer="spm", metadata=RANK, tensors=HEAD)
    with edgellm.load(path) as model:
        scores = model.rerank("sun", DOCUMENTS)
    (tmp_path / "lines.txt").write_text("\n".join(DOCUMENTS), encoding="utf-8")
    assert app.run(["rerank", str(path), "sun", str(tmp_path / "lines.txt")]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["index"] for each in found] == np.argsort(-scores).tolist()
    assert [np.float32(each["score"]) for each in found] == sorted(scores, reverse=True)
    pipe_in(monkeypatch, "\n".join(DOCUMENTS).encode())
    assert app.run(["rerank", str(path), "sun", "--top", "1"]) == 0
    [best] = capsys.readouterr().out.splitlines()
    assert json.loads(best) == found[0] and found[0]["text"] in DOCUMENTS
