"""The oracle itself: against gold, against formulas written out, and the streaming oracle against the plain one."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from places import DATA
from streaming_oracle import StreamingOracle
from tiny_models import tiny_model

from edgellm.arch import load_graph
from edgellm.errors import Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.graph import Builder, KVSpec, Node
from edgellm.ops._spec import Array
from edgellm.ops.attention import alibi_slopes, attend, kv_write
from edgellm.ops.dense import embed
from edgellm.passes import optimise
from edgellm.reference import Reference
from edgellm.weights import WeightStore

DATA = DATA / "conformance"
CEILING = 1e-5  # of the largest logit; float32 noise: measured 5e-7 to 3e-6


def error_against_gold(path: Path, context: int) -> float:
    gold = np.load(path.with_suffix(".npz"))
    gguf = open_gguf(path)
    logits = Reference(optimise(load_graph(gguf, context)[1]), WeightStore(gguf)).logits(gold["tokens"])
    return float(np.abs(logits - gold["gold_logits"]).max() / np.abs(gold["gold_logits"]).max())


@pytest.mark.parametrize("name", sorted(path.stem for path in DATA.glob("*.gguf")))
def test_gold_of_copied_files(name: str) -> None:
    assert error_against_gold(DATA / f"{name}.gguf", 256) <= CEILING


def test_gold_of_all_files(shared: Path) -> None:
    """Quantised files too: their gold is the float32 forward with decoded weights, which is what the oracle computes."""
    checked = 0
    for entry in json.loads((shared / "conformance" / "suite.json").read_text())["entries"]:
        if entry["kind"] != "logits":
            continue
        try:
            ceiling = 3e-5 if entry["arch"] == "qwen35" else CEILING  # llama.cpp is 4e-5 away there
            assert error_against_gold(shared / "conformance" / entry["file"], entry["n_ctx"]) <= ceiling, entry["name"]
            checked += 1
        except Unsupported:
            continue
    assert checked >= 13


def test_greedy_text_of_a_trained_model(shared: Path) -> None:
    path = shared / "models" / "stories260K-F32.gguf"
    gguf = open_gguf(path)
    oracle = StreamingOracle(load_graph(gguf)[1], WeightStore(gguf), context=512, sinks=4)
    ids = json.loads(path.with_name("stories260K-F32.prompt_ids.txt").read_text())
    rows = [oracle.step(token) for token in ids]
    while len(ids) < 60:
        ids.append(int(rows[-1].argmax()))
        rows.append(oracle.step(ids[-1]))
    pieces = gguf.metadata["tokenizer.ggml.tokens"]
    text = "".join(pieces[token] for token in ids[1:]).replace("▁", " ").strip()
    assert path.with_name("stories260K-F32.greedy.txt").read_text().strip().startswith(text) and len(text) > 100


class Arrays:
    """Weights of a test, by name."""

    def __init__(self, **arrays: Any) -> None:
        self.arrays = {name.replace("_", "."): np.asarray(array, np.float32) for name, array in arrays.items()}

    def __getitem__(self, name: str) -> Any:
        class One:
            array = staticmethod(lambda: self.arrays[name])

        return One()


def one(op: str, *inputs: Array, weights: Arrays | None = None, names: tuple[str, ...] = (), **attrs: Any) -> Array:
    """The value of a single node."""
    graph = Builder({}).graph()
    node = Node(op, tuple(range(len(inputs))), "T", 1, names, MappingProxyType(attrs))
    return Reference(graph, weights or Arrays()).evaluate(node, list(inputs))


X = np.array([[-3.0, -0.5, 0.0, 0.25, 2.0, 7.0]], np.float32)


@pytest.mark.parametrize(
    ("op", "formula"),
    [
        ("silu", lambda x: x / (1 + math.exp(-x))),
        ("gelu", lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
        ("gelu_erf", lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2)))),
        ("gelu_quick", lambda x: x / (1 + math.exp(-1.702 * x))),
    ],
)
def test_activations(op: str, formula: Any) -> None:
    wanted = [formula(float(x)) for x in X[0]]
    assert one(op, X)[0] == pytest.approx(wanted, abs=1e-6)
    assert one("glu", X, 2 * X, act=op)[0] == pytest.approx([y * 2 * x for x, y in zip(X[0], wanted, strict=True)], abs=1e-5)
    assert np.isfinite(one(op, np.array([[-1e4, 1e4]], np.float32))).all()


def test_norms() -> None:
    w, b = np.array([1.0, 2.0, 3.0], np.float32), np.array([0.5, 0.0, -0.5], np.float32)
    pieces = X.reshape(2, 3).astype(np.float64)
    wanted = pieces / np.sqrt((pieces**2).mean(1, keepdims=True) + 0.1) * w
    got = one("rms_norm", X, weights=Arrays(w=w), names=("w",), eps=0.1, groups=2, own=False)
    assert got == pytest.approx(wanted.reshape(1, 6), rel=1e-6)
    row = X[:, :3].astype(np.float64)
    wanted = (row - row.mean()) / np.sqrt(row.var() + 0.1) * w + b
    got = one("layer_norm", X[:, :3], weights=Arrays(w=w, b=b), names=("w", "b"), eps=0.1, groups=1)
    assert got == pytest.approx(wanted, rel=1e-5)


def test_norms_without_weights_and_with_one_for_each_piece() -> None:
    pieces, own = X.reshape(2, 3).astype(np.float64), np.arange(6.0).reshape(2, 3)
    wanted = (pieces - pieces.mean(1, keepdims=True)) / np.sqrt(pieces.var(1, keepdims=True) + 0.1)
    assert one("layer_norm", X, eps=0.1, groups=2) == pytest.approx(wanted.reshape(1, 6), rel=1e-5)
    got = one("layer_norm", X, weights=Arrays(w=own), names=("w",), eps=0.1, groups=2)
    assert got == pytest.approx((wanted * own).reshape(1, 6), rel=1e-5)
    got = one("layer_norm", X, weights=Arrays(w=own, b=own[::-1]), names=("w", "b"), eps=0.1, groups=2)
    assert got == pytest.approx((wanted * own + own[::-1]).reshape(1, 6), rel=1e-5)
    wanted = X / np.sqrt((X.astype(np.float64) ** 2).mean() + 0.1)
    assert one("rms_norm", X, eps=0.1, groups=1, own=False) == pytest.approx(wanted, rel=1e-6)
    wanted = pieces / np.sqrt((pieces**2).mean(1, keepdims=True) + 0.1)
    got = one("rms_norm", X, weights=Arrays(w=own), names=("w",), eps=0.1, groups=2, own=True)
    assert got == pytest.approx((wanted * own).reshape(1, 6), rel=1e-6)
    got = one("rms_norm", X, weights=Arrays(w=own[:, 1:2]), names=("w",), eps=0.1, groups=2, own="one")
    assert got == pytest.approx((wanted * [[1.0], [4.0]]).reshape(1, 6), rel=1e-6)


def test_matmul_slice_softcap_and_scale() -> None:
    w, b, r = np.arange(12).reshape(2, 6), np.array([1.0, -1.0]), np.array([[10.0, 20.0]], np.float32)
    plain = X.astype(np.float64) @ w.T
    assert one("matmul", X, weights=Arrays(w=w), names=("w",)) == pytest.approx(plain)
    assert one("matmul", X, r, weights=Arrays(w=w, b=b), names=("w", "b")) == pytest.approx(plain + b + r)
    gated = one("matmul_glu", X, r, weights=Arrays(w=w, b=b), names=("w", "b"), act="silu")
    assert gated == pytest.approx((plain + b) * r / (1 + np.exp(-r)), rel=1e-5)
    assert one("slice", X, start=1, stop=3).tolist() == [[-0.5, 0.0]]
    assert one("softcap", X, cap=5.0) == pytest.approx(5 * np.tanh(X / 5), rel=1e-6)
    assert one("scale", X, value=0.5) == pytest.approx(X / 2)
    assert one("clamp", X, limit=0.4)[0].tolist() == pytest.approx([-0.4, -0.4, 0.0, 0.25, 0.4, 0.4])


def test_xielu() -> None:
    """The published formula; numbers go through softplus as in checkpoints."""
    alpha_p, alpha_n, beta, eps = math.log1p(math.exp(0.7)), 0.5 + math.log1p(math.exp(0.4)), 0.5, -1e-6
    wanted = [alpha_p * x * x + beta * x if x > 0 else (math.expm1(min(x, eps)) - x) * alpha_n + beta * x for x in X[0].tolist()]
    assert one("xielu", X, alpha_p=0.7, alpha_n=0.4, beta=beta, eps=eps)[0] == pytest.approx(wanted, rel=1e-5, abs=3e-6)


def test_slopes_of_alibi() -> None:
    assert alibi_slopes(8, 8.0).tolist() == [2.0**-n for n in range(1, 9)]
    assert alibi_slopes(6, 8.0).tolist() == [2.0**-n for n in (2, 4, 6, 8, 1, 3)]


@pytest.mark.parametrize(("window", "softcap", "max_bias"), [(None, None, 0.0), (2, None, 0.0), (None, 0.7, 0.0), (3, None, 8.0)])
def test_attention_is_softmax_over_what_is_seen(window: int | None, softcap: float | None, max_bias: float) -> None:
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((5, n)).astype(np.float32) for n in (8, 4, 6))
    g = Builder({})
    x = embed(g, "t", 5, 8)
    attend(g, x, kv_write(g, x, x, KVSpec(2, 2, 3, window)), 4, 0.3, softcap, max_bias)
    graph = g.graph()
    reference = Reference(graph, Arrays())
    reference.positions = np.arange(5)
    assert reference.evaluate(graph.nodes[-2], [k, v]).shape == (5, 0)
    got = reference.evaluate(graph.nodes[-1], [q])
    assert np.array_equal(got, reference.evaluate(graph.nodes[-1], [q, q]))
    for t in range(5):
        first = 0 if window is None else max(0, t - window + 1)
        for head in range(4):
            kv = head // 2
            scores = k[first : t + 1, 2 * kv : 2 * kv + 2] @ q[t, 2 * head : 2 * head + 2] * 0.3
            if softcap is not None:
                scores = softcap * np.tanh(scores / softcap)
            if max_bias:  # 2 bits a head of four
                scores = scores - 0.25 ** (head + 1) * (t - np.arange(first, t + 1))
            share = np.exp(scores) / np.exp(scores).sum()
            assert got[t, 3 * head : 3 * head + 3] == pytest.approx(share @ v[first : t + 1, 3 * kv : 3 * kv + 3], abs=1e-5)


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("llama", {}),
        ("llama", {"window": 5}),
        ("bloom", {}),
        ("mistral3", {}),
        ("qwen3", {"n_rot": 8}),
        ("phi3", {}),
        ("gpt2", {}),
        ("gemma3", {"metadata": {"gemma3.attention.sliding_window_pattern": 2}, "window": 3}),
    ],
)
def test_streaming_is_the_plain_forward_until_the_context_is_full(arch: str, options: dict[str, Any], tmp_path: Path) -> None:
    gguf = open_gguf(tiny_model(tmp_path / "m.gguf", arch, **options))
    graph, weights = load_graph(gguf)[1], WeightStore(gguf)
    ids = [(7 * i * i + 3) % 96 for i in range(12)]
    oracle = StreamingOracle(graph, weights, context=12, sinks=2)
    streamed = np.stack([oracle.step(token) for token in ids])
    assert np.abs(streamed - Reference(graph, weights).logits(ids)).max() < 1e-5


@pytest.mark.parametrize("arch", ["llama", "qwen2", "phi3"])
def test_streaming_past_the_context_is_the_forward_of_sinks_and_window(arch: str, tmp_path: Path) -> None:
    """With one layer, keys depend on their own token only, so the kept tokens can be fed afresh at their places."""
    gguf = open_gguf(tiny_model(tmp_path / "m.gguf", arch, n_layers=1))
    graph, weights = load_graph(gguf)[1], WeightStore(gguf)
    ids = [(7 * i * i + 3) % 96 for i in range(40)]
    oracle = StreamingOracle(graph, weights, context=10, sinks=3)
    for n, token in enumerate(ids, start=1):
        row = oracle.step(token)
        kept = ids[:n] if n <= 10 else ids[:3] + ids[n - 7 : n]
        assert np.abs(row - Reference(graph, weights).logits(kept)[-1]).max() < 1e-5


def test_streaming_a_sliding_layer_keeps_no_sinks(tmp_path: Path) -> None:
    gguf = open_gguf(tiny_model(tmp_path / "m.gguf", "llama", n_layers=1, window=4))
    graph, weights = load_graph(gguf)[1], WeightStore(gguf)
    ids = [(7 * i * i + 3) % 96 for i in range(30)]
    oracle = StreamingOracle(graph, weights, context=10, sinks=3)
    rows = [oracle.step(token) for token in ids]
    assert np.abs(rows[-1] - Reference(graph, weights).logits(ids[-4:])[-1]).max() < 1e-5


def test_learned_positions_do_not_slide(tmp_path: Path) -> None:
    gguf = open_gguf(tiny_model(tmp_path / "m.gguf", "gpt2", n_layers=1))
    oracle = StreamingOracle(load_graph(gguf)[1], WeightStore(gguf), context=3, sinks=1)
    for token in (1, 2, 3):
        oracle.step(token)
    with pytest.raises(AssertionError):
        oracle.step(4)


def test_positions_move_nothing_but_distances(tmp_path: Path) -> None:
    gguf = open_gguf(tiny_model(tmp_path / "m.gguf"))
    reference = Reference(load_graph(gguf)[1], WeightStore(gguf))
    near, far = reference.logits([5, 6, 7, 8]), reference.logits([5, 6, 7, 8], positions=range(10**6, 10**6 + 4))
    assert np.abs(near - far).max() < 1e-4
