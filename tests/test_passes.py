"""Fusions keep every logit and leave the nodes that they promise."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_models import tiny_model

from edgellm.arch import load_graph, names
from edgellm.formats.gguf import open_gguf
from edgellm.graph import Builder, Graph, LayerMemory
from edgellm.passes import drop_unused, fuse_gated_activation, fuse_residual, optimise
from edgellm.reference import Reference
from edgellm.spec import check_graph, matrices, vectors
from edgellm.weights import WeightStore

OPTIMISED_LLAMA = """\
memory 0: heads 2, keys 16, values 16, window all
%0  (T, 64) embed(source=tokens, rows=96) token_embd.weight
%1  (T, 64) rms_norm(%0, eps=1e-05, groups=1) blk.0.attn_norm.weight
%2  (T, 64) matmul(%1) blk.0.attn_q.weight
%3  (T, 32) matmul(%1) blk.0.attn_k.weight
%4  (T, 32) matmul(%1) blk.0.attn_v.weight
%5  (T, 64) rope(%2, rope=[norm, 16, base 10000], heads=4, positions=true)
%6  (T, 64) rope(%2, rope=[norm, 16, base 10000], heads=4, positions=sink)
%7  (T, 32) rope(%3, rope=[norm, 16, base 10000], heads=2, positions=true)
%8  (T, 64) attention(%5, %6, %7, %4, layer=0, n_heads=4, scale=0.25, softcap=None)
%9  (T, 64) matmul(%8, %0) blk.0.attn_output.weight
%10 (T, 64) rms_norm(%9, eps=1e-05, groups=1) blk.0.ffn_norm.weight
%11 (T, 96) matmul(%10) blk.0.ffn_gate.weight
%12 (T, 96) matmul(%10) blk.0.ffn_up.weight
%13 (T, 96) glu(%11, %12, act=silu)
%14 (T, 64) matmul(%13, %9) blk.0.ffn_down.weight
%15 (R, 64) select(%14)
%16 (R, 64) rms_norm(%15, eps=1e-05, groups=1) output_norm.weight
%17 (R, 96) matmul(%16) output.weight
output %17"""


def test_optimised_llama_is_what_it_was(tmp_path: Path) -> None:
    with open_gguf(tiny_model(tmp_path / "m.gguf", "llama", n_layers=1)) as gguf:
        assert str(optimise(load_graph(gguf)[1])) == OPTIMISED_LLAMA


@pytest.mark.parametrize("rewrite", [fuse_gated_activation, fuse_residual, drop_unused, optimise])
@pytest.mark.parametrize("arch", names())
def test_logits_stay(arch: str, rewrite: Callable[[Graph], Graph], tmp_path: Path) -> None:
    gguf = open_gguf(tiny_model(tmp_path / "m.gguf", arch))
    graph, weights = load_graph(gguf)[1], WeightStore(gguf)
    rewritten = rewrite(graph)
    check_graph(rewritten)
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    assert np.array_equal(Reference(rewritten, weights).logits(ids), Reference(graph, weights).logits(ids))
    assert matrices(rewritten) == matrices(graph) and vectors(rewritten) == vectors(graph)


@pytest.mark.parametrize("arch", names())
def test_nothing_fusible_is_left(arch: str, tmp_path: Path) -> None:
    with open_gguf(tiny_model(tmp_path / "m.gguf", arch)) as gguf:
        graph = load_graph(gguf)[1]
        ops = Counter(node.op for node in optimise(graph).nodes)
        assert ops["mul"] == 0
        # gemma3 normalises both halves of a block before it adds them; gpt2 adds its learned positions once
        assert ops["add"] == {"gemma3": 2 * len(graph.memory), "gpt2": 1}.get(arch, 0)


def test_both_operand_orders_fuse() -> None:
    g = Builder(())
    x = g.embed("t", 4, 8)
    a = g.mul(g.matmul(x, "up", 8), g.activation("gelu", g.matmul(x, "gate", 8)))
    b = g.add(g.matmul(a, "w", 8), x)
    graph = optimise(g.graph(g.select(b)))
    assert [node.op for node in graph.nodes] == ["embed", "matmul", "matmul", "glu", "matmul", "select"]
    glu, last = graph.nodes[3], graph.nodes[4]
    assert [graph.nodes[value].weights for value in glu.inputs] == [("gate.weight",), ("up.weight",)]
    assert last.inputs == (3, 0) and last.weights == ("w.weight",)


def test_values_that_are_used_twice_stay() -> None:
    g = Builder(())
    x = g.embed("t", 4, 8)
    y = g.matmul(x, "w", 8)
    act = g.activation("silu", x)
    z = g.add(g.mul(act, y), act)
    graph = g.graph(g.select(g.add(g.add(x, y), g.add(z, y))))
    assert str(optimise(graph)) == str(graph)


def test_a_sum_of_two_products_fuses_once() -> None:
    g = Builder(())
    x = g.embed("t", 4, 8)
    graph = optimise(g.graph(g.select(g.add(g.matmul(x, "a", 8), g.matmul(x, "b", 8)))))
    assert [node.weights for node in graph.nodes] == [("t.weight",), ("a.weight",), ("b.weight",), ()]
    assert graph.nodes[2].inputs == (0, 1)


def test_unused_nodes_go_and_attention_stays() -> None:
    g = Builder(())
    x = g.embed("t", 4, 8)
    g.scale(x, 2.0)
    g.attention(x, x, x, x, LayerMemory(1, 8, 8), 1, 1.0)
    graph = drop_unused(g.graph(g.select(x)))
    assert [node.op for node in graph.nodes] == ["embed", "attention", "select"]
    check_graph(graph)
