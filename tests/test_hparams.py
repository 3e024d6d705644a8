"""Hyperparameters: what files say, what is assumed where they say nothing, and what is refused."""
from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import tiny_model

from edgellm.arch import load_graph, names
from edgellm.errors import BadHParam, BadTensorInfo, BadVocab, EdgeError, FormatError, ShapeMismatch, Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.hparams import Hparams, architecture_of


def read(path: Path, arch: str = "llama", **options: Any) -> Hparams:
    with open_gguf(tiny_model(path / "m.gguf", arch, **options)) as gguf:
        return Hparams.from_gguf(gguf)


def test_all_keys_arrive(tmp_path: Path) -> None:
    hparams = read(tmp_path, metadata={
        "llama.rope.dimension_count": 8, "llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 32, "llama.rope.scaling.attn_factor": 1.5,
        "llama.rope.scaling.yarn_attn_factor": 1.25, "llama.rope.scaling.yarn_ext_factor": 0.5,
        "llama.rope.scaling.yarn_beta_fast": 16.0, "llama.rope.scaling.yarn_beta_slow": 2.0,
        "llama.rope.freq_base_swa": 5000.0, "llama.attention.sliding_window": 9,
        "llama.attention.sliding_window_pattern": 2, "llama.attention.value_length": 16,
        "llama.attn_logit_softcapping": 50.0, "llama.final_logit_softcapping": 30.0,
    })
    scaling = hparams.rope_scaling
    assert (hparams.n_vocab, hparams.n_layers, hparams.n_embd, hparams.n_ff) == (96, 2, 64, 96)
    assert (hparams.n_heads, hparams.n_kv_heads, hparams.head_dim_k, hparams.head_dim_v) == (4, 2, 16, 16)
    assert (hparams.context_length, hparams.n_rot, hparams.rope_base, hparams.rope_base_swa) == (128, 8, 10000.0, 5000.0)
    assert hparams.eps == pytest.approx(1e-5)
    assert (scaling.kind, scaling.factor, scaling.original_context, scaling.attn_factor) == ("yarn", 4.0, 32, 1.5)
    assert (scaling.yarn_attn_factor, scaling.yarn_ext_factor) == (1.25, 0.5)
    assert (scaling.yarn_beta_fast, scaling.yarn_beta_slow) == (16.0, 2.0)
    assert (hparams.sliding_window, hparams.sliding_layers) == (9, (True, False))
    assert (hparams.attn_softcap, hparams.final_softcap) == (50.0, 30.0)


def test_what_is_assumed(tmp_path: Path) -> None:
    hparams = read(tmp_path, metadata={"llama.rope.freq_base": None, "llama.attention.key_length": None,
                                       "llama.attention.value_length": None})
    assert (hparams.head_dim_k, hparams.head_dim_v, hparams.n_rot, hparams.rope_base) == (16, 16, 16, 10000.0)
    assert hparams.rope_scaling.kind == "none" and hparams.rope_scaling.original_context == 128
    assert [hparams.sliding_window, hparams.sliding_layers, hparams.attn_softcap, hparams.final_softcap] == [None] * 4
    assert read(tmp_path, "gpt2").n_kv_heads == 4            # no key: as many as query heads
    assert read(tmp_path, metadata={"llama.attention.sliding_window": 0}).sliding_window is None
    assert read(tmp_path, metadata={"llama.rope.scaling.factor": 2.0}).rope_scaling.kind == "linear"
    assert read(tmp_path, metadata={"llama.rope.scale_linear": 2.0}).rope_scaling.factor == 2.0


def test_arrays_of_one_value_per_layer(tmp_path: Path) -> None:
    key = "llama.attention.head_count_kv"
    assert read(tmp_path, metadata={key: [2, 2], "llama.feed_forward_length": [96, 96]}).n_kv_heads == 2
    with pytest.raises(Unsupported, match=r"different sizes \(\[2, 4\]\)"):
        read(tmp_path, metadata={key: [2, 4]})
    with pytest.raises(BadHParam, match="3 values for 2 layers"):
        read(tmp_path, metadata={key: [2, 2, 2]})
    with pytest.raises(BadHParam, match="not an integer"):
        read(tmp_path, metadata={key: [2.0, 2.0]})


@pytest.mark.parametrize(("value", "flags"), [
    (3, (True, True, False, True)), (1, (False,) * 4), (0, (True,) * 4),
    ([False, True, True, False], (False, True, True, False)), ([0, 1, 1, 0], (False, True, True, False)),
])
def test_sliding_patterns(value: Any, flags: tuple[bool, ...], tmp_path: Path) -> None:
    key = "llama.attention.sliding_window_pattern"
    assert read(tmp_path, n_layers=4, metadata={key: value}).sliding_layers == flags


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(("key", "value"), [
    ("block_count", 0), ("block_count", 513), ("block_count", 2.0), ("block_count", "2"), ("block_count", True),
    ("block_count", [2]), ("block_count", None),
    ("context_length", 0), ("context_length", None), ("context_length", 2**31),
    ("embedding_length", 0), ("embedding_length", 2**25), ("feed_forward_length", 0), ("feed_forward_length", None),
    ("attention.head_count", 0), ("attention.head_count", None), ("attention.head_count_kv", 0),
    ("attention.head_count_kv", 3), ("attention.key_length", 0), ("attention.value_length", 0),
    ("attention.layer_norm_rms_epsilon", NAN), ("attention.layer_norm_rms_epsilon", -1e-6),
    ("attention.layer_norm_rms_epsilon", INF), ("attention.layer_norm_rms_epsilon", 1),
    ("attention.layer_norm_rms_epsilon", None), ("attention.layer_norm_rms_epsilon", "1e-5"),
    ("attention.sliding_window", -0.5), ("attention.sliding_window_pattern", [1]),
    ("attention.sliding_window_pattern", [0.0, 1.0]), ("attention.sliding_window_pattern", "LG"),
    ("rope.freq_base", 0.0), ("rope.freq_base", NAN), ("rope.freq_base", INF), ("rope.freq_base", -1e4),
    ("rope.freq_base", 1.0), ("rope.freq_base", 10000), ("rope.freq_base_swa", NAN),
    ("rope.dimension_count", 0), ("rope.dimension_count", 18), ("rope.scaling.type", "dynamic"),
    ("rope.scaling.type", 1), ("rope.scaling.factor", 0.0), ("rope.scaling.factor", NAN),
    ("rope.scaling.original_context_length", 1.5), ("rope.scaling.attn_factor", INF),
    ("rope.scaling.yarn_beta_fast", -1.0), ("rope.scaling.yarn_ext_factor", NAN),
    ("attn_logit_softcapping", -1.0), ("final_logit_softcapping", NAN), ("vocab_size", 95), ("expert_count", -1.0),
])
def test_bad_values_are_refused_by_key(key: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(BadHParam) as caught:
        read(tmp_path, metadata={f"llama.{key}": value})
    assert caught.value.field == f"llama.{key}" and str(tmp_path / "m.gguf") in str(caught.value)
    assert len(str(caught.value)) < len(str(tmp_path)) + 250


KEYS = (
    "block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
    "attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.sliding_window",
    "attention.sliding_window_pattern", "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon",
    "rope.dimension_count", "rope.freq_base", "rope.freq_base_swa", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.attn_factor", "rope.scaling.yarn_beta_fast",
    "attn_logit_softcapping", "final_logit_softcapping", "expert_count", "vocab_size",
    "attention.causal",
)
VALUES = st.one_of(
    st.integers(0, 70), st.sampled_from([127, 128, 2**31 - 1, 2**31, 2**32 - 1]), st.floats(width=32), st.booleans(),
    st.sampled_from(["", "none", "linear", "yarn", "longrope", "x" * 1000]),
    st.lists(st.integers(0, 5), min_size=1, max_size=4), st.lists(st.booleans(), min_size=1, max_size=4),
)


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(names()), st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=4))
def test_any_values_build_a_graph_or_end_in_a_typed_error(arch: str, values: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        path = tiny_model(Path(folder) / "m.gguf", arch, n_layers=1, metadata={f"{{arch}}.{k}": v for k, v in values.items()})
        with open_gguf(path) as gguf:
            try:
                load_graph(gguf)
            except EdgeError as error:
                assert len(str(error)) < 400


def test_odd_rotary_dims(tmp_path: Path) -> None:
    hparams = read(tmp_path, metadata={"llama.rope.dimension_count": 7})
    with pytest.raises(BadHParam, match="7 rotary dims"):
        hparams.rotary_dims()


def test_heads_must_divide_the_width_unless_the_file_gives_their_length(tmp_path: Path) -> None:
    with pytest.raises(BadHParam, match="3 does not divide embedding_length 64"):
        read(tmp_path, n_heads=3, n_kv_heads=3, metadata={"llama.attention.key_length": None})
    assert read(tmp_path, n_heads=3, n_kv_heads=3).head_dim_k == 16


def test_experts_are_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"a mixture of 4 experts \(as in Mixtral\).*; take a dense model"):
        read(tmp_path, metadata={"llama.expert_count": 4})
    assert read(tmp_path, metadata={"llama.expert_count": 0}).n_layers == 2


def test_embedding_models_are_refused_in_one_sentence(tmp_path: Path) -> None:
    """A llama file that sees what comes after would run and be wrong."""
    with pytest.raises(Unsupported, match=r"llama\.attention\.causal: a model that sees what comes after.*; take one that writes"):
        read(tmp_path, metadata={"llama.attention.causal": False})
    assert read(tmp_path, metadata={"llama.attention.causal": True}).n_layers == 2
    with pytest.raises(BadHParam, match="'no' is not true or false"):
        read(tmp_path, metadata={"llama.attention.causal": "no"})


def test_vocabulary_must_fit_the_embedding(tmp_path: Path) -> None:
    assert read(tmp_path, tokenizer="bpe").n_vocab == 273
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
        architecture_of(Headless())              # type: ignore[arg-type]  # all of a file that is looked at
