"""Hyperparameters: what files say, what is assumed where they say nothing, and what is refused."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from gguf_cases import Tensor, gguf
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import tiny_model

import edgellm
from edgellm.arch import load_graph, names
from edgellm.errors import BadHParam, BadTensorInfo, BadVocab, EdgeError, FormatError, ShapeMismatch, Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.graph import Graph, KVSpec, RopeSpec
from edgellm.hparams import Keys, architecture_of
from edgellm.ops import GraphError


def read(path: Path, arch: str = "llama", **options: Any) -> tuple[Keys, Graph]:
    """A tiny model's keys, and the graph that its architecture builds from them."""
    with open_gguf(tiny_model(path / "m.gguf", arch, **options)) as file:
        return load_graph(file)


def ropes(graph: Graph) -> list[RopeSpec]:
    """The different rotations of a graph."""
    return list(dict.fromkeys(spec for node in graph.nodes if isinstance(spec := node.attrs.get("rope"), RopeSpec)))


def test_all_keys_arrive(tmp_path: Path) -> None:
    keys, graph = read(
        tmp_path,
        "gemma3",
        metadata={
            "gemma3.rope.dimension_count": 8,
            "gemma3.rope.scaling.type": "yarn",
            "gemma3.rope.scaling.factor": 4.0,
            "gemma3.rope.scaling.original_context_length": 32,
            "gemma3.rope.scaling.attn_factor": 1.5,
            "gemma3.rope.scaling.yarn_attn_factor": 1.25,
            "gemma3.rope.scaling.yarn_ext_factor": 0.5,
            "gemma3.rope.scaling.yarn_beta_fast": 16.0,
            "gemma3.rope.scaling.yarn_beta_slow": 2.0,
            "gemma3.rope.freq_base": 20000.0,
            "gemma3.rope.freq_base_swa": 5000.0,
            "gemma3.attention.sliding_window": 9,
            "gemma3.attention.sliding_window_pattern": 2,
            "gemma3.attn_logit_softcapping": 50.0,
            "gemma3.final_logit_softcapping": 30.0,
            "gemma3.attention.layer_norm_rms_epsilon": 1e-3,
        },
    )
    assert (keys.n_vocab, keys.n_layers, keys.n_embd, keys.context_length) == (96, 2, 64, 128)
    assert graph.kv_states == (KVSpec(2, 16, 16, 9), KVSpec(2, 16, 16))
    assert ropes(graph) == [RopeSpec(8, "neox", 5000.0), RopeSpec(8, "neox", 20000.0, 0.25, None, 1.5 * 1.25, (0.5, 16.0, 2.0, 32))]

    def attrs(name: str) -> set[Any]:
        return {node.attrs[name] for node in graph.nodes if name in node.attrs}

    assert attrs("n_heads") == {4} and attrs("softcap") == {50.0} and attrs("cap") == {30.0}
    assert [round(eps, 9) for eps in attrs("eps")] == [1e-3]


def test_what_is_assumed(tmp_path: Path) -> None:
    _, graph = read(
        tmp_path, metadata={"llama.rope.freq_base": None, "llama.attention.key_length": None, "llama.attention.value_length": None}
    )
    assert ropes(graph) == [RopeSpec(16, "norm", 10000.0)] and graph.kv_states == (KVSpec(2, 16, 16),) * 2
    assert "softcap=None" in str(graph) and "softcap(" not in str(graph)
    assert read(tmp_path, "gpt2")[1].kv_states[0].n_kv_heads == 4  # no key: as many as query heads
    assert read(tmp_path, metadata={"llama.attention.sliding_window": 0})[1].kv_states[0].window is None
    for key in ("rope.scaling.factor", "rope.scale_linear"):
        assert ropes(read(tmp_path, metadata={f"llama.{key}": 2.0})[1])[0].freq_scale == 0.5


def test_sizes_that_differ_by_layer(tmp_path: Path) -> None:
    """A value per layer: two key heads in the first, four in the second, and half as wide a feed-forward."""
    key, rng = "llama.attention.head_count_kv", np.random.default_rng(1)
    tensors = {
        f"blk.1.{name}.weight": rng.standard_normal(shape).astype(np.float32)
        for name, shape in {
            "attn_k": (64, 64),
            "attn_v": (64, 64),
            "ffn_gate": (48, 64),
            "ffn_up": (48, 64),
            "ffn_down": (64, 48),
        }.items()
    }
    _, graph = read(tmp_path, metadata={key: [2, 4], "llama.feed_forward_length": [96, 48]}, tensors=tensors)
    assert [state.n_kv_heads for state in graph.kv_states] == [2, 4]
    assert np.isfinite(edgellm.load(tmp_path / "m.gguf", backend="cpu").logits([1, 2, 3])).all()
    with pytest.raises(ShapeMismatch, match=r"blk\.1\.attn_k"):
        read(tmp_path, metadata={key: [2, 4]})
    assert read(tmp_path, metadata={key: [2, 2]})[1].kv_states[0].n_kv_heads == 2
    with pytest.raises(BadHParam, match="3 values for 2 layers"):
        read(tmp_path, metadata={key: [2, 2, 2]})
    with pytest.raises(BadHParam, match="not an integer"):
        read(tmp_path, metadata={key: [2.0, 2.0]})
    with pytest.raises(BadHParam, match=r"attention\.head_count_kv: 3 does not divide"):
        read(tmp_path, metadata={key: [2, 3]})
    with pytest.raises(BadHParam, match=r"attention\.key_length: is missing, though layers"):
        read(tmp_path, metadata={"llama.attention.head_count": [4, 2], "llama.attention.key_length": None})


@pytest.mark.parametrize(
    ("value", "flags"),
    [
        (3, (True, True, False, True)),
        (1, (False,) * 4),
        (0, (True,) * 4),
        ([False, True, True, False], (False, True, True, False)),
        ([0, 1, 1, 0], (False, True, True, False)),
    ],
)
def test_sliding_patterns(value: Any, flags: tuple[bool, ...], tmp_path: Path) -> None:
    graph = read(tmp_path, "gemma3", n_layers=4, window=5, metadata={"gemma3.attention.sliding_window_pattern": value})[1]
    assert tuple(state.window == 5 for state in graph.kv_states) == flags


def test_a_period_may_be_longer_than_the_model(tmp_path: Path) -> None:
    graph = read(tmp_path, "modern-bert", n_layers=1, metadata={"modern-bert.attention.sliding_window_pattern": 3})[1]
    assert [state.window for state in graph.kv_states] == [None]


NAN, INF = float("nan"), float("inf")


BAD_VALUES: list[tuple[str, Any]] = [
    ("block_count", 0),
    ("block_count", 513),
    ("block_count", 2.0),
    ("block_count", "2"),
    ("block_count", True),
    ("block_count", [2]),
    ("block_count", None),
    ("context_length", 0),
    ("context_length", None),
    ("embedding_length", 0),
    ("embedding_length", 2**25),
    ("feed_forward_length", 0),
    ("feed_forward_length", None),
    ("attention.head_count", 0),
    ("attention.head_count", None),
    ("attention.head_count_kv", 0),
    ("attention.head_count_kv", 3),
    ("attention.key_length", 0),
    ("attention.value_length", 0),
    ("attention.layer_norm_rms_epsilon", NAN),
    ("attention.layer_norm_rms_epsilon", -1e-6),
    ("attention.layer_norm_rms_epsilon", INF),
    ("attention.layer_norm_rms_epsilon", 1),
    ("attention.layer_norm_rms_epsilon", None),
    ("attention.layer_norm_rms_epsilon", "1e-5"),
    ("attention.sliding_window", -0.5),
    ("attention.sliding_window_pattern", [1]),
    ("attention.sliding_window_pattern", [0.0, 1.0]),
    ("attention.sliding_window_pattern", "LG"),
    ("rope.freq_base", 0.0),
    ("rope.freq_base", NAN),
    ("rope.freq_base", INF),
    ("rope.freq_base", -1e4),
    ("rope.freq_base", 1.0),
    ("rope.freq_base", 10000),
    ("rope.freq_base_swa", NAN),
    ("rope.dimension_count", 0),
    ("rope.dimension_count", 18),
    ("rope.scaling.type", "dynamic"),
    ("rope.scaling.type", 1),
    ("rope.scaling.factor", 0.0),
    ("rope.scaling.factor", NAN),
    ("rope.scaling.original_context_length", 1.5),
    ("rope.scaling.attn_factor", INF),
    ("rope.scaling.yarn_beta_fast", -1.0),
    ("rope.scaling.yarn_ext_factor", NAN),
    ("attn_logit_softcapping", -1.0),
    ("final_logit_softcapping", NAN),
    ("vocab_size", 95),
    ("expert_count", -1.0),
]


@pytest.mark.parametrize(("key", "value"), BAD_VALUES)
def test_bad_values_are_refused_by_key(key: str, value: Any, tmp_path: Path) -> None:
    arch = "gemma3" if key in ("rope.freq_base_swa", "attention.sliding_window_pattern") else "llama"
    with pytest.raises(BadHParam) as caught:
        read(tmp_path, arch, metadata={f"{arch}.{key}": value})
    assert caught.value.field == f"{arch}.{key}" and str(tmp_path / "m.gguf") in str(caught.value)
    assert len(str(caught.value)) < len(str(tmp_path)) + 250


KEYS = (
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.layer_norm_rms_epsilon",
    "attention.layer_norm_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_beta_fast",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "expert_count",
    "vocab_size",
    "attention.causal",
)
VALUES = st.one_of(
    st.integers(0, 70),
    st.sampled_from([127, 128, 2**31 - 1, 2**31, 2**32 - 1]),
    st.floats(width=32),
    st.booleans(),
    st.sampled_from(["", "none", "linear", "yarn", "longrope", "x" * 1000]),
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
    st.lists(st.booleans(), min_size=1, max_size=4),
)


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(names()), st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=4), st.data())
def test_any_values_build_a_graph_or_end_in_a_typed_error(arch: str, values: dict[str, Any], data: st.DataObject) -> None:
    """Of common keys, and of one that the architecture asks for."""
    asked = list[str]()

    class Asking(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            asked.append(key)
            return super().get(key, default)

    with TemporaryDirectory() as folder, open_gguf(tiny_model(Path(folder) / "m.gguf", arch, n_layers=1)) as file:
        file.metadata = Asking(file.metadata)
        load_graph(file)
        own = data.draw(st.sampled_from(sorted(set(asked) - {"general.architecture"})))
        file.metadata |= {f"{arch}.{k}": v for k, v in values.items()} | {own: data.draw(VALUES)}
        try:
            load_graph(file)
        except EdgeError as error:
            assert len(str(error)) < 400 and not isinstance(error.__cause__, GraphError)


@pytest.mark.parametrize(
    ("arch", "key"),
    [("deepseek2", "kv_lora_rank"), ("mistral4", "kv_lora_rank"), ("minicpm3", "key_length"), ("plm", "key_length")],
)
def test_queries_that_grow_have_an_even_length(tmp_path: Path, arch: str, key: str) -> None:
    with pytest.raises(BadHParam, match=rf"{arch}\.attention\.{key}: 33 is odd"):
        read(tmp_path, arch, metadata={f"{arch}.attention.{key}": 33, f"{arch}.attention.temperature_scale": 0.1})


def test_a_t5_encoder_sees_both_sides(tmp_path: Path) -> None:
    with pytest.raises(BadHParam, match=r"attention\.causal.*sees what comes after"):
        read(tmp_path, "t5encoder", metadata={"t5encoder.attention.causal": True})


def test_odd_rotary_dims(tmp_path: Path) -> None:
    with pytest.raises(BadHParam, match="7 rotary dims"):
        read(tmp_path, metadata={"llama.rope.dimension_count": 7})


def test_heads_must_divide_the_width_unless_the_file_gives_their_length(tmp_path: Path) -> None:
    with pytest.raises(BadHParam, match="3 does not divide embedding_length 64"):
        read(tmp_path, n_heads=3, n_kv_heads=3, metadata={"llama.attention.key_length": None})
    assert read(tmp_path, n_heads=3, n_kv_heads=3)[1].kv_states[0].dim_k == 16


def test_experts_are_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"has no experts, and the file has 4; take a dense model"):
        read(tmp_path, "qwen3", metadata={"qwen3.expert_count": 4})
    assert read(tmp_path, "qwen3", metadata={"qwen3.expert_count": 0})[0].n_layers == 2


def test_experts_have_a_width(tmp_path: Path) -> None:
    with pytest.raises(BadHParam, match="feed_forward_length: 0 is no width of experts"):
        read(tmp_path, "arctic", metadata={"arctic.feed_forward_length": 0})


def test_a_file_that_sees_both_ways_or_names_a_pooling_embeds(tmp_path: Path) -> None:
    for metadata, outputs, causal in (
        ({"llama.attention.causal": False}, {"embedding"}, False),
        ({"llama.attention.causal": True}, {"logits"}, True),
        ({"llama.pooling_type": 3}, {"embedding"}, True),
    ):
        graph = read(tmp_path, metadata=metadata)[1]
        assert graph.outputs.keys() == outputs and {state.causal for state in graph.kv_states} == {causal}
    with pytest.raises(BadHParam, match="'no' is not true or false"):
        read(tmp_path, metadata={"llama.attention.causal": "no"})


def test_vocabulary_must_fit_the_embedding(tmp_path: Path) -> None:
    assert read(tmp_path, tokenizer="bpe")[0].n_vocab == 273
    with pytest.raises(BadVocab, match=r"tokenizer.ggml.tokens: 273 tokens, but token_embd.weight has 272 rows"):
        read(tmp_path, tokenizer="bpe", n_vocab=272)
    with pytest.raises(BadVocab):
        read(tmp_path, tokenizer="bpe", n_vocab=274)
    with pytest.raises(BadTensorInfo, match="token embedding is missing"):
        read(tmp_path, tensors={"token_embd.weight": None})
    with pytest.raises(ShapeMismatch, match="two dimensions"):
        read(tmp_path, tensors={"token_embd.weight": np.ones(64, np.float32)})


@pytest.mark.parametrize("name", ["", None])
def test_architecture_must_be_named(name: str | None, tmp_path: Path) -> None:
    class Headless:
        path, metadata = str(tmp_path), {"general.architecture": name}

    with pytest.raises(FormatError, match=r"general\.architecture"):
        architecture_of(Headless())  # type: ignore[arg-type]  # all of a file that is looked at


def test_a_context_without_a_limit_sizes_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, metadata={"llama.context_length": 2**32 - 1})[0].context_length == 2**31 - 1


def test_norms_of_four_dims_and_embeddings_of_none(tmp_path: Path) -> None:
    """[64, 1, 1, 1] is a norm of 64, as ggml sees it; rows of nothing are the file's fault, not ours."""
    data = tmp_path / "four.gguf"
    tensors = [Tensor("output_norm.weight", (64, 1, 1, 1), 0, 256), Tensor("token_embd.weight", (64, 3, 1, 1), 0, 768)]
    data.write_bytes(gguf([], tensors))
    with open_gguf(data) as file:
        assert [info.shape for info in file.tensors.values()] == [(64,), (3, 64)]
    none = tiny_model(tmp_path / "none.gguf", tensors={"token_embd.weight": np.zeros((0, 64), np.float32)})
    with pytest.raises(ShapeMismatch, match="has 0 rows"), open_gguf(none) as file:
        load_graph(file)
