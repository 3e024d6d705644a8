"""Checkpoints whose matrices have scales beside them: MXFP4, 8-bit floats, and BitNet's packed weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_checkpoints import IDS, tensors_of, write_checkpoint, write_safetensors

import edgellm
from edgellm.checkpoints.packings.ternary import ternary
from edgellm.errors import BadTensorInfo
from edgellm.formats.gguf import open_gguf
from edgellm.formats.safetensors import open_safetensors
from edgellm.tools.convert import convert
from edgellm.weights import WeightStore

FP4 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0], np.float32)
BLOCK = "model.layers.0"


def test_mxfp4_experts_stay_mxfp4(tmp_path: Path) -> None:
    """Blocks keep every bit; gates and products come by turns, and neighbours share a byte, as gpt-oss has them."""
    rng, tensors, wide, inner = np.random.default_rng(0), dict[str, Any](), 32, 64
    plain: dict[str, Any] = {}
    for layer in range(2):
        place = f"model.layers.{layer}.mlp.experts"
        for part, rows, columns in (("gate_up_proj", 2 * inner, wide), ("down_proj", wide, inner)):
            blocks = rng.integers(0, 256, (4, rows, columns // 32, 16), dtype=np.uint8)
            scales = rng.integers(122, 127, (4, rows, columns // 32), dtype=np.uint8)
            values = np.stack([FP4[blocks & 15], FP4[blocks >> 4]], axis=-1).reshape(*scales.shape, 32)
            values = np.ldexp(values, scales[..., None].astype(int) - 127).reshape(4, rows, columns)
            tensors |= {f"{place}.{part}_blocks": blocks, f"{place}.{part}_scales": scales}
            plain[f"{place}.{part}"] = np.ascontiguousarray(values.swapaxes(1, 2))
        plain[f"{place}.gate_up_proj_bias"] = rng.standard_normal((4, 2 * inner)).astype(np.float32)
    biases = {name: array for name, array in plain.items() if name.endswith("bias")}
    rest = {name: array for name, array in tensors_of("gpt_oss").items() if not name.endswith(("gate_up_proj", "down_proj"))}
    logits = {}
    for name, more in (("packed", rest | biases | tensors), ("plain", rest | plain)):
        folder = tmp_path / name
        write_checkpoint(folder, "gpt_oss", intermediate_size=inner)
        write_safetensors(folder / "model.safetensors", more)
        done = convert(folder, tmp_path / f"{name}.gguf", type_name=None if name == "packed" else "F32")
        with edgellm.load(done.path, context=64, kv_type="f32", threads=1, backend="cpu") as model:
            logits[name] = model.logits(IDS)
    with open_gguf(tmp_path / "packed.gguf") as gguf:
        assert {info.type.name for name, info in gguf.tensors.items() if name.endswith("_exps.weight")} == {"MXFP4"}
    weights = WeightStore(open_gguf(tmp_path / "packed.gguf"))
    values = plain[f"{BLOCK}.mlp.experts.gate_up_proj"]
    assert np.array_equal(weights["blk.0.ffn_up_exps.weight"].array(), values[:, :, 1::2].swapaxes(1, 2))
    assert np.array_equal(weights["blk.0.ffn_gate_exps.weight"].array(), values[:, :, ::2].swapaxes(1, 2))
    assert np.array_equal(weights["blk.0.ffn_gate_exps.bias"].array(), plain[f"{BLOCK}.mlp.experts.gate_up_proj_bias"][:, ::2])
    weights.close()
    assert np.abs(logits["packed"] - logits["plain"]).max() < 0.1 * np.abs(logits["plain"]).max()


@pytest.mark.parametrize(("scale", "name"), [((2, 1), "weight_scale_inv"), ((48, 1), "weight_scale"), ((), "weight_scale")])
def test_eight_bit_floats_times_their_scales(tmp_path: Path, scale: tuple[int, ...], name: str) -> None:
    """One scale for blocks of 32 rows, for each row, or for all."""
    quants = np.tile(np.array([0x38, 0xB8, 0x7E, 0x01, 0x40, 0x00, 0x08, 0x3C], np.uint8), (48, 4))
    values = np.tile(np.array([1.0, -1.0, 448.0, 2.0**-9, 2.0, 0.0, 2.0**-6, 1.5], np.float32), (48, 4))
    scales = 2.0 ** -np.arange(np.prod(scale, dtype=int)).reshape(scale).astype(np.float32)
    matrix = f"{BLOCK}.mlp.up_proj"
    tensors = {key: array for key, array in tensors_of("llama").items() if key != f"{matrix}.weight"}
    folder = write_checkpoint(tmp_path / "hf", "llama", quantization_config={"quant_method": "fp8", "weight_block_size": [32, 32]})
    write_safetensors(
        folder / "model.safetensors",
        tensors | {f"{matrix}.weight": quants, f"{matrix}.{name}": scales},
        {f"{matrix}.weight": "F8_E4M3"},
    )
    done = convert(folder, tmp_path / "model.gguf")
    weights = WeightStore(open_gguf(done.path))
    spread = scales.repeat(32, axis=0)[:48] if scale == (2, 1) else scales
    assert weights["blk.0.ffn_up.weight"].type.name == "BF16"
    assert np.array_equal(weights["blk.0.ffn_up.weight"].array(), values * spread)
    weights.close()
    wrong = {f"{matrix}.weight": quants, f"{matrix}.{name}": np.ones((3, 5), np.float32)}
    write_safetensors(folder / "model.safetensors", tensors | wrong, {f"{matrix}.weight": "F8_E4M3"})
    with pytest.raises(BadTensorInfo, match="up_proj"):
        convert(folder, tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("more", "config"),
    [
        (("up_proj.activation_scale", "up_proj.input_scale"), {}),
        (("k_scale", "v_scale", "q_scale", "kv_scale"), {}),
        ((), {"config_groups": {"group_0": {"weights": {"block_structure": [32, 16]}}}}),
    ],
)
def test_scales_of_activations_and_of_other_writers(tmp_path: Path, more: tuple[str, ...], config: dict[str, Any]) -> None:
    matrix = f"{BLOCK}.mlp.up_proj.weight"
    scales = np.float32([[1, 2], [4, 8]]) if config else np.float32(2.0)
    tensors: dict[str, Any] = {key: array for key, array in tensors_of("llama").items() if key != matrix}
    tensors |= {matrix: np.full((48, 32), 0x38, np.uint8), f"{matrix}_scale": scales}
    tensors |= {f"{BLOCK}.mlp.{name}": np.float32([3.0]) for name in more}
    folder = write_checkpoint(tmp_path / "hf", "llama", quantization_config={"quant_method": "compressed-tensors"} | config)
    write_safetensors(folder / "model.safetensors", tensors, {matrix: "F8_E4M3"})
    wanted = np.broadcast_to(scales.repeat(32, axis=0)[:48].repeat(16, axis=1) if config else scales, (48, 32))
    assert np.array_equal(values_of(folder, "blk.0.ffn_up.weight"), wanted)


PACKED = np.random.default_rng(0).integers(-1, 2, (48, 32))  # the values of a matrix


def packed(values: Any) -> Any:
    """Four in a byte, each from another quarter of the rows."""
    return sum((part + 1) << 2 * i for i, part in enumerate(np.split(values, 4))).astype(np.uint8)


@pytest.mark.parametrize(("linear_class", "factor"), [("bitlinear", 0.25), ("autobitlinear", 4.0)])
def test_bitnet_packed(tmp_path: Path, linear_class: str, factor: float) -> None:
    """transformers divides by the scales of one class and multiplies by those of the other; the folder runs and converts."""
    name = f"{BLOCK}.mlp.up_proj"
    settings = {"quant_method": "bitnet", "quantization_mode": "offline", "linear_class": linear_class}
    folder = write_checkpoint(tmp_path / "hf", "bitnet", quantization_config=settings)
    tensors = tensors_of("bitnet") | {f"{name}.weight": packed(PACKED), f"{name}.weight_scale": np.float32([4.0])}
    write_safetensors(folder / "model.safetensors", tensors)
    plain = write_checkpoint(tmp_path / "plain", "bitnet", tensors={f"{name}.weight": np.float32(PACKED * factor)})
    found = []
    for path in (plain, folder, convert(folder, tmp_path / "m.gguf").path):
        with edgellm.load(path, context=64, kv_type="f32", threads=1, backend="cpu") as model:
            found.append(model.logits(IDS))
    assert max(np.abs(each - found[0]).max() for each in found) <= 1e-5 * np.abs(found[0]).max()


def test_bitnet_packed_in_whole_blocks(tmp_path: Path) -> None:
    """As TQ2_0 of scale 1; mlx_lm's BitNet multiplies by its scales whatever the class."""
    values = np.random.default_rng(1).integers(-1, 2, (16, 512))
    write_safetensors(tmp_path / "a.safetensors", {"a.weight": packed(values), "a.weight_scale": np.float32([4.0])})
    with open_safetensors(tmp_path / "a.safetensors") as file:
        found = ternary(file, {"model_type": "bitnet"})
        assert found.tensors["a.weight"].dtype == "TQ2_0" and found.tensors.keys() == {"a.weight", "a.scale"}
        assert np.array_equal(found.array("a.weight"), values) and found.array("a.scale") == 0.25
        assert found.raw("a.weight") is found.raw("a.weight"), "back ends remember addresses"
        file.metadata = {"format": "mlx"}
        assert ternary(file, {"model_type": "bitnet"}).array("a.scale") == 4.0
        assert ternary(file, {"model_type": "llama"}).array("a.scale") == 0.25


def test_bitnet_packed_beside_groups_of_mlx(tmp_path: Path) -> None:
    """mlx_lm quantises the embedding alone; it becomes the type that holds its groups exactly."""
    mx: Any = pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    name, table = f"{BLOCK}.mlp.up_proj", "model.embed_tokens"
    tensors = {key: mx.array(values) for key, values in tensors_of("bitnet").items() if key != f"{table}.weight"}
    parts = mx.quantize(mx.array(tensors_of("bitnet")[f"{table}.weight"]).astype(mx.float16), group_size=32, bits=4)
    tensors |= {f"{table}.{end}": part for end, part in zip(("weight", "scales", "biases"), parts, strict=True)}
    tensors |= {f"{name}.weight": mx.array(packed(PACKED)), f"{name}.weight_scale": mx.array([4.0])}
    folder = write_checkpoint(tmp_path / "hf", "bitnet", quantization={"group_size": 32, "bits": 4})
    (folder / "model.safetensors").unlink()
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, metadata={"format": "mlx"})
    found = []
    for path in (folder, convert(folder, tmp_path / "m.gguf").path):
        with edgellm.load(path, context=64, kv_type="f32", backend="mlx") as model:
            found.append(model.logits(IDS))
    assert np.abs(found[0] - found[1]).max() <= 1e-5 * np.abs(found[0]).max()
    with open_gguf(tmp_path / "m.gguf") as gguf:
        assert gguf.tensors["token_embd.weight"].type.name == "Q4_1"


def test_bitnet_quantised_as_it_runs(tmp_path: Path) -> None:
    """Plain weights that the model rounds to -1, 0 or 1 times a size."""
    plain = (0.5 * PACKED + np.random.default_rng(0).uniform(-0.1, 0.1, PACKED.shape)).astype(np.float32)
    online = {"quant_method": "bitnet", "quantization_mode": "online", "linear_class": "autobitlinear"}
    folder = write_checkpoint(tmp_path / "hf", "bitnet", tensors={f"{BLOCK}.mlp.up_proj.weight": plain}, quantization_config=online)
    wanted = PACKED * np.abs(plain).mean()
    assert np.abs(values_of(folder, "blk.0.ffn_up.weight") - wanted).max() < 1e-6


def values_of(folder: Path, name: str) -> Any:
    weights = WeightStore(open_gguf(convert(folder, folder / "model.gguf", type_name="F32").path))
    values = np.array(weights[name].array())
    weights.close()
    return values
