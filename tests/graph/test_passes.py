"""Fusions keep every logit and leave the nodes that they promise."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from places import ROOT
from tiny_encoders import writers
from tiny_models import tiny_model

from edgellm.arch import load_graph
from edgellm.formats.gguf import open_gguf
from edgellm.graph import Builder, Graph, KVSpec, RopeSpec, Value
from edgellm.ops.attention import attend, kv_write
from edgellm.ops.dense import activation, add, embed, matmul, mul, scale, select
from edgellm.ops.norm import rms_norm
from edgellm.ops.rope import rope
from edgellm.passes import add_sink_queries, drop_unused, fuse, narrow, optimise
from edgellm.reference import Reference
from edgellm.spec import check_graph, matrices, vectors
from edgellm.weights import WeightStore

OPTIMISED_LLAMA = """\
state 0: kv heads 2, keys 16, values 16, window all
%0  (T, 64) embed(source=tokens, rows=96) token_embd.weight
%1  (T, 64) rms_norm(%0, eps=1e-05, groups=1, own=False) blk.0.attn_norm.weight
%2  (R, 64) select(%1)
%3  (R, 64) matmul(%2) blk.0.attn_q.weight
%4  (T, 32) matmul(%1) blk.0.attn_k.weight
%5  (T, 32) matmul(%1) blk.0.attn_v.weight
%6  (R, 64) rope(%3, rope=[norm, 16, base 10000], heads=4, positions=true)
%7  (R, 64) rope(%3, rope=[norm, 16, base 10000], heads=4, positions=sink)
%8  (T, 32) rope(%4, rope=[norm, 16, base 10000], heads=2, positions=true)
%9  (T, 0) kv_write(%8, %5, state=0)
%10 (R, 64) attend(%6, %7, state=0, n_heads=4, scale=0.25, softcap=None, max_bias=0, buckets=0)
%11 (R, 64) select(%0)
%12 (R, 64) matmul(%10, %11) blk.0.attn_output.weight
%13 (R, 64) rms_norm(%12, eps=1e-05, groups=1, own=False) blk.0.ffn_norm.weight
%14 (R, 96) matmul(%13) blk.0.ffn_gate.weight
%15 (R, 96) matmul_glu(%13, %14, act=silu) blk.0.ffn_up.weight
%16 (R, 64) matmul(%15, %12) blk.0.ffn_down.weight
%17 (R, 64) rms_norm(%16, eps=1e-05, groups=1, own=False) output_norm.weight
%18 (R, 96) matmul(%17) output.weight
logits %18"""


def test_optimised_llama_is_what_it_was(tmp_path: Path) -> None:
    with open_gguf(tiny_model(tmp_path / "m.gguf", "llama", n_layers=1)) as gguf:
        assert str(optimise(load_graph(gguf)[1], sinks={0})) == OPTIMISED_LLAMA


def with_sinks(graph: Graph) -> Graph:
    """As for a conversation that evicts tokens in all layers."""
    return add_sink_queries(graph, range(len(graph.states)))


@pytest.mark.parametrize("rewrite", [fuse, drop_unused, with_sinks, narrow, optimise])
@pytest.mark.parametrize("arch", writers())
def test_logits_stay(arch: str, rewrite: Callable[[Graph], Graph], tmp_path: Path) -> None:
    gguf = open_gguf(tiny_model(tmp_path / "m.gguf", arch))
    graph, weights = load_graph(gguf)[1], WeightStore(gguf)
    rewritten = rewrite(graph)
    check_graph(rewritten)
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    assert np.array_equal(Reference(rewritten, weights).logits(ids), Reference(graph, weights).logits(ids))
    assert matrices(rewritten) == matrices(graph) and vectors(rewritten) == vectors(graph)


def finished(g: Builder, value: Value) -> Graph:
    g.output("logits", value)
    return g.graph()


def test_both_operand_orders_fuse() -> None:
    g = Builder({})
    x = embed(g, "t", 4, 8)
    a = mul(g, matmul(g, x, "up", 8), activation(g, "gelu", matmul(g, x, "gate", 8)))
    b = add(g, matmul(g, a, "w", 8), x)
    graph = drop_unused(fuse(finished(g, select(g, b))))
    assert [node.op for node in graph.nodes] == ["embed", "matmul", "matmul", "glu", "matmul", "select"]
    glu, last = graph.nodes[3], graph.nodes[4]
    assert [graph.nodes[value].weights for value in glu.inputs] == [("gate.weight",), ("up.weight",)]
    assert last.inputs == (3, 0) and last.weights == ("w.weight",)
    graph = drop_unused(fuse(graph))  # on to the product with the gate, unless adapters come in between
    assert [node.op for node in graph.nodes] == ["embed", "matmul", "matmul_glu", "matmul", "select"]
    assert graph.nodes[2].inputs == (0, 1) and graph.nodes[2].weights == ("up.weight",)


def test_products_with_adapters_keep_their_gates_apart(tmp_path: Path) -> None:
    with open_gguf(tiny_model(tmp_path / "m.gguf", "llama", n_layers=1)) as gguf:
        ops = [node.op for node in optimise(load_graph(gguf)[1], adapted=True).nodes]
    assert "glu" in ops and "matmul_glu" not in ops


def test_values_that_are_used_twice_stay() -> None:
    g = Builder({})
    x = embed(g, "t", 4, 8)
    y = matmul(g, x, "w", 8)
    act = activation(g, "silu", x)
    z = add(g, mul(g, act, y), act)
    graph = finished(g, select(g, add(g, add(g, x, y), add(g, z, y))))
    assert str(drop_unused(fuse(graph))) == str(graph)


def test_a_sum_of_two_products_fuses_once() -> None:
    g = Builder({})
    x = embed(g, "t", 4, 8)
    graph = drop_unused(fuse(finished(g, select(g, add(g, matmul(g, x, "a", 8), matmul(g, x, "b", 8))))))
    assert [node.weights for node in graph.nodes] == [("t.weight",), ("a.weight",), ("b.weight",), ()]
    assert graph.nodes[2].inputs == (0, 1)


def test_unused_nodes_go_and_what_writes_stays() -> None:
    g = Builder({})
    x = embed(g, "t", 4, 8)
    scale(g, x, 2.0)
    attend(g, x, kv_write(g, x, x, KVSpec(1, 8, 8)), 1, 1.0)
    graph = drop_unused(finished(g, select(g, x)))
    assert [node.op for node in graph.nodes] == ["embed", "kv_write", "select"]
    check_graph(graph)


ROPE = RopeSpec(8, "neox", 1e4)


def two_layers() -> Graph:
    """Two layers, the second with a norm after the rotation of its query."""
    g = Builder({})
    x = embed(g, "t", 4, 8)
    for layer in range(2):
        q = rope(g, matmul(g, x, f"q{layer}", 8), ROPE, 1)
        if layer == 1:
            q = rms_norm(g, q, "n", 1e-5)
        state = kv_write(g, rope(g, matmul(g, x, f"k{layer}", 8), ROPE, 1), x, KVSpec(1, 8, 8))
        x = add(g, x, attend(g, q, state, 1, 1.0))
    return finished(g, select(g, x))


def test_what_no_state_needs_is_computed_for_wanted_rows(tmp_path: Path) -> None:
    """Two layers write keys, two read them: of the last three only the keys need all rows, and each value is picked once."""
    with open_gguf(tiny_model(tmp_path / "m.gguf", "gemma4", n_layers=4)) as gguf:
        graph = optimise(load_graph(gguf)[1])
    weights = {name: node.rows for node in graph.nodes for name in node.weights if name.startswith("blk.")}
    whole = {name for name, rows in weights.items() if rows == "T"}
    assert {name for name in whole if not name.startswith("blk.0.")} == {
        f"blk.1.{name}.weight" for name in ("attn_norm", "attn_k", "attn_v", "attn_k_norm")
    }
    picked = [node.inputs for node in graph.nodes if node.op == "select"]
    assert len(picked) == len(set(picked)) == 3  # the layer's input, its norm, and the rows per layer


def test_a_step_without_wanted_rows_ends_at_the_last_keys(tmp_path: Path) -> None:
    g = Builder({})
    x = embed(g, "t", 4, 8)
    state = kv_write(g, x, x, KVSpec(1, 8, 8))
    y = attend(g, x, state, 1, 1.0)
    state = kv_write(g, y, y, KVSpec(1, 8, 8))
    graph = narrow(finished(g, select(g, attend(g, y, state, 1, 1.0))))
    check_graph(graph)
    assert [(node.op, node.rows) for node in graph.nodes] == [
        ("embed", "T"),
        ("kv_write", "T"),
        ("attend", "T"),
        ("kv_write", "T"),
        ("select", "R"),
        ("attend", "R"),
    ]


def test_only_layers_with_sinks_get_a_second_query() -> None:
    """Ops between a rotation and its query are computed twice; keys, values and other layers are not."""
    graph = two_layers()
    assert str(add_sink_queries(graph, ())) == str(graph)
    for states in ({0}, {1}, {0, 1}):
        changed = add_sink_queries(graph, states)
        check_graph(changed)
        readers = [node for node in changed.nodes if node.op == "attend"]
        assert [len(node.inputs) - 1 for node in readers] == [int(state in states) for state in (0, 1)]
        ropes = [node for node in changed.nodes if node.op == "rope"]
        assert [node.attrs["positions"] for node in ropes].count("sink") == len(states) and len(ropes) == 4 + len(states)
    first, second = readers
    assert changed.nodes[first.inputs[1]].attrs["positions"] == "sink"
    normed = changed.nodes[second.inputs[1]]
    assert normed.op == "rms_norm" and changed.nodes[normed.inputs[0]].attrs["positions"] == "sink"
    assert changed.nodes[changed.nodes[second.inputs[0]].inputs[0]].attrs["positions"] == "true"


def test_a_query_without_rotation_serves_all_keys() -> None:
    g = Builder({})
    x = embed(g, "t", 4, 8)
    y = attend(g, x, kv_write(g, x, x, KVSpec(1, 8, 8)), 1, 1.0)
    graph = finished(g, select(g, y))
    assert str(add_sink_queries(graph, {0})) == str(graph)


def test_architectures_name_no_sinks() -> None:
    files = sorted((ROOT / "edgellm" / "arch").rglob("*.py"))
    learned = re.compile("learned[_ ]sinks|attn_sinks")  # gpt-oss: another thing
    assert len(files) > 8 and not [file.name for file in files if "sink" in learned.sub("", file.read_text())]
