"""Graphs without a back end: the builder, the printer, and what verification refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from edgellm.errors import BadTensorInfo, ShapeMismatch, Unsupported
from edgellm.formats.ggml_types import TYPES_BY_NAME, GGMLType
from edgellm.graph import Builder, Graph, KVSpec, Node, RecurrentSpec, RopeSpec
from edgellm.ops.attention import attend, kv_write
from edgellm.ops.dense import add, columns, embed, matmul, select
from edgellm.ops.norm import rms_norm
from edgellm.ops.rope import rope
from edgellm.spec import GraphError, check_graph, verify


class Info(NamedTuple):
    """A tensor as the reader describes it."""

    shape: tuple[int, ...]
    type: GGMLType = TYPES_BY_NAME["F32"]


TENSORS = {
    "embd.weight": Info((10, 8)),
    "norm.weight": Info((8,)),
    "q.weight": Info((8, 8)),
    "q.bias": Info((8,)),
    "kv.weight": Info((8, 8)),
    "factors": Info((1,)),
}
SHAPES = {name: info.shape for name, info in TENSORS.items()}
ROPE = RopeSpec(2, "neox", 10000.0, 0.25, "factors", 1.5, (1.0, 32.0, 1.0, 64))


def small_graph() -> Graph:
    """One attention layer with two query heads and one key head of four dims."""
    g = Builder(SHAPES)
    x = embed(g, "embd", 10, 8)
    y = rms_norm(g, x, "norm", 1e-5)
    q, kv = matmul(g, y, "q", 8), matmul(g, y, "kv", 8)
    k, v = columns(g, kv, 0, 4), columns(g, kv, 4, 8)
    q = rope(g, q, ROPE, 2)
    state = kv_write(g, rope(g, k, ROPE, 1), v, KVSpec(1, 4, 4, window=16))
    y = attend(g, q, state, 2, 0.5)
    g.output("logits", matmul(g, select(g, add(g, x, y)), "embd", 10))
    return g.graph()


PRINTED = """\
state 0: kv heads 1, keys 4, values 4, window 16
%0  (T, 8) embed(source=tokens, rows=10) embd.weight
%1  (T, 8) rms_norm(%0, eps=1e-05, groups=1, own=False) norm.weight
%2  (T, 8) matmul(%1) q.weight q.bias
%3  (T, 8) matmul(%1) kv.weight
%4  (T, 4) slice(%3, start=0, stop=4)
%5  (T, 4) slice(%3, start=4, stop=8)
%6  (T, 8) rope(%2, rope=[neox, 2, base 10000, scale 0.25, factors factors, magnitude 1.5, yarn 1/32/1/64], heads=2, positions=true)
%7  (T, 4) rope(%4, rope=[neox, 2, base 10000, scale 0.25, factors factors, magnitude 1.5, yarn 1/32/1/64], heads=1, positions=true)
%8  (T, 0) kv_write(%7, %5, state=0)
%9  (T, 8) attend(%6, state=0, n_heads=2, scale=0.5, softcap=None, max_bias=0, buckets=0)
%10 (T, 8) add(%0, %9)
%11 (R, 8) select(%10)
%12 (R, 10) matmul(%11) embd.weight
logits %12"""


def test_prints_one_line_per_node() -> None:
    assert str(small_graph()) == PRINTED


def test_nodes_are_immutable() -> None:
    node = small_graph().nodes[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        node.n = 9  # type: ignore[misc]  # the point of the test
    with pytest.raises(TypeError):
        node.attrs["source"] = "positions"  # type: ignore[index]  # the point of the test


def test_a_right_graph_passes() -> None:
    verify(small_graph(), TENSORS)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"q.weight": None}, BadTensorInfo, "q.weight"),
        ({"q.weight": Info((8, 4))}, ShapeMismatch, r"q.weight: has shape \(8, 4\).*needs \(8, 8\)"),
        ({"q.weight": Info((8, 8, 1))}, ShapeMismatch, "q.weight"),
        ({"q.bias": Info((7,))}, ShapeMismatch, "q.bias"),
        ({"norm.weight": Info((4,))}, ShapeMismatch, "norm.weight"),
        ({"factors": Info((2,))}, ShapeMismatch, "factors"),
        ({"embd.weight": Info((11, 8))}, ShapeMismatch, "embd.weight"),
        ({"norm.weight": Info((8,), TYPES_BY_NAME["Q4_0"])}, Unsupported, "norm.weight: is stored as Q4_0"),
        ({"q.bias": Info((8,), TYPES_BY_NAME["Q8_0"])}, Unsupported, "q.bias: is stored as Q8_0"),
        ({"q.weight": Info((8, 8), TYPES_BY_NAME["IQ2_KS"])}, Unsupported, "q.weight: uses IQ2_KS.*ik_llama.cpp"),
        ({"q.weight": Info((8, 8), TYPES_BY_NAME["I32"])}, Unsupported, "q.weight: uses I32"),
        ({"q.scale": Info((1,))}, Unsupported, "q.scale"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(change: dict[str, Info | None], error: type[Exception], words: str) -> None:
    tensors = {name: info for name, info in (TENSORS | change).items() if info is not None}
    with pytest.raises(error, match=words) as caught:
        verify(small_graph(), tensors, file="model.gguf")
    assert str(caught.value).startswith("model.gguf: ")


def test_unused_rope_tensors_are_no_reason_to_refuse() -> None:
    verify(small_graph(), TENSORS | {"rope_freqs.weight": Info((4,)), "rope_factors_short.weight": Info((4,))})


def _changed(index: int, **fields: Any) -> Callable[[Graph], Graph]:
    def change(graph: Graph) -> Graph:
        nodes = list(graph.nodes)
        attrs = fields.pop("attrs", None)
        if attrs is not None:
            fields["attrs"] = MappingProxyType(dict(nodes[index].attrs) | attrs)
        nodes[index] = dataclasses.replace(nodes[index], **fields)
        return dataclasses.replace(graph, nodes=tuple(nodes))

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_changed(1, op="batch_norm"), "%1 batch_norm: is not an op"),
        (_changed(1, inputs=(5,)), "%1 rms_norm: cannot take inputs"),
        (_changed(1, inputs=()), "%1 rms_norm: cannot take inputs"),
        (_changed(2, weights=()), "%2 matmul: cannot take weights"),
        (_changed(1, attrs={"axis": 1}), "%1 rms_norm: has attributes"),
        (_changed(1, attrs={"groups": 3}), "%1 rms_norm: cannot split 8 into 3"),
        (_changed(1, attrs={"groups": 0}), "rms_norm: groups cannot be 0"),
        (_changed(0, attrs={"source": "pixels"}), "%0 embed: has no source pixels"),
        (_changed(4, attrs={"stop": 9}), "%4 slice: cannot take 0..9 of 8"),
        (_changed(6, attrs={"heads": 3}), "%6 rope: cannot split 8 into 3 heads"),
        (_changed(6, attrs={"rope": RopeSpec(6, "norm", 1e4)}), "%6 rope: cannot rotate 6 of 4 dims"),
        (_changed(6, attrs={"rope": RopeSpec(3, "norm", 1e4)}), "%6 rope: cannot rotate 3 of 4 dims"),
        (_changed(6, attrs={"positions": "own"}), "%6 rope: has no positions own"),
        (_changed(8, attrs={"state": 1}), "%8 kv_write: names state 1 of 1"),
        (_changed(8, n=4), r"%8 kv_write: gives 4 from inputs of \[4, 4\], not 0 from \[4, 4\]"),
        (_changed(8, inputs=(7,)), r"%8 kv_write: gives 0 from inputs of \[4\]"),
        (_changed(9, attrs={"n_heads": 4}), "%9 attend: gives 8"),
        (_changed(9, attrs={"state": 1}), "%9 attend: names state 1 of 1"),
        (_changed(9, attrs={"state": -1}), "attend: state cannot be -1"),
        (_changed(9, inputs=(6, 7)), "%9 attend: gives 8 from inputs of"),
        (_changed(10, n=7), "%10 add: gives 7"),
        (_changed(10, rows="R"), "%10 add: cannot be"),
        (_changed(11, op="scale", attrs={"value": 1.0}), "%11 scale: cannot be"),
        (lambda g: dataclasses.replace(g, outputs={"logits": 10}), "output logits %10"),
        (lambda g: dataclasses.replace(g, outputs={}), "has no outputs"),
        (lambda g: dataclasses.replace(g, states=(*g.states, g.states[0])), "1 of 2 states are written"),
        (lambda g: dataclasses.replace(g, states=(RecurrentSpec((2, 4), "float32"),)), "names state 0, which holds no keys"),
        (lambda g: dataclasses.replace(g, nodes=(*g.nodes, g.nodes[8])), "%13 kv_write: writes state 0 a second time"),
        (lambda g: dataclasses.replace(g, nodes=(*g.nodes[:8], g.nodes[4], *g.nodes[9:])), "%9 attend: reads state 0 before"),
    ],
)
def test_a_wrong_graph_is_our_own_fault(change: Callable[[Graph], Graph], words: str) -> None:
    with pytest.raises(GraphError, match=words):
        check_graph(change(small_graph()))


def test_a_state_can_have_several_readers() -> None:
    """Layers that share keys: what one has written others read, whatever their number of query heads."""
    good = small_graph()
    again = dataclasses.replace(good, nodes=(*good.nodes, good.nodes[9]))
    check_graph(again)


def test_values_can_be_a_part_of_keys() -> None:
    g = Builder(SHAPES)
    x = embed(g, "embd", 10, 8)
    y = attend(g, x, kv_write(g, x, None, KVSpec(1, 8, 4, v_is_k_prefix=True)), 1, 0.5)
    g.output("logits", select(g, y))
    check_graph(g.graph())
    assert str(g.graph()).startswith("state 0: kv heads 1, keys 8, values the first 4 of a key, window all")


def test_rows_cannot_be_mixed() -> None:
    good = small_graph()
    for inputs, rows in (((10, 11), "T"), ((11, 10), "R")):
        node = Node("add", inputs, rows, 8)  # type: ignore[arg-type]  # rows is a literal's value
        with pytest.raises(GraphError, match="%13 add: cannot mix kinds of rows"):
            check_graph(dataclasses.replace(good, nodes=(*good.nodes, node)))


def test_glu_needs_a_known_activation() -> None:
    good = small_graph()
    node = Node("glu", (0, 1), "T", 8, attrs=MappingProxyType({"act": "sine"}))
    with pytest.raises(GraphError, match="has no activation sine"):
        check_graph(dataclasses.replace(good, nodes=(*good.nodes, node)))
