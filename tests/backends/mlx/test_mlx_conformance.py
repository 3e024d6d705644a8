"""The MLX back end against recorded truth: gold logits, greedy texts, trained quantised files beside the CPU back end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_conformance import LLAMA_CPP, OURS, SUITE, TEXT, Entry, judge, log_softmax, runnable
from variants import CONTEXT, GOLD, ROWS, VARIANTS, tokens

import edgellm
from edgellm.arch import load_graph
from edgellm.formats.gguf import open_gguf
from edgellm.reference import Reference
from edgellm.weights import WeightStore

pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
__all__ = ["judge"]  # a fixture


def mean_kl(exact: np.ndarray, got: np.ndarray) -> float:
    p = log_softmax(exact)
    return float(np.mean((np.exp(p) * (p - log_softmax(got))).sum(-1)))


@pytest.mark.parametrize("name", ["llama-rope3-F32", "gpt2-F32"])
def test_our_own_copies(name: str) -> None:
    recorded = np.load(OURS / f"{name}.npz")
    with edgellm.load(str(OURS / f"{name}.gguf"), backend="mlx", context=256, kv_type="f32") as model:
        logits = model.logits(recorded["tokens"].tolist())
    assert np.abs(logits - recorded["gold_logits"]).max() <= 1e-4 * np.abs(recorded["gold_logits"]).max()


@pytest.mark.parametrize("entry", runnable(), ids=lambda entry: entry["name"])
def test_logits_equal_gold(entry: Entry, judge: Callable[..., tuple[bool, dict[str, float]]]) -> None:
    """F32 within 1e-4; quantised no further from gold than 1.2 x the CPU back end."""
    recorded = dict(np.load(SUITE / entry["npz"]))
    logits = {}
    for backend in ("mlx", "cpu"):
        with edgellm.load(str(SUITE / entry["file"]), backend=backend, threads=1, context=entry["n_ctx"], kv_type="f32") as model:
            logits[backend] = model.logits(recorded["tokens"].tolist())
    good, figures = judge({**entry, **recorded}, logits["mlx"], f32_rel=1e-4)
    assert good, figures
    if entry["quant"] not in ("F32", "F16", "BF16"):
        gold = recorded["gold_logits"]
        assert mean_kl(gold, logits["mlx"]) <= 1.2 * mean_kl(gold, logits["cpu"])


@pytest.mark.parametrize(
    "name", ["stories260K-F32", pytest.param("stories3M-pad256-F16", marks=pytest.mark.slow), "cardputer-chat-F16"]
)
def test_greedy_text_of_trained_models(shared: Path, name: str) -> None:
    path = shared / "models" / f"{name}.gguf"
    prompt = json.loads(path.with_name(f"{name}.prompt_ids.txt").read_text())
    wanted = path.with_name(f"{name}.greedy.txt").read_text().replace(" [end of text]", "").strip()
    with edgellm.load(str(path), backend="mlx", kv_type="f32") as model:
        text = (model.tokenizer.decode(prompt) + model.generate(prompt, max_tokens=200, temperature=0).text).strip()
    n = min(len(text), len(wanted))
    assert n > 20 and text[:n] == wanted[:n]


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_agree_with_transformers(name: str, tmp_path: Path) -> None:
    variant, gold = VARIANTS[name], np.load(GOLD / f"{name}.npz")["logits"]
    path, context = variant.write(tmp_path / "m.gguf"), min(CONTEXT, variant.sizes.get("context", 128))
    with edgellm.load(path, backend="mlx", context=context, kv_type="f32") as model:
        logits = model.logits(tokens(model.info.n_vocab))[list(ROWS)]
    assert np.abs(logits - gold).max() <= 1e-4 * np.abs(gold).max()


QUICK = ("Q4_0", "Q4_K_M", "Q6_K", "IQ4_XS")


@pytest.mark.parametrize("quant", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in LLAMA_CPP])
def test_trained_models_err_no_more_than_on_the_cpu(shared: Path, quant: str) -> None:
    path = shared / "models" / f"stories3M-pad256-{quant}.gguf"
    logits = {}
    for backend in ("mlx", "cpu"):
        with edgellm.load(str(path), backend=backend, kv_type="f32", context=256) as model:
            ids = model.tokenizer.encode(TEXT)
            logits[backend] = model.logits(ids)
    gguf = open_gguf(path)
    _, graph = load_graph(gguf)
    weights = WeightStore(gguf)
    exact = Reference(graph, weights).logits(ids)
    weights.close()
    assert mean_kl(exact, logits["mlx"]) <= 1.2 * mean_kl(exact, logits["cpu"])
