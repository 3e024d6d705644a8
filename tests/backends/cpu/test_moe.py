"""Mixtures of experts: routing, and results of the CPU back end that depend on no batch, thread or neighbour; MLX beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from moe_variants import VARIANTS
from test_ragged_steps import Conversation, mixed, ready, run
from tiny_models import tiny_model
from variants import GOLD, ROWS, tokens

import edgellm
from edgellm.arch import load_graph
from edgellm.backends.cpu.traits import TRAITS
from edgellm.errors import BadHParam
from edgellm.formats.gguf import open_gguf
from edgellm.graph import Graph, Node
from edgellm.loading.estimate import token_bytes
from edgellm.ops import OPS
from edgellm.reference import Reference
from edgellm.weights import WeightStore

TYPES = ["F32", "F16", "Q8_0", "Q4_K", "Q6_K", "MXFP4"]


@pytest.fixture(autouse=True)
def threads_for_small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgellm.loading.load.SMALL_MODEL", 0)


def routed(logits: list[float], bias: list[float] | None = None, **attrs: object) -> list[float]:
    """The weights that `topk` gives one token."""

    class Weights:
        def weight(self, name: str) -> np.ndarray:
            return np.asarray(bias, np.float32)

    node = Node(
        "topk",
        (0,),
        "T",
        len(logits),
        () if bias is None else ("bias",),
        {"k": 2, "gating": "softmax", "normalise": False, "scale": 1.0, "groups": 1, "groups_used": 1} | attrs,
    )
    assert not list(OPS["topk"].check(node, [node], Graph((), (), {})))
    found = OPS["topk"].reference(Weights(), node, np.asarray([logits], np.float32))[0]
    return [round(float(weight), 4) for weight in found]


def test_routing() -> None:
    softmax = np.exp([1, 3, 2, 0]) / np.exp([1, 3, 2, 0]).sum()
    assert routed([1, 3, 2, 0]) == [0, round(softmax[1], 4), round(softmax[2], 4), 0]
    assert routed([1, 3, 2, 0], normalise=True, scale=2.0) == [0, 1.4621, 0.5379, 0]
    assert routed([1, 1, 1, 1]) == [0.25, 0.25, 0, 0], "of equal experts the first"
    assert routed([0, 0, 0, 0], gating="sigmoid", bias=[0.0, -1.0, 1.0, 0.5]) == [0, 0, 0.5, 0.5], "a bias only selects"
    assert routed([1, 3, 2.95, 0], gating="sparsemixer") == [0, 0.5125, 1, 0], "a share of those nearby, without the first"
    # Groups of two: softmax takes the one with the largest expert, sigmoid that with the largest sum.
    assert routed([3, -9, 2, 2], groups=2) != routed([3, -9, 2, 2], groups=2, groups_used=2)
    assert routed([3, -9, 2, 2], k=1, groups=2, groups_used=1)[0] > 0
    assert routed([3, -9, 2, 2], k=1, groups=2, groups_used=1, gating="sigmoid")[2] > 0


@pytest.mark.parametrize("name", VARIANTS)
def test_the_cpu_agrees_with_transformers(name: str, tmp_path: Path) -> None:
    """In one piece, in pieces and token by token the same bits; 1e-4 of the largest logit is what the suite asks."""
    gold = np.load(GOLD / f"{name}.npz")["logits"]
    ids = tokens(96).tolist()
    with edgellm.load(str(VARIANTS[name].write(tmp_path / "m.gguf")), threads=3, context=128, kv_type="f32") as model:
        assert model.info.threads == 3
        logits = model.logits(ids)[list(ROWS)]
    assert np.abs(logits - gold).max() <= 1e-4 * np.abs(gold).max()


@pytest.mark.parametrize("quant", TYPES)
def test_pieces_threads_and_neighbours_change_no_bit(quant: str, tmp_path: Path) -> None:
    """Buckets of more than a tile of 16 tokens, of a few and of none, beside steps of single tokens."""
    wide = TRAITS[quant].block == 256
    sizes = {"n_experts": 5, "n_used": 2, "n_layers": 1} | ({} if wide else {"n_ff": 160})
    path = tiny_model(tmp_path / "m.gguf", "qwen2moe", quant, **sizes)
    rows = []
    for threads, pieces in ((1, [64, 26]), (3, [7] * 12 + [6]), (2, [1] * 90)):
        with ready(path, threads=threads) as executable:
            one = Conversation(executable, 5)
            ids = np.random.default_rng(5).integers(3, 90, 90).astype(np.int32)
            found, first = [], 0
            for n in pieces:
                batch = one.step(ids[first : first + n], np.arange(max(n - 32, 0), n, dtype=np.int32))
                logits = executable.submit(batch).wait()["logits"].copy()
                found += [(first + max(n - 32, 0) + i, row) for i, row in enumerate(logits)]
                one.sequence.extend(ids[first : first + n])
                first += n
        rows.append(dict(found))
    for other in rows[1:]:
        for place in rows[0]:
            np.testing.assert_array_equal(rows[0][place], other[place])


def test_conversations_together_are_each_as_alone(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "dots1", "Q8_0", n_layers=2, n_dense=1, n_experts=6)
    steps = mixed(3, 12, 40)
    with ready(path) as executable:
        together = [Conversation(executable, seed) for seed in range(3)]
        run(executable, together, steps)
        for seed, shared in enumerate(together):
            alone = Conversation(executable, seed)
            run(executable, [alone], [[sizes[seed]] for sizes in steps if sizes[seed]])
            np.testing.assert_array_equal(alone.logits, shared.logits)


@pytest.mark.parametrize("quant", ["F32", "F16", "Q4_0", "Q6_K", "MXFP4"])
def test_mlx_is_as_the_reference(quant: str, tmp_path: Path) -> None:
    """Products are in f32 on CPUs; 2e-3 as MLX keeps the scales of Q6_K's halves in f16."""
    pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    path = tiny_model(tmp_path / "m.gguf", "qwen2moe", quant, n_layers=1)
    gguf = open_gguf(path)
    wanted = Reference(load_graph(gguf)[1], WeightStore(gguf)).logits(tokens(96))
    with edgellm.load(str(path), backend="mlx", context=128, kv_type="f32") as model:
        assert np.abs(model.logits(tokens(96).tolist()) - wanted).max() <= 2e-3 * np.abs(wanted).max()


def test_gates_and_products_in_one_tensor(tmp_path: Path) -> None:
    plain = open_gguf(tiny_model(tmp_path / "m.gguf", "qwen3moe", n_layers=1))
    weights = WeightStore(plain)
    gate, up = (weights[f"blk.0.ffn_{part}_exps.weight"].array() for part in ("gate", "up"))
    merged = tiny_model(
        tmp_path / "merged.gguf",
        "qwen3moe",
        n_layers=1,
        tensors={
            "blk.0.ffn_gate_exps.weight": None,
            "blk.0.ffn_up_exps.weight": None,
            "blk.0.ffn_gate_up_exps.weight": np.concatenate([gate, up], axis=1),
        },
    )
    results = []
    for path in (tmp_path / "m.gguf", merged):
        with edgellm.load(str(path), context=128, kv_type="f32") as model:
            results.append(model.logits([4, 5, 6, 7]))
    np.testing.assert_array_equal(*results)
    with open_gguf(merged) as gguf:
        assert token_bytes(gguf, load_graph(gguf)[1]) == token_bytes(plain, load_graph(plain)[1])


def test_a_token_reads_the_experts_that_it_takes(tmp_path: Path) -> None:
    sizes = []
    for n in (4, 8):
        with open_gguf(tiny_model(tmp_path / "m.gguf", "qwen3moe", n_layers=1, n_experts=n)) as gguf:
            graph = load_graph(gguf)[1]
            sizes.append(token_bytes(gguf, graph) - gguf.tensors["blk.0.ffn_gate_inp.weight"].nbytes)
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("used", [1, 3])
def test_sparse_mixers_take_two_experts(used: int, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "phimoe", n_layers=1, n_used=used)
    with open_gguf(path) as gguf, pytest.raises(BadHParam, match=f"expert_used_count: is {used}"):
        load_graph(gguf)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("expert_count", 0),
        ("expert_used_count", 9),
        ("expert_gating_func", 7),
        ("expert_group_count", 3),
        ("expert_group_count", 4),
        ("expert_feed_forward_length", 0),
        ("expert_shared_count", 10**6),
    ],
)
def test_bad_keys_are_refused(key: str, value: int, tmp_path: Path) -> None:
    keys = {f"{{arch}}.{key}": value, "{arch}.expert_group_used_count": 1}
    path = tiny_model(tmp_path / "m.gguf", "dots1", n_layers=1, metadata=keys)
    with open_gguf(path) as gguf, pytest.raises(BadHParam, match=key):
        load_graph(gguf)


def test_layers_that_draft_are_left_out(tmp_path: Path) -> None:
    extra = {f"blk.2.nextn.{name}.weight": np.ones(64, np.float32) for name in ("enorm", "hnorm")}
    results = []
    for layers, metadata, tensors in ((2, {}, {}), (3, {"{arch}.nextn_predict_layers": 1}, extra)):
        path = tiny_model(tmp_path / "m.gguf", "glm4moe", n_layers=layers, metadata=metadata, tensors=tensors)
        with open_gguf(path) as gguf:
            results.append([node.op for node in load_graph(gguf)[1].nodes])
    assert results[0] == results[1]
