"""Projector files of checkpoints: names, shapes and keys that the encoders load, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_checkpoints import tensors_of, write_checkpoint, write_safetensors
from tiny_projectors import FF, LAYERS, OUT, N

import edgellm
from edgellm.cli.app import run
from edgellm.errors import BadHParam, EdgeError, OptionError, Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.loading.image_encoder import ImageEncoder
from edgellm.tools.hf_projector import convert_projector

Shapes = dict[str, tuple[int, ...]]


def siglip(prefix: str) -> Shapes:
    shapes: Shapes = {
        f"{prefix}.embeddings.patch_embedding.weight": (N, 3, 8, 8),
        f"{prefix}.embeddings.patch_embedding.bias": (N,),
    }
    shapes |= {f"{prefix}.embeddings.position_embedding.weight": (64, N), f"{prefix}.head.probe": (1, 1, N)}
    linear = {"self_attn.q_proj": (N, N), "self_attn.k_proj": (N, N), "self_attn.v_proj": (N, N), "self_attn.out_proj": (N, N)}
    linear |= {"mlp.fc1": (FF, N), "mlp.fc2": (N, FF)}
    norms = ["post_layernorm"]
    for layer in range(LAYERS):
        norms += [f"encoder.layers.{layer}.layer_norm1", f"encoder.layers.{layer}.layer_norm2"]
        for name, shape in linear.items():
            shapes |= {f"{prefix}.encoder.layers.{layer}.{name}.weight": shape}
            shapes |= {f"{prefix}.encoder.layers.{layer}.{name}.bias": shape[:1]}
    return shapes | {f"{prefix}.{norm}.{end}": (N,) for norm in norms for end in ("weight", "bias")}


def qwen2(gated: bool) -> Shapes:
    linear = {"attn.qkv": (3 * N, N), "attn.proj": (N, N)}
    linear |= {f"mlp.{name}": (FF, N) for name in (("gate_proj", "up_proj") if gated else ("fc1",))}
    linear |= {"mlp.down_proj" if gated else "mlp.fc2": (N, FF)}
    linear = {f"blocks.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in linear.items()}
    linear |= {"merger.mlp.0": (4 * N, 4 * N), "merger.mlp.2": (OUT, 4 * N)}
    norms = ["merger.ln_q", *(f"blocks.{layer}.norm{i}" for layer in range(LAYERS) for i in "12")]
    shapes: Shapes = {"patch_embed.proj.weight": (N, 3, 2, 8, 8)}
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    shapes |= {f"{norm}.{end}": (N,) for norm in norms for end in ("weight", *(() if gated else ("bias",)))}
    return {f"visual.{name}": shape for name, shape in shapes.items()}


def pixtral() -> Shapes:
    square = ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj")
    linear = dict.fromkeys(square, (N, N)) | {f"feed_forward.{name}_proj": (FF, N) for name in ("gate", "up")}
    linear |= {"feed_forward.down_proj": (N, FF), "attention_norm": (N,), "ffn_norm": (N,)}
    shapes: Shapes = {f"transformer.layers.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in linear.items()}
    shapes = {f"vision_tower.{name}": shape for name, shape in shapes.items() | {("patch_conv", (N, 3, 8, 8)), ("ln_pre", (N,))}}
    own: Shapes = {"norm": (N,), "patch_merger.merging_layer": (N, 4 * N), "linear_1": (OUT, N), "linear_2": (OUT, OUT)}
    shapes |= {f"multi_modal_projector.{name}": shape for name, shape in own.items()}
    return {f"{name}.weight": shape for name, shape in sorted(shapes.items())}


def checkpoint(folder: Path, model_type: str = "gemma3", **vision: Any) -> Path:
    own: Shapes = {
        "multi_modal_projector.mm_input_projection_weight": (N, OUT),
        "multi_modal_projector.mm_soft_emb_norm.weight": (N,),
    }
    shapes = siglip("vision_tower.vision_model") | own
    if model_type == "smolvlm":
        shapes = siglip("model.vision_model") | {"model.connector.modality_projection.proj.weight": (OUT, 4 * N)}
    if model_type.startswith("qwen2"):
        shapes = qwen2(gated=model_type == "qwen2_5_vl")
    if model_type in ("mistral3", "llava"):
        shapes = pixtral()
        vision = {"model_type": "pixtral", "hidden_act": "silu"} | vision
    rng = np.random.default_rng(0)
    folder.mkdir()
    tensors = {name: rng.normal(0, 0.2, shape).astype(np.float16).astype(np.float32) for name, shape in shapes.items()}
    write_safetensors(folder / "model.safetensors", tensors)
    sizes = {"hidden_size": N, "intermediate_size": FF, "num_hidden_layers": LAYERS, "num_attention_heads": 2}
    config = {"model_type": model_type, "mm_tokens_per_image": 16, "scale_factor": 2, "text_config": {"hidden_size": OUT}}
    qwen = {"embed_dim": N, "mlp_ratio": FF / N, "depth": LAYERS, "num_heads": 2, "fullatt_block_indexes": [LAYERS - 1]}
    config["vision_config"] = sizes | qwen | {"image_size": 64, "patch_size": 8} | vision
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("model_type", ["gemma3", "smolvlm"])
def test_checkpoints_become_files_that_encode(tmp_path: Path, model_type: str) -> None:
    folder, pixels = checkpoint(tmp_path / "c", model_type), np.random.default_rng(1).integers(0, 255, (64, 64, 3), np.uint8)
    rows = {}
    for kind in ("F32", "F16", "Q8_0"):
        out = tmp_path / f"mmproj-{kind}.gguf"
        assert run(["convert", str(folder), str(out), "--mmproj", "--type", kind]) == 0
        encoder = ImageEncoder(out, threads=1)
        rows[kind] = encoder.encode(pixels).rows
        encoder.close()
    assert rows["F32"].shape[1] == OUT
    assert np.array_equal(rows["F16"], rows["F32"])  # as its weights are numbers of float16
    for kind in ("F32", "F16"):
        smaller = tmp_path / f"{kind}-Q8_0.gguf"
        assert run(["quantize", str(tmp_path / f"mmproj-{kind}.gguf"), str(smaller), "Q8_0"]) == 0
        encoder = ImageEncoder(smaller, threads=1)
        assert np.array_equal(encoder.encode(pixels).rows, rows["Q8_0"])
        encoder.close()
    for kind, most in (("F16", 2e-3), ("Q8_0", 0.1)):
        assert np.abs(rows[kind] - rows["F32"]).max() < most * np.abs(rows["F32"]).max()
    with open_gguf(tmp_path / "mmproj-F32.gguf") as gguf:
        assert "v.head.probe" not in gguf.tensors and gguf.metadata["clip.vision.projector.scale_factor"] == 2


@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("model_type", ["gemma3", "smolvlm", "qwen2_vl", "qwen2_5_vl", "mistral3"])
def test_folders_of_mlx_vlm_give_the_same_file(tmp_path: Path, model_type: str, quantised: bool) -> None:
    """Other names, convolutions whose colours come last, and matrices in groups, which become the values that they stand for."""
    mx: Any = pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    theirs, ours = checkpoint(tmp_path / "hf", model_type), checkpoint(tmp_path / "mlx", model_type)
    found, plain = dict[str, Any](), dict[str, Any]()
    for name, values in mx.load(str(theirs / "model.safetensors")).items():
        renamed = re.sub(r"^visual\.", "vision_tower.", name.removeprefix("model."))
        renamed = re.sub(r"(?<=vision_tower\.)(?=transformer|patch_conv|ln_pre)", "vision_model.", renamed)
        if quantised and values.ndim == 2 and values.shape[1] % 32 == 0 and "projection_weight" not in name:
            parts = mx.quantize(values, group_size=32, bits=8)
            ends = (f"{renamed.removesuffix('weight')}{end}" for end in ("weight", "scales", "biases"))
            found |= dict(zip(ends, parts, strict=True))
            values = mx.dequantize(*parts, group_size=32, bits=8)
        else:
            found[renamed] = mx.contiguous(mx.moveaxis(values, 1, -1)) if values.ndim > 3 else values
        plain[name] = np.array(values)
    assert not quantised or len(found) > len(plain) + 6
    for folder in (theirs, ours):
        (folder / "model.safetensors").unlink()
    write_safetensors(theirs / "model.safetensors", plain)
    mx.save_safetensors(str(ours / "model.safetensors"), found, metadata={"format": "mlx"})
    config = json.loads((ours / "config.json").read_text()) | ({"quantization": {"group_size": 32, "bits": 8}} if quantised else {})
    (ours / "config.json").write_text(json.dumps(config))
    files = [convert_projector(folder, tmp_path / f"{folder.name}.gguf", type_name="F32").path for folder in (theirs, ours)]
    with open_gguf(files[0]) as one, open_gguf(files[1]) as other:
        assert one.tensors.keys() == other.tensors.keys()
        assert all(np.array_equal(one.raw(name), other.raw(name)) for name in one.tensors)
    encoder = ImageEncoder(files[1], threads=1)
    assert encoder.encode(np.random.default_rng(1).integers(0, 255, (64, 64, 3), np.uint8)).rows.shape[1] == OUT
    encoder.close()


@pytest.mark.parametrize("vision", [{"window_size": 56}, {"fullatt_block_indexes": [0, 2], "depth": 4}])
def test_windows_that_no_file_can_say(tmp_path: Path, vision: dict[str, Any]) -> None:
    with pytest.raises(BadHParam, match="windows of 112 pixels"):
        convert_projector(checkpoint(tmp_path / "c", "qwen2_5_vl", **vision), tmp_path / "o.gguf")


def test_llava_converts_where_its_encoder_is_pixtral(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "a", "llava")
    with open_gguf(convert_projector(folder, tmp_path / "a.gguf").path) as gguf:
        assert gguf.metadata["clip.projector_type"] == "pixtral" and gguf.metadata["clip.use_silu"]
    clip = checkpoint(tmp_path / "b", "llava")
    (clip / "config.json").write_text((clip / "config.json").read_text().replace('"pixtral"', '"clip_vision_model"'))
    with pytest.raises(Unsupported, match=r"a model of type 'llava \(clip_vision_model\)'"):
        convert_projector(clip, tmp_path / "b.gguf")
    with pytest.raises(BadHParam, match="rope_theta"):
        convert_projector(checkpoint(tmp_path / "c", "mistral3", rope_theta=5e5), tmp_path / "c.gguf")


def test_a_folder_of_mlx_vlm_writes_text_and_says_what_images_need(tmp_path: Path) -> None:
    """Its encoder is left out, and the error names the command that writes its projector."""
    text = write_checkpoint(tmp_path / "text", "qwen2_5_vl")
    names = {name: re.sub(r"^(model|lm_head)\.", r"language_model.\1.", name) for name in tensors_of("qwen2_5_vl")}
    renamed = {names[name]: values for name, values in tensors_of("qwen2_5_vl").items()}
    tower = {"vision_tower.patch_embed.proj.weight": np.ones((N, 2, 8, 8, 3), np.float32)}
    both = write_checkpoint(tmp_path / "both", "qwen2_5_vl")
    write_safetensors(both / "model.safetensors", renamed | tower)
    with edgellm.load(text, backend="cpu", threads=1) as one, edgellm.load(both, backend="cpu", threads=1) as other:
        assert np.array_equal(one.logits([1, 2, 3]), other.logits([1, 2, 3]))
        with pytest.raises(OptionError, match=r"takes no images: .* edgellm convert .* --mmproj, or give mmproj='FILE'"):
            other.embed_image(np.zeros((64, 64, 3), np.uint8))


def test_what_cannot_be_converted(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c")
    with pytest.raises(OptionError, match="Q4_0"):
        convert_projector(folder, tmp_path / "o.gguf", type_name="Q4_0")
    with pytest.raises(EdgeError, match="lacks a setting"):
        convert_projector(checkpoint(tmp_path / "d", patch_size=None), tmp_path / "o.gguf")
    with pytest.raises(Unsupported, match="'bert'"):
        convert_projector(checkpoint(tmp_path / "e", "bert"), tmp_path / "o.gguf")
    assert not (tmp_path / "o.gguf").exists()
