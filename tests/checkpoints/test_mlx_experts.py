"""Folders of MLX with the matrices of all experts in one: they run as they are, and convert exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import CONFIG, tiny_model

import edgellm
from edgellm.checkpoints.families import FAMILIES
from edgellm.formats.gguf import open_gguf
from edgellm.tools.convert import convert
from edgellm.weights import WeightStore

mx = pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")

IDS = [1, 5, 9, 20, 33, 7, 2, 60, 41]
SIZES = {"n_embd": 64, "n_ff": 64}
EXPERTS = CONFIG | {"intermediate_size": 64, "moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16, "truncate": False}
OWN: dict[str, dict[str, Any]] = {
    "qwen3_moe": {"norm_topk_prob": True},
    "qwen2_moe": {"norm_topk_prob": False, "shared_expert_intermediate_size": 64},
    "olmoe": {"norm_topk_prob": False},
    "gpt_oss": {"num_local_experts": 4, "sliding_window": 8, "rope_scaling": YARN, "swiglu_limit": 7.0, "swiglu_alpha": 1.702},
}
AFFINE, SMALL, ROUTER = {"group_size": 32, "bits": 4}, {"group_size": 32, "bits": 4, "mode": "mxfp4"}, {"group_size": 64, "bits": 8}
WAYS = {"affine": [AFFINE], "mxfp4": [SMALL], "mixed": [AFFINE, SMALL, {"group_size": 64, "bits": 5}]}


def theirs(kind: str, name: str) -> str:
    """The name of GGUF's tensor in a folder that mlx_lm wrote."""
    family = FAMILIES[kind]
    *block, part, suffix = name.split(".")
    if not block:
        outer = {ours: each for each, ours in family.outer.items()}[part]
        return f"{outer}.{suffix}" if outer == "lm_head" else f"model.{outer}.{suffix}"
    inner = {ours: each for each, ours in family.inner.items() if "*" not in each}
    bare = {ours: each for each, ours in family.bare.items()}
    experts = f"mlp.{'experts' if kind == 'gpt_oss' else 'switch_mlp'}.{part[4:-5]}_proj"
    if f"{part}.{suffix}" in bare and not part.endswith("_exps"):
        return f"model.layers.{block[1]}.{bare[f'{part}.{suffix}']}"
    return f"model.layers.{block[1]}.{experts if part.endswith('_exps') else inner[part]}.{suffix}"


def a_folder(path: Path, kind: str, way: str) -> tuple[Path, Path]:
    """A folder in two shards, and a GGUF file with the same values."""
    arch, quantisation, turn = FAMILIES[kind].architecture, dict[str, Any](AFFINE), 0
    tensors, values, folder = dict[str, Any](), dict[str, Any](), path / "model"
    with open_gguf(tiny_model(path / "plain.gguf", arch, **SIZES)) as gguf:
        weights = WeightStore(gguf)
        for name in weights.names():
            array, other = weights[name].array(), theirs(kind, name)
            value, base = mx.array(array).astype(mx.float16), other.removesuffix(".weight")
            if array.ndim < 2 or name.endswith("bias"):
                tensors[other] = mx.array(array)
                continue
            ways = WAYS[way]
            settings, turn = ROUTER if "gate_inp" in name else ways[turn % len(ways)], turn + 1
            parts = mx.quantize(value, **settings)
            tensors |= {f"{base}.{end}": part for end, part in zip(("weight", "scales", "biases"), parts, strict=False)}
            quantisation[base] = settings
            exact = [part.astype(mx.float32) if part.dtype == mx.float16 else part for part in parts]
            values[name] = np.array(mx.dequantize(*exact, **settings).astype(mx.float32))
    folder.mkdir()
    names = sorted(tensors)
    shards = {f"model-0000{i + 1}-of-00002.safetensors": names[i::2] for i in range(2)}
    for shard, mine in shards.items():
        mx.save_safetensors(str(folder / shard), {name: tensors[name] for name in mine}, metadata={"format": "mlx"})
    index = {"weight_map": {name: shard for shard, mine in shards.items() for name in mine}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps({"model_type": kind, **EXPERTS, **OWN[kind], "quantization": quantisation}))
    return folder, tiny_model(path / "same.gguf", arch, tensors=values, **SIZES)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", OWN)
def test_experts_run_and_convert(tmp_path: Path, kind: str, way: str) -> None:
    folder, same = a_folder(tmp_path, kind, way)
    with edgellm.load(same, backend="mlx", kv_type="f32") as model:
        wanted = model.logits(IDS)
    with edgellm.load(folder, backend="mlx", kv_type="f32") as model:
        assert np.abs(model.logits(IDS) - wanted).max() <= 1e-5 * np.abs(wanted).max()
    convert(folder, tmp_path / "converted.gguf")
    with open_gguf(tmp_path / "converted.gguf") as gguf:
        kinds = {name: tensor.type.name for name, tensor in gguf.tensors.items() if len(tensor.shape) > 1}
    assert {kinds[name] for name in kinds if name.endswith("_exps.weight")} <= {"Q4_1", "Q5_1", "MXFP4"}
    with edgellm.load(tmp_path / "converted.gguf", backend="mlx", kv_type="f32") as model:
        assert np.abs(model.logits(IDS) - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("kind", "theirs", "ours"),
    [
        ("nemotron_h, experts", "mixer.switch_mlp.fc1.weight", "ffn_up_exps.weight"),
        ("nemotron_h, experts", "mixer.switch_mlp.fc2.scales", "ffn_down_exps.scales"),
        ("nemotron_h, experts", "mixer.gate.e_score_correction_bias", "exp_probs_b.bias"),
        ("laguna", "mlp.gate.proj.weight", "ffn_gate_inp.weight"),
        ("laguna", "mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
        ("bailing_moe", "mlp.gate.gate_proj.weight", "ffn_gate_inp.weight"),
        ("bailing_moe, 1", "mlp.switch_mlp.gate_proj.weight", "ffn_gate_exps.weight"),
    ],
)
def test_what_mlx_lm_calls_experts(kind: str, theirs: str, ours: str) -> None:
    assert FAMILIES[kind].name(f"model.layers.3.{theirs}") == f"blk.3.{ours}"


def test_odd_scales_of_experts_are_refused_by_name(tmp_path: Path) -> None:
    folder, _ = a_folder(tmp_path, "qwen3_moe", "mxfp4")
    name = "model.layers.1.mlp.switch_mlp.down_proj.scales"
    shard = next(path for path in folder.glob("*.safetensors") if name in mx.load(str(path)))
    tensors = {key: np.array(value) for key, value in mx.load(str(shard)).items()}
    tensors[name] = tensors[name][:3]
    shard.unlink()
    mx.save_safetensors(str(shard), {key: mx.array(value) for key, value in tensors.items()}, metadata={"format": "mlx"})
    with pytest.raises(edgellm.EdgeError, match=r"layers\.1\.mlp\.switch_mlp\.down_proj\.weight.* scales of shape \(3, 64, 2\)"):
        edgellm.load(folder, backend="mlx")
