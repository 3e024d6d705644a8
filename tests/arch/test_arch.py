"""Every architecture of the folder, on tiny files: it builds, it verifies, it refuses what it cannot run."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import ROOT
from tiny_encoders import writers
from tiny_families import FIRST
from tiny_models import QUANTS, tiny_model
from variants import CONTEXT, GOLD, ROWS, VARIANTS, fingerprint, tokens

from edgellm.arch import find, load_graph, names
from edgellm.errors import BadHParam, BadTensorInfo, ShapeMismatch, Unreadable, Unsupported
from edgellm.formats.codecs import CODECS
from edgellm.formats.gguf import open_gguf
from edgellm.passes import optimise
from edgellm.reference import Reference
from edgellm.spec import matrices, vectors
from edgellm.weights import WeightStore

ARCHITECTURES = writers()
OPTIONAL = {"gemma4": ("blk.0.layer_output_scale.weight",)}  # tensors that files may lack
OUTPUTS = {"mamba": "ssm_out", "mamba2": "ssm_out"} | dict.fromkeys(  # of a block's mixer
    ("arwkv7", "rwkv6", "rwkv6qwen2", "rwkv7"), "time_mix_output"
)


def test_the_folder_is_the_list() -> None:
    assert {"gemma3", "gpt2", "llama", "phi3", "qwen2", "qwen3", "command-r"} <= set(ARCHITECTURES)
    assert not any(name.startswith("_") for name in names())


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_page_of_models_lists_those_with_gold(arch: str) -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    gold = [name for name, variant in VARIANTS.items() if variant.arch == arch and (GOLD / f"{name}.npz").is_file()]
    assert (f"`{arch}`" in page) == bool(gold)


def test_some_architectures_have_gold() -> None:
    assert {"llama", "gemma3", "gpt2", "qwen3", "mamba2", "deepseek2"} <= {variant.arch for variant in VARIANTS.values()}


@pytest.mark.parametrize("arch", FIRST)
@pytest.mark.parametrize("quant", QUANTS)
def test_every_type_runs_as_its_decoded_weights_do(arch: str, quant: str, tmp_path: Path) -> None:
    gguf = open_gguf(tiny_model(tmp_path / "q.gguf", arch, quant, n_layers=1))
    weights = WeightStore(gguf)
    decoded = {name: weights[name].array() for name in weights.names()}
    assert quant in {weights[name].type.name for name in decoded if name.startswith("blk")}
    ids = [5, 80, 3, 41]
    logits = Reference(load_graph(gguf)[1], weights).logits(ids)
    assert np.isfinite(logits).all() and logits.std() > 0.1
    wide: dict[str, Any] = {"n_embd": 256, "n_ff": 256, "head_dim": 64} if CODECS[quant].n == 256 else {}
    plain = open_gguf(tiny_model(tmp_path / "f.gguf", arch, tensors=decoded, n_layers=1, **wide))
    assert np.array_equal(logits, Reference(load_graph(plain)[1], WeightStore(plain)).logits(ids))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_tensor_is_needed_by_name(arch: str, tmp_path: Path) -> None:
    with open_gguf(tiny_model(tmp_path / "m.gguf", arch, n_layers=1)) as gguf:
        graph = load_graph(gguf)[1]
        assert matrices(graph).keys() | vectors(graph).keys() == gguf.tensors.keys()
    needed = [name for name in matrices(graph).keys() | vectors(graph).keys() if name.endswith(".weight")]
    for name in set(needed) - {"output.weight", "token_embd.weight", *OPTIONAL.get(arch, ())}:
        with (
            pytest.raises((BadTensorInfo, Unsupported)) as caught,
            open_gguf(tiny_model(tmp_path / "less.gguf", arch, n_layers=1, tensors={name: None})) as gguf,
        ):
            load_graph(gguf)
        assert name in str(caught.value) or isinstance(caught.value, Unsupported)  # half of an optional pair is left then


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_tied_file_uses_the_embedding(arch: str, tmp_path: Path) -> None:
    with open_gguf(tiny_model(tmp_path / "m.gguf", arch, tied=True)) as gguf:
        assert "output.weight" not in gguf.tensors
        assert [node.weights[0] for node in load_graph(gguf)[1].nodes if node.op == "matmul"][-1] == "token_embd.weight"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_optional_biases_count(arch: str, tmp_path: Path) -> None:
    bias = {f"blk.0.{OUTPUTS.get(arch, 'attn_output')}.bias": np.linspace(-1.0, 1.0, 64, dtype=np.float32)}
    results = []
    for tensors in ({}, bias):
        gguf = open_gguf(tiny_model(tmp_path / "m.gguf", arch, tensors=tensors))
        results.append(Reference(load_graph(gguf)[1], WeightStore(gguf)).logits([7, 8, 9]))
    assert np.abs(results[0] - results[1]).max() > 1e-2


def test_wrong_shapes_and_strange_tensors(tmp_path: Path) -> None:
    with (
        pytest.raises(ShapeMismatch, match=r"blk.1.attn_k.weight: has shape \(32, 60\).*needs \(32, 64\)"),
        open_gguf(tiny_model(tmp_path / "m.gguf", tensors={"blk.1.attn_k.weight": np.ones((32, 60), np.float32)})) as gguf,
    ):
        load_graph(gguf)
    with (
        pytest.raises(ShapeMismatch, match=r"position_embd\.weight"),
        open_gguf(tiny_model(tmp_path / "m.gguf", "gpt2", metadata={"gpt2.context_length": 256})) as gguf,
    ):
        load_graph(gguf)
    with (
        pytest.raises(Unsupported, match=r"blk\.0\.ffn_gate_inp\.weight"),
        open_gguf(tiny_model(tmp_path / "m.gguf", tensors={"blk.0.ffn_gate_inp.weight": np.ones((4, 64), np.float32)})) as gguf,
    ):
        load_graph(gguf)
    with pytest.raises(BadHParam, match="rotary"), open_gguf(tiny_model(tmp_path / "m.gguf", head_dim=15)) as gguf:
        load_graph(gguf)


@pytest.mark.parametrize(
    ("name", "closest"),
    [
        ("gemma4-assistant", "gemma3"),
        ("granite_switch", "granite"),
        ("qwen2audio", "qwen2"),
        ("phi9", "phi3"),
        ("gptj", "gpt2"),
        ("_blocks", "llama"),
        ("../llama", "llama"),
        ("llama.x", "llama"),
        ("x" * 500, "llama"),
    ],
)
def test_other_architectures_are_refused_in_one_sentence(name: str, closest: str) -> None:
    with pytest.raises(Unsupported) as caught:
        find(name, "m.gguf")
    text = str(caught.value)
    assert name[:64] in text and f"such as {closest} " in text and "\n" not in text and len(text) < 300


def test_a_dense_architecture_refuses_experts(tmp_path: Path) -> None:
    with (
        open_gguf(tiny_model(tmp_path / "m.gguf", "qwen3", metadata={"{arch}.expert_count": 8})) as gguf,
        pytest.raises(Unsupported, match="no experts, and the file has 8"),
    ):
        load_graph(gguf)


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_agree_with_transformers(name: str, tmp_path: Path) -> None:
    """1e-5 of the largest logit: float32 noise; the variants' settings move logits by 1e-2 and more."""
    variant, gold = VARIANTS[name], np.load(GOLD / f"{name}.npz")
    gguf = open_gguf(variant.write(tmp_path / "m.gguf"))
    weights = WeightStore(gguf)
    assert fingerprint({key: weights[key].array() for key in weights.names()}) == gold["fingerprint"], (
        "NumPy draws other weights than when the gold was made: run tests/data/make_gold.py again"
    )
    keys, graph = load_graph(gguf, min(CONTEXT, variant.sizes.get("context", 128)))
    logits = Reference(optimise(graph), weights).logits(tokens(keys.n_vocab))[list(ROWS)]
    assert np.abs(logits - gold["logits"]).max() <= 1e-5 * np.abs(gold["logits"]).max()


def test_longrope_takes_its_factors_by_the_configured_context(tmp_path: Path) -> None:
    with open_gguf(VARIANTS["phi3-long"].write(tmp_path / "m.gguf")) as gguf:
        texts = [str(load_graph(gguf, context)[1]) for context in (64, 65)]
    assert "rope_factors_short" in texts[0] and "rope_factors_long" not in texts[0]
    assert "rope_factors_long" in texts[1] and "rope_factors_short" not in texts[1]


def test_the_largest_gemma3_scales_queries_by_width_per_head(tmp_path: Path) -> None:
    scales = []
    for n_layers in (61, 62):
        with open_gguf(tiny_model(tmp_path / "m.gguf", "gemma3", n_layers=n_layers, n_embd=32, n_heads=1, n_kv_heads=1)) as gguf:
            nodes = load_graph(gguf)[1].nodes
            scales.append({node.attrs["scale"] for node in nodes if node.op == "attend"})
    assert scales == [{16**-0.5}, {32**-0.5}]


def test_too_many_open_files_are_no_unknown_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: object) -> list[str]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("edgellm.arch._NAMES", [])
    monkeypatch.setattr("edgellm.arch.pkgutil.iter_modules", lambda path: iter(()))
    monkeypatch.setattr("edgellm.arch.os.listdir", refused)
    with pytest.raises(Unreadable, match=r"m\.gguf: cannot be loaded.*Too many open files.*ulimit -n"):
        find("llama", "m.gguf")
