"""Projector files of checkpoints: names, shapes and keys that the encoders load, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_checkpoints import write_safetensors
from tiny_projectors import FF, LAYERS, OUT, N

from edgellm.cli.app import run
from edgellm.errors import EdgeError, OptionError, Unsupported
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


def checkpoint(folder: Path, model_type: str = "gemma3", **vision: Any) -> Path:
    own: Shapes = {
        "multi_modal_projector.mm_input_projection_weight": (N, OUT),
        "multi_modal_projector.mm_soft_emb_norm.weight": (N,),
    }
    shapes = siglip("vision_tower.vision_model") | own
    if model_type == "smolvlm":
        shapes = siglip("model.vision_model") | {"model.connector.modality_projection.proj.weight": (OUT, 4 * N)}
    rng = np.random.default_rng(0)
    folder.mkdir()
    tensors = {name: rng.normal(0, 0.2, shape).astype(np.float16).astype(np.float32) for name, shape in shapes.items()}
    write_safetensors(folder / "model.safetensors", tensors)
    sizes = {"hidden_size": N, "intermediate_size": FF, "num_hidden_layers": LAYERS, "num_attention_heads": 2}
    config = {"model_type": model_type, "mm_tokens_per_image": 16, "scale_factor": 2, "text_config": {"hidden_size": OUT}}
    config["vision_config"] = sizes | {"image_size": 64, "patch_size": 8} | vision
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


def test_what_cannot_be_converted(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c")
    with pytest.raises(OptionError, match="Q4_0"):
        convert_projector(folder, tmp_path / "o.gguf", type_name="Q4_0")
    with pytest.raises(EdgeError, match="lacks a setting"):
        convert_projector(checkpoint(tmp_path / "d", patch_size=None), tmp_path / "o.gguf")
    with pytest.raises(Unsupported, match="'bert'"):
        convert_projector(checkpoint(tmp_path / "e", "bert"), tmp_path / "o.gguf")
    assert not (tmp_path / "o.gguf").exists()
