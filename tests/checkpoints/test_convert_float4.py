"""NVFP4 and MXFP4 checkpoints: files with the same codes and scales, and what GGUF cannot hold as floats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hf_checkpoints import IDS, config_of, tensors_of, write_safetensors

from edgellm.arch import load_graph
from edgellm.errors import BadTensorInfo, Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.reference import Reference
from edgellm.tools.convert import convert
from edgellm.weights import WeightStore

Array = npt.NDArray[Any]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
WIDER = {48: 64, 24: 64, 96: 128}
WIDE = {"hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 64, "head_dim": 16}
EXPERTS = ("qwen3_moe", "mixtral")
FORMS = ("modelopt", "compressed-tensors")


def wide(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Rows of whole blocks: a kind's shape at twice the width."""
    kept = name.startswith(("lm_head", "model.embed_tokens")) or name.endswith(".gate.weight")
    return tuple(n if kept and axis == 0 else WIDER.get(n, 2 * n) for axis, n in enumerate(shape))


def e4m3(byte: Array) -> Array:
    exponent, mantissa = (byte >> 3 & 15).astype(np.float64), (byte & 7).astype(np.float64)
    return np.where(exponent > 0, (1 + mantissa / 8) * 2.0 ** (exponent - 7), mantissa * 2.0**-9).astype(np.float32)


def write(folder: Path, kind: str, tensors: dict[str, Array], eights: list[str] | None = None, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(kind) | WIDE | config))
    write_safetensors(folder / "model.safetensors", tensors, dict.fromkeys(eights or [], "F8_E4M3"))
    return folder


def checkpoints(place: Path, kind: str, form: str, float4: str, *, packs: str = ".layers.", **config: Any) -> tuple[Path, Path]:
    """A packed checkpoint, and a plain one with the values that it means by definition. `packs`: what names of matrices have."""
    rng, packed, plain, eights = np.random.default_rng(0), dict[str, Array](), dict[str, Array](), list[str]()
    for name, array in tensors_of(kind).items():
        shape = wide(name, array.shape)
        if packs not in name or len(shape) < 2 or name.endswith(".gate.weight"):
            packed[name] = plain[name] = (np.ones(shape) if len(shape) < 2 else rng.normal(0, 0.1, shape)).astype(np.float32)
            continue
        rows, columns = shape
        group = 16 if float4 == "NVFP4" else 32
        codes, base = rng.integers(0, 16, shape), name.removesuffix(".weight")
        scales = rng.integers(*((0x30, 0x48) if group == 16 else (120, 125)), (rows, columns // group)).astype(np.uint8)
        factor = np.float32(rng.uniform(0.01, 0.05))
        pairs = (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)
        packed[f"{base}.weight" if form == FORMS[0] else f"{base}.weight_packed"] = pairs
        packed[f"{base}.weight_scale"] = scales
        sizes = (e4m3(scales) if group == 16 else np.exp2(scales - 127.0)).repeat(group, axis=1)
        if group == 16:
            eights.append(f"{base}.weight_scale")
            given = np.asarray(factor) if form == FORMS[0] else (1 / factor).reshape(1)
            packed |= {
                f"{base}.weight_scale_2" if form == FORMS[0] else f"{base}.weight_global_scale": given,
                f"{base}.input_scale" if form == FORMS[0] else f"{base}.input_global_scale": np.array([3], np.float32),
            }
            sizes = sizes * (given if form == FORMS[0] else 1 / given)
        plain[name] = (E2M1[codes] * sizes).astype(np.float32)
    return (
        write(place / "packed", kind, packed, eights, quantization_config={"quant_method": form}, **config),
        write(place / "plain", kind, plain, **config),
    )


def logits(path: str | Path) -> Array:
    gguf = open_gguf(path)
    with closing(WeightStore(gguf)) as weights:
        return Reference(load_graph(gguf)[1], weights).logits(IDS)


@pytest.mark.parametrize(
    ("kind", "form", "float4"),
    [
        ("llama", "modelopt", "NVFP4"),
        ("glm4", "compressed-tensors", "NVFP4"),
        ("qwen3_moe", "compressed-tensors", "NVFP4"),
        ("mixtral", "modelopt", "NVFP4"),
        ("llama", "compressed-tensors", "MXFP4"),
        ("qwen3_moe", "modelopt", "MXFP4"),
    ],
)
def test_codes_and_scales_stay_as_they_are(tmp_path: Path, kind: str, form: str, float4: str) -> None:
    packed, plain = checkpoints(tmp_path, kind, form, float4)
    done = convert(packed, tmp_path / "packed.gguf")
    wanted = convert(plain, tmp_path / "plain.gguf").path
    with open_gguf(done.path) as gguf, open_gguf(wanted) as other:
        types = {
            info.type.name
            for name, info in gguf.tensors.items()
            if name in other.tensors and name.startswith("blk.") and len(info.shape) > 1 and "gate_inp" not in name
        }
        scales = {name: info.shape for name, info in gguf.tensors.items() if name.endswith(".scale")}
        assert {name.removesuffix("scale") + "weight" for name in scales} <= other.tensors.keys()
        assert other.tensors.keys() == gguf.tensors.keys() - scales.keys()
    assert types == {float4}
    if kind in EXPERTS:
        assert done.type == {"NVFP4": "NVFP4", "MXFP4": "MXFP4_MOE"}[float4]
    assert any(f"{float4}, exactly" in note for note in done.notes)
    assert set(scales.values()) == (set() if float4 == "MXFP4" else {(1,), (4,)} if kind in EXPERTS else {(1,)})
    expected = logits(wanted)
    for path in (done.path, convert(packed, tmp_path / "f32.gguf", type_name="F32").path):
        np.testing.assert_allclose(logits(path), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def fused_experts(place: Path, change: Mapping[str, Array] | None = None) -> tuple[Path, Path]:
    """`checkpoints` of a Llama 4 whose fused experts are packed along their inputs, which come before their outputs. `change`:
    tensors that replace or join the packed ones.
    """
    rng, packed, plain = np.random.default_rng(0), dict[str, Array](), dict[str, Array]()
    config: dict[str, Any] = {"intermediate_size_mlp": 64, "quantization_config": {"quant_method": "modelopt"}}
    for name, array in tensors_of("llama4_text").items():
        shape = wide(name, array.shape)
        if ".experts." not in name:
            shape = (4, 64) if name.endswith(".router.weight") else shape
            packed[name] = plain[name] = (np.ones(shape) if len(shape) < 2 else rng.normal(0, 0.1, shape)).astype(np.float32)
            continue
        experts, inputs, outputs = 4, 64, 128 if "gate_up" in name else 64
        codes = rng.integers(0, 16, (experts, outputs, inputs))
        scales = rng.integers(0x30, 0x48, (experts, outputs, inputs // 16)).astype(np.uint8)
        factor = np.float32(rng.uniform(0.01, 0.05))
        packed[name] = (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8).swapaxes(1, 2)
        packed |= {
            f"{name}_weight_scale": scales.swapaxes(1, 2),
            f"{name}_weight_scale_2": np.asarray(factor),
            f"{name}_input_scale": np.array([3], np.float32),
        }
        plain[name] = (E2M1[codes] * e4m3(scales).repeat(16, axis=2) * factor).astype(np.float32).swapaxes(1, 2)
    packed |= change or {}
    eights = [name for name in packed if name.endswith("_weight_scale")]
    return write(place / "packed", "llama4_text", packed, eights, **config), write(place / "plain", "llama4_text", plain, **config)


def test_fused_experts_stay_as_they_are(tmp_path: Path) -> None:
    packed, plain = fused_experts(tmp_path)
    done, wanted = convert(packed, tmp_path / "packed.gguf"), convert(plain, tmp_path / "plain.gguf").path
    with open_gguf(done.path) as gguf, open_gguf(wanted) as other:
        for part in ("gate", "up", "down"):
            name = f"blk.1.ffn_{part}_exps"
            assert gguf.tensors[f"{name}.weight"].type.name == "NVFP4" and gguf.tensors[f"{name}.scale"].shape == (4,)
            assert gguf.tensors[f"{name}.weight"].shape == other.tensors[f"{name}.weight"].shape
    expected = logits(wanted)
    for path in (done.path, convert(packed, tmp_path / "f32.gguf", type_name="F32").path):
        np.testing.assert_allclose(logits(path), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"_weight_scale": np.zeros((4, 3, 64), np.uint8)}, BadTensorInfo, r"experts\.down_proj: the scales.*do not fit"),
        ({"_bias": np.zeros((4, 64), np.float32)}, Unsupported, r"experts\.down_proj: is U8"),
    ],
)
def test_fused_experts_that_cannot_be_divided_are_refused(
    tmp_path: Path, change: dict[str, Array], error: type[Exception], message: str
) -> None:
    """Nothing has a place for both biases of experts and numbers of their matrices."""
    name = "model.layers.1.feed_forward.experts.down_proj"
    packed, _ = fused_experts(tmp_path, {f"{name}{end}": array for end, array in change.items()})
    with pytest.raises(error, match=message):
        convert(packed, tmp_path / "m.gguf")


def test_matrices_whose_products_are_not_scaled_become_floats(tmp_path: Path) -> None:
    """A table of embeddings has no place for its number."""
    packed, plain = checkpoints(tmp_path, "llama", "modelopt", "NVFP4", packs="embed_tokens")
    done = convert(packed, tmp_path / "packed.gguf")
    stores = [WeightStore(open_gguf(path)) for path in (done.path, convert(plain, tmp_path / "f32.gguf", type_name="F32").path)]
    found, wanted = (np.array(store["token_embd.weight"].array()) for store in stores)
    assert stores[0]["token_embd.weight"].type.name == "BF16" and "token_embd.scale" not in stores[0].names()
    for store in stores:
        store.close()
    assert (np.abs(found - wanted) <= 2**-8 * np.abs(wanted)).all() and np.abs(wanted).max() > 0
    assert any("BF16, because the model has no place" in note for note in done.notes)


@pytest.mark.parametrize(
    ("part", "value", "error", "message"),
    [
        ("weight_scale", np.full((64, 3), 0x38, np.uint8), BadTensorInfo, "do not fit"),
        ("weight_scale", np.ones((64, 4), np.float32), Unsupported, "scales of F32"),
        ("weight_scale_2", np.array([1, 2], np.float32), BadTensorInfo, "one positive number"),
    ],
)
def test_parts_that_do_not_fit_are_refused(tmp_path: Path, part: str, value: Array, error: type[Exception], message: str) -> None:
    packed, _ = checkpoints(tmp_path, "llama", "modelopt", "NVFP4", packs="layers.0.mlp.up_proj")
    base = "model.layers.0.mlp.up_proj"
    rng = np.random.default_rng(1)
    tensors = {name: rng.normal(0, 0.1, wide(name, array.shape)).astype(np.float32) for name, array in tensors_of("llama").items()}
    tensors |= {
        f"{base}.weight": np.zeros((64, 32), np.uint8),
        f"{base}.weight_scale": np.full((64, 4), 0x38, np.uint8),
        f"{base}.weight_scale_2": np.array(1.0, np.float32),
        f"{base}.{part}": value,
    }
    eights = [f"{base}.weight_scale"] if tensors[f"{base}.weight_scale"].dtype == np.uint8 else []
    write(packed, "llama", tensors, eights)
    with pytest.raises(error, match=message):
        convert(packed, tmp_path / "m.gguf")
