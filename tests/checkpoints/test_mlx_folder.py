"""Folders of the MLX community: the same numbers as a GGUF file with the same weights; tokenizer and template; refusals."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tiny_models import CONFIG, GPT2_CONFIG, tiny_model

import edgellm
from edgellm.checkpoints.config import rope_divisors
from edgellm.checkpoints.families import FAMILIES
from edgellm.checkpoints.folder import paired_rows
from edgellm.cli import app
from edgellm.formats.gguf import open_gguf
from edgellm.weights import WeightStore

mx = pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")

IDS = [1, 5, 9, 20, 33, 7, 2, 60, 41]


def a_folder(
    path: Path,
    kind: str,
    *,
    bits: int = 0,
    modes: Sequence[str] = (),
    config: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    factors: dict[str, Any] | None = None,
    n_ff: int = 96,
) -> tuple[Path, Path]:
    """A folder of the model type `kind`, and a GGUF file with the same values, `metadata` and divisors of angles.

    `modes`: how matrices are quantised, in turn.
    """
    family = FAMILIES[kind]
    sizes: dict[str, Any] = {"tied": kind == "gpt2", "n_kv_heads": 4 if kind == "gpt2" else 2, "n_ff": n_ff}
    plain = tiny_model(path / "plain.gguf", family.architecture, metadata=metadata, **sizes)
    theirs = {ours: name for name, ours in family.outer.items()}
    inner = {ours: name for name, ours in family.inner.items()}
    tensors, values, own, left = {}, {}, dict[str, Any](), itertools.cycle(modes)
    weights = WeightStore(open_gguf(plain))
    for name in weights.names():
        *block, part, suffix = name.split(".")
        inside = f"{'h' if kind == 'gpt2' else 'layers'}.{block[1]}.{inner[part]}" if block else theirs[part]
        other = inside if inside == "lm_head" else f"model.{inside}"
        array = weights[name].array()
        order = np.arange(len(array))
        if family.paired_rows and part in ("attn_q", "attn_k"):
            order = np.argsort(paired_rows(len(array), 4 if part == "attn_q" else 2, "", name))
        value = mx.array(array[order] - (1.0 if family.norms_from_zero and part.endswith("norm") else 0.0))
        tensors[f"{other}.{suffix}"] = value
        if modes and array.ndim == 2:
            mode = next(left)
            own[other] = {} if mode == "affine" else {"mode": mode}  # without a mode, affine is meant
            own[other] |= {"group_size": 64, "bits": 8} if mode == "affine" else {}
            parts = mx.quantize(value, **{"mode": mode} | own[other])
            tensors |= {f"{other}.{end}": part for end, part in zip(("weight", "scales", "biases"), parts, strict=False)}
            values[name] = np.array(mx.dequantize(*parts, **{"mode": mode} | own[other]).astype(mx.float32))[np.argsort(order)]
        if bits and array.ndim == 2:
            quants, scales, biases = mx.quantize(value, group_size=32, bits=bits)
            tensors |= {f"{other}.weight": quants, f"{other}.scales": scales, f"{other}.biases": biases}
            value = mx.dequantize(quants, scales, biases, group_size=32, bits=bits)
            values[name] = np.array(value)[np.argsort(order)]
    weights.close()
    folder = path / "model"
    folder.mkdir()
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, metadata={"format": "mlx"})
    quantised = {"quantization": {"group_size": 32, "bits": bits}} if bits else {}
    quantised |= {"quantization": {"group_size": 32, "bits": 4, "mode": modes[0]} | own} if modes else {}
    (folder / "config.json").write_text(
        json.dumps(
            {"model_type": kind, **CONFIG, **(GPT2_CONFIG if kind == "gpt2" else {}), "intermediate_size": n_ff}
            | quantised
            | (config or {})
        )
    )
    return folder, tiny_model(path / "same.gguf", family.architecture, tensors=values | (factors or {}), metadata=metadata, **sizes)


@pytest.mark.parametrize("bits", [0, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("kind", ["llama", "qwen3", "phi3", "gpt2"])
def test_the_same_numbers_as_gguf(tmp_path: Path, kind: str, bits: int) -> None:
    folder, gguf = a_folder(tmp_path, kind, bits=bits)
    with edgellm.load(gguf, backend="mlx", kv_type="f32") as model:
        wanted = model.logits(IDS)
    with edgellm.load(folder, backend="mlx", kv_type="f32") as model:
        assert np.abs(model.logits(IDS) - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("modes", [("mxfp4",), ("nvfp4",), ("mxfp8",), ("mxfp4", "affine", "nvfp4", "mxfp8")])
def test_small_floats_and_mixtures(tmp_path: Path, modes: tuple[str, ...]) -> None:
    folder, gguf = a_folder(tmp_path, "qwen3", modes=modes, n_ff=128)
    with edgellm.load(gguf, backend="mlx", kv_type="f32") as model:
        wanted = model.logits(IDS)
    with edgellm.load(folder, backend="mlx", kv_type="f32") as model:
        assert np.abs(model.logits(IDS) - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("end", "change", "message"),
    [
        ("scales", lambda scales: scales.astype(mx.float16), r"q_proj\.scales.* is F16, which no scale of mxfp4 is"),
        ("scales", lambda scales: scales[:, :1], r"q_proj\.weight.* has scales of shape \(64, 1\) for 64 rows of 64"),
    ],
)
def test_odd_scales_are_refused_by_name(tmp_path: Path, end: str, change: Callable[[Any], Any], message: str) -> None:
    folder, _ = a_folder(tmp_path, "qwen3", modes=("mxfp4",), n_ff=128)
    path, name = folder / "model.safetensors", f"model.layers.0.self_attn.q_proj.{end}"
    tensors = mx.load(str(path))
    path.unlink()
    mx.save_safetensors(str(path), {**tensors, name: change(tensors[name])}, metadata={"format": "mlx"})
    with pytest.raises(edgellm.EdgeError, match=message):
        edgellm.load(folder, backend="mlx")


@pytest.mark.parametrize("kind", ["mistral", "qwen2", "gemma3_text"])
def test_plain_folders_run_on_both_back_ends(tmp_path: Path, kind: str) -> None:
    own = {"sliding_window": 8, "query_pre_attn_scalar": CONFIG["head_dim"]} if kind == "gemma3_text" else {"sliding_window": None}
    folder, gguf = a_folder(tmp_path, kind, config=own)
    with edgellm.load(gguf, threads=1, kv_type="f32") as model:
        wanted = model.logits(IDS)
    for backend in ("cpu", "mlx"):
        with edgellm.load(folder, backend=backend, threads=1, kv_type="f32") as model:
            assert np.abs(model.logits(IDS) - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_groups_of_mlx_go_to_mlx_by_themselves_and_the_cpu_refuses_them(tmp_path: Path) -> None:
    folder, _ = a_folder(tmp_path, "llama", bits=4)
    with edgellm.load(folder) as model:
        assert model.backend == "mlx" and "MLX" in model.info.place
    with pytest.raises(edgellm.EdgeError, match='backend="mlx"'):
        edgellm.load(folder, backend="cpu")


def test_fit_takes_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also with weights that the CPU cannot read, whose speed is not measured."""
    for bits, options in ((0, ["--no-timing"]), (4, [])):
        (tmp_path / str(bits)).mkdir()
        folder, _ = a_folder(tmp_path / str(bits), "llama", bits=bits)
        assert app.run(["fit", str(folder), "--json", *options]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["runs"] is True and facts["memory"][0]["fits"] and facts["tokens_per_second"] is None
        assert facts["advice"].startswith(f"it fits: edgellm chat {folder}")


def test_llama3_divides_slow_pairs_only() -> None:
    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    divisors = rope_divisors({"head_dim": 128, "rope_theta": 500000.0, "rope_scaling": rope}, "")["rope_freqs.weight"]
    assert divisors[0] == 1.0 and divisors[-1] == 8.0 and (np.diff(divisors) >= 0).all()
    assert rope_divisors(CONFIG, "") == {}


@pytest.mark.parametrize("context", [64, 128])
def test_phi3_longrope_is_as_in_gguf(tmp_path: Path, context: int) -> None:
    """Partial rotation, and the long or short divisors by the context; gold is the same file as GGUF, on the NumPy-checked CPU."""
    rng = np.random.default_rng(3)
    long, short = (rng.uniform(1, 4, 4).astype(np.float32) for _ in range(2))
    scaling = {"type": "longrope", "long_factor": long.tolist(), "short_factor": short.tolist()}
    config = {"rope_scaling": scaling, "original_max_position_embeddings": 64, "partial_rotary_factor": 0.5, "sliding_window": 6}
    metadata = {
        "phi3.rope.dimension_count": 8,
        "phi3.rope.scaling.type": "longrope",
        "phi3.attention.sliding_window": 6,
        "phi3.rope.scaling.original_context_length": 64,
        "phi3.rope.scaling.attn_factor": (1 + 1 / 6) ** 0.5,
    }
    folder, gguf = a_folder(
        tmp_path,
        "phi3",
        config=config,
        metadata=metadata,
        factors={"rope_factors_long.weight": long, "rope_factors_short.weight": short},
    )
    with edgellm.load(gguf, backend="cpu", threads=1, kv_type="f32", context=context) as model:
        wanted = model.logits(IDS)
    with edgellm.load(folder, backend="mlx", kv_type="f32", context=context) as model:
        assert np.abs(model.logits(IDS) - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_its_tokenizer_and_template(tmp_path: Path) -> None:
    """Byte-level BPE gives the ids of the tokenizers library; begin, end and the chat template are found."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(["the cat sat on the mat, and the hat sat on the cat"] * 20, trainer)
    rows = made.get_vocab_size() + 5
    table = np.random.default_rng(0).standard_normal((rows, 64)).astype(np.float32)
    folder, _ = a_folder(tmp_path, "qwen2", config={"vocab_size": rows, "eos_token_id": 0})
    tensors = mx.load(str(folder / "model.safetensors"))
    mx.save_safetensors(
        str(folder / "model.safetensors"),
        {**tensors, "model.embed_tokens.weight": mx.array(table), "lm_head.weight": mx.array(table)},
    )
    made.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    with edgellm.load(folder, backend="mlx") as model:
        text = "the mat, naïve"
        assert list(model.tokenizer.encode(text, add_special=False)) == made.encode(text).ids
        assert model.tokenizer.eog_ids == {0} and model.has_template and model.n_vocab == rows
        assert model.chat([{"role": "user", "content": "the cat"}], max_tokens=3, temperature=0).stats.prompt_tokens


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.json", '{"model_type": "rwkv"}', "rwkv"),
        ("config.json", "{", "JSON is broken"),
        ("config.json", '{"model_type": "llama"}', "for 32 heads"),
        ("config.json", '{"model_type": "gpt2", "n_embd": "x"}', "is not an integer"),
        ("config.json", json.dumps({"model_type": "phi3"} | CONFIG | {"rope_scaling": {"type": "su"}}), "long_factor"),
        (
            "config.json",
            json.dumps({"model_type": "phi3", **CONFIG, "rope_scaling": {"type": "su", "long_factor": ["a"]}}),
            "numbers",
        ),
        ("model.safetensors", "xx", "model.safetensors"),
    ],
)
def test_damaged_folders_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    folder, _ = a_folder(tmp_path, "llama")
    (folder / name).write_text(text)
    with pytest.raises(edgellm.EdgeError, match=message):
        edgellm.load(folder, backend="mlx")


def test_quantisation_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder, _ = a_folder(tmp_path, "llama", bits=4)
    cases = ({"bits": 4, "mode": "nvfp8"}, "nvfp8"), ({"bits": 7}, "7 bits"), ({"bits": 3}, "scales of shape")
    for quantisation, message in cases:
        (folder / "config.json").write_text(json.dumps({"model_type": "llama", **CONFIG, "quantization": quantisation}))
        with pytest.raises(edgellm.EdgeError, match=message):
            edgellm.load(folder, backend="mlx")
    shutil.rmtree(folder)
