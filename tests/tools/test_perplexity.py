"""Perplexity and divergence: against the definition computed from all logits, against llama.cpp's numbers, and as a command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from story_text import story_text
from tiny_models import tiny_model

import edgellm
from edgellm.cli.app import run
from edgellm.errors import NumericError, OptionError
from edgellm.tools.perplexity import TextWindows, cut, measure

# llama-cpp-python 0.3.36, scripts/peers/llama_cpp_perplexity.py on story_text(100), windows of 128 tokens
LLAMA_CPP = {
    "stories260K-F32": 4.7464,
    "stories260K-Q8_0": 4.7403,
    "stories260K-Q4_K_M": 4.7935,
    "stories3M-pad256-F16": 17.2785,
    "cardputer-chat-F16": 20.6002,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tiny_model(folder / "spm.gguf", "llama", tokenizer="spm")
    tiny_model(folder / "q4.gguf", "llama", "Q4_0", tokenizer="spm")
    tiny_model(folder / "bpe.gguf", "gpt2", tokenizer="bpe")
    (folder / "text.txt").write_text(story_text(12), encoding="utf-8")
    return folder


def losses(logits: np.ndarray, targets: list[int]) -> list[float]:
    """Negative log-likelihoods in float64, one by one."""
    found = []
    for row, target in zip(logits.astype(np.float64), targets, strict=True):
        highest = row.max()
        found.append(float(highest + np.log(np.exp(row - highest).sum()) - row[target]))
    return found


@pytest.mark.parametrize(("name", "stride"), [("spm", None), ("bpe", None), ("spm", 10), ("spm", 64)])
def test_it_is_the_definition(models: Path, name: str, stride: int | None) -> None:
    """TextWindows by hand: BOS in the place of the first token, the second half (or the stride) scored, exp of the mean."""
    with edgellm.load(models / f"{name}.gguf", threads=1, context=96) as model:
        ids = model.tokenizer.encode(story_text(3))
        windows = cut(len(ids), 64, stride)
        found = measure(model, ids, windows).perplexity
        expected = []
        size = 64 if stride is None else 64 + stride // 2
        first, step = (32, 64) if stride is None else (max(size - stride - 1, 0), stride)
        starts = range(0, len(ids) - size + (1 if stride is None else 0), step)
        for at in starts:
            window = ids[at : at + size]
            fed = [model.tokenizer.bos_id, *window[1:]] if model.tokenizer.add_bos else window
            expected += losses(model.logits(fed)[first : size - 1], window[first + 1 :])
    assert found.windows == len(starts) and found.tokens == len(expected)
    assert found.value == pytest.approx(np.exp(np.mean(expected)), rel=1e-5)
    assert found.error == pytest.approx(found.value * np.std(expected) / (len(expected) - 1) ** 0.5, rel=1e-4)


def test_divergence_is_the_definition(models: Path) -> None:
    with edgellm.load(models / "q4.gguf", threads=1) as model, edgellm.load(models / "spm.gguf", threads=1) as base:
        ids = model.tokenizer.encode(story_text(3))
        report = measure(model, ids, cut(len(ids), 64, most=2), base=base)
        p, q = (
            np.concatenate([one.logits([1, *ids[at + 1 : at + 64]])[32:63] for at in (0, 64)]).astype(np.float64)
            for one in (base, model)
        )
    p, q = (np.exp(x - x.max(axis=1, keepdims=True)) for x in (p, q))
    p, q = (x / x.sum(axis=1, keepdims=True) for x in (p, q))
    targets = [*ids[33:64], *ids[97:128]]
    kl = (p * np.log(p / q)).sum(axis=1)
    change = q[range(62), targets] - p[range(62), targets]
    found = report.divergence
    assert found is not None
    assert found.mean == pytest.approx(kl.mean(), rel=1e-3) and found.maximum == pytest.approx(kl.max(), rel=1e-3)
    assert found.median == pytest.approx(np.median(kl), rel=1e-3)
    assert found.percentiles[99.0] == pytest.approx(np.percentile(kl, 99), rel=1e-3)
    assert found.same_top == (p.argmax(axis=1) == q.argmax(axis=1)).mean()
    assert found.delta_p_rms == pytest.approx(np.sqrt((change**2).mean()), rel=1e-3)
    assert found.base_perplexity == pytest.approx(np.exp(-np.log(p[range(62), targets]).mean()), rel=1e-5)


def test_a_model_does_not_diverge_from_itself(models: Path) -> None:
    with edgellm.load(models / "spm.gguf", threads=1) as model, edgellm.load(models / "spm.gguf", threads=1) as base:
        report = measure(model, model.tokenizer.encode(story_text(2)), TextWindows(40, 40, 20, 2), base=base)
        assert report.divergence is not None
        assert report.divergence.maximum == 0 and report.divergence.same_top == 1 and report.divergence.delta_p_rms == 0


@pytest.mark.parametrize(
    ("tokens", "context", "stride", "windows"),
    [
        (1024, 512, None, TextWindows(512, 512, 256, 2)),
        (1535, 512, None, TextWindows(512, 512, 256, 2)),
        (1000, 512, 128, TextWindows(576, 128, 447, 4)),
        (577, 512, 128, TextWindows(576, 128, 447, 1)),
    ],
)
def test_windows_are_those_of_llama_cpp(tokens: int, context: int, stride: int | None, windows: TextWindows) -> None:
    assert cut(tokens, context, stride) == windows
    assert windows.scored == (255 if stride is None else 128)


@pytest.mark.parametrize(
    "call",
    [
        lambda: cut(1023, 512),
        lambda: cut(576, 512, 128),
        lambda: cut(5000, 4),
        lambda: cut(5000, 64, 0),
        lambda: cut(5000, 64, 65),
        lambda: cut(5000, 64, None, 0),
    ],
)
def test_what_is_not_possible_is_said(call: object) -> None:
    with pytest.raises(OptionError):
        call()  # type: ignore[operator]


def test_the_conversation_stays_and_other_calls_wait(models: Path) -> None:
    with edgellm.load(models / "spm.gguf", threads=1) as model:
        model.generate("hello world", max_tokens=4, temperature=0)
        measure(model, model.tokenizer.encode(story_text(2)), TextWindows(40, 40, 20, 2))
        assert model.generate("hello world", max_tokens=4, temperature=0).stats.cached_tokens > 0


def test_nan_is_an_error(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "nan.gguf", tokenizer="spm", tensors={"output_norm.weight": np.full(64, np.nan, np.float32)})
    with edgellm.load(path, threads=1) as model, pytest.raises(NumericError, match="verify"):
        measure(model, model.tokenizer.encode(story_text(2)), TextWindows(40, 40, 20, 1))


def test_the_command(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["perplexity", str(models / "q4.gguf"), str(models / "text.txt"), "-c", "64", "-t", "1"]
    assert run([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["perplexity"] > 1 and found["windows"] * 31 == found["tokens"] and found["context"] == 64 and "kl" not in found
    assert run([*arguments, "--kl-base", str(models / "spm.gguf"), "--chunks", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["windows"] == 2 and found["kl"]["mean"] > 0 and 0 < found["same_top"] <= 1 and found["delta_p"]["rms"] > 0
    assert run([*arguments, "--kl-base", str(models / "spm.gguf"), "--chunks", "2"]) == 0
    printed = capsys.readouterr().out
    assert "KL divergence" in printed and "RMS" in printed and f"{found['perplexity']:.4f}" in printed


def test_the_command_takes_what_the_model_was_trained_for(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["perplexity", str(models / "bpe.gguf"), str(models / "text.txt"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["context"] == 128


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["spm.gguf", "absent.txt"], "absent.txt cannot be read"),
        (["spm.gguf", "spm.gguf"], "not UTF-8"),
        (["spm.gguf", "text.txt", "-c", "4000"], "longer text"),
        (["spm.gguf", "text.txt", "-c", "2"], "--context 2"),
        (["spm.gguf", "text.txt", "-c", "64", "--kl-base", "bpe.gguf"], "vocabular"),
    ],
)
def test_wrong_calls_end_in_one_line(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(models)
    assert run(["perplexity", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.out == ""


@pytest.mark.parametrize("name", LLAMA_CPP)
def test_it_is_what_llama_cpp_says(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / "text.txt").write_text(story_text(100), encoding="utf-8")
    arguments = [str(shared / "models" / f"{name}.gguf"), str(tmp_path / "text.txt"), "-c", "128", "--json"]
    assert run(["perplexity", *arguments]) == 0
    limit = 0.01 if "Q4" in name else 0.005
    assert json.loads(capsys.readouterr().out)["perplexity"] == pytest.approx(LLAMA_CPP[name], rel=limit)
