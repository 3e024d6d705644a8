"""Writes tiny models that see, with random weights, and the rows that `transformers` computes of pictures.

    python scripts/make_hf_vision.py LLAMA_CPP FOLDER [NAME ...]         (needs: pip install torch torchvision transformers gguf)

LLAMA_CPP is a checkout of llama.cpp, or the one within llama-cpp-python's sources, whose converter writes each model's projector
file. Weights are rounded to float16 first, so that no conversion rounds them. Each model is a folder with mmproj.gguf and
expected.npz: `image_N` (h, w, 3) u8, already of a size that the encoder takes, and its rows `rows_N` (n, width) f32.
`scripts/check_vision.py FOLDER/*` compares. scripts/make_vision_files.py writes the kinds that no converter of transformers' models
writes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as t
from safetensors.torch import load_file, save_file

HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
TEXT: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 32, "vocab_size": 320, "max_position_embeddings": 4096,
}  # fmt: skip
SIGLIP: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 2}
MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]}}
GRIDS = ((4, 6), (8, 8), (12, 4), (2, 3))  # of rows; the last one is smaller than tables of positions


@dataclass
class Case:
    """A model, the settings of its images, the sides of the pictures, and what makes features of normalised pixels (3, h, w)."""

    model: Any
    images: dict[str, Any]
    sizes: list[tuple[int, int]]
    features: Callable[[Any, Any], Any]
    names: tuple[str, str] = ("", "")  # of tensors: a part, and what makers' checkpoints have in its place
    files: dict[str, Any] | None = None
    architecture: str = ""  # in llama.cpp's list, where it has another name there


def sizes_of(pixels: int) -> list[tuple[int, int]]:
    """Of images whose rows are squares of so many pixels."""
    return [(h * pixels, w * pixels) for h, w in GRIDS]


def merged(x: Any, patch: int, merge: int = 2, frames: int = 2) -> tuple[Any, Any]:
    """Patches in the order of Qwen's processors, and the grid."""
    h, w = x.shape[1] // patch, x.shape[2] // patch
    y = torch.stack([x] * frames).reshape(1, frames, 3, h // merge, merge, patch, w // merge, merge, patch)
    return y.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(h * w, -1), torch.tensor([[1, h, w]])


def whole(model: Any, x: Any) -> Any:
    return model.get_image_features(x[None])


def with_grid(patch: int, frames: int = 2) -> Callable[[Any, Any], Any]:
    return lambda model, x: model.get_image_features(*merged(x, patch, frames=frames))


def flat_patches(x: Any, patch: int) -> Any:
    """(1, n, patch * patch * 3), row by row."""
    h, w = x.shape[1] // patch, x.shape[2] // patch
    return x.reshape(3, h, patch, w, patch).permute(1, 3, 2, 4, 0).reshape(1, h * w, -1)


def lfm2(model: Any, x: Any) -> Any:
    h, w = x.shape[1] // 16, x.shape[2] // 16
    mask = torch.ones(1, h * w, dtype=torch.int32)
    return model.get_image_features(flat_patches(x, 16), spatial_shapes=torch.tensor([[h, w]]), pixel_attention_mask=mask)


def gemma4(patch: int) -> Callable[[Any, Any], Any]:
    def features(model: Any, x: Any) -> Any:
        h, w = x.shape[1] // patch, x.shape[2] // patch
        places = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(h), indexing="xy"), dim=-1).reshape(1, h * w, 2)
        return model.get_image_features(flat_patches(x, patch), places)

    return features


def llama4(model: Any, x: Any) -> Any:
    found = model.get_image_features(x[None], vision_feature_select_strategy="default").last_hidden_state
    return model.multi_modal_projector(found.reshape(-1, found.shape[-1]))


def cases() -> dict[str, Callable[[], Case]]:
    qwen = {"depth": 4, "num_heads": 2, "spatial_merge_size": 2, "temporal_patch_size": 2}
    return {
        "gemma3": lambda: Case(
            t.Gemma3ForConditionalGeneration(
                t.Gemma3Config(
                    text_config=TEXT | {"model_type": "gemma3_text"},
                    vision_config=SIGLIP | {"model_type": "siglip_vision_model", "image_size": 64, "patch_size": 8},
                    mm_tokens_per_image=16,
                    image_token_index=263,
                )
            ),
            HALF | {"image_seq_length": 16},
            [(64, 64)],
            whole,
            ("vision_tower.", "vision_tower.vision_model."),
        ),
        "qwen2vl": lambda: Case(
            t.Qwen2VLForConditionalGeneration(
                t.Qwen2VLConfig(
                    text_config=TEXT | MROPE,
                    vision_config=qwen | {"embed_dim": 32, "hidden_size": 64, "mlp_ratio": 3, "patch_size": 14},
                    image_token_id=263,
                )
            ),
            CLIP,
            sizes_of(28),
            with_grid(14),
        ),
        "qwen2.5vl": lambda: Case(
            t.Qwen2_5_VLForConditionalGeneration(
                t.Qwen2_5_VLConfig(
                    text_config=TEXT | MROPE,
                    vision_config=qwen
                    | {"hidden_size": 32, "intermediate_size": 96, "patch_size": 14, "window_size": 112,
                       "fullatt_block_indexes": [1, 3], "out_hidden_size": 64},
                    image_token_id=263,
                )
            ),
            CLIP,
            sizes_of(28),
            with_grid(14),
        ),
        "exaone4.5": lambda: Case(
            t.Exaone4_5_ForConditionalGeneration(
                t.Exaone4_5_Config(
                    text_config=TEXT | {"model_type": "exaone4", "layer_types": ["full_attention"] * 2},
                    vision_config=qwen
                    | {"hidden_size": 64, "intermediate_size": 96, "patch_size": 14, "window_size": 112, "num_key_value_heads": 1,
                       "fullatt_block_indexes": [1, 3], "out_hidden_size": 64},
                    image_token_id=263,
                )
            ),
            CLIP | {"min_pixels": 784, "max_pixels": 784 * 64},
            sizes_of(28),
            with_grid(14),
        ),
        "qwen3vl": lambda: Case(
            t.Qwen3VLForConditionalGeneration(
                t.Qwen3VLConfig(
                    text_config=TEXT | {"rope_parameters": MROPE["rope_parameters"] | {"mrope_interleaved": True}},
                    vision_config=qwen
                    | {"hidden_size": 32, "intermediate_size": 96, "patch_size": 16, "num_position_embeddings": 64,
                       "deepstack_visual_indexes": [1, 2], "out_hidden_size": 64},
                    image_token_id=263,
                )
            ),
            HALF,
            sizes_of(32),
            with_grid(16),
        ),
        "lfm2": lambda: Case(
            t.Lfm2VlForConditionalGeneration(
                t.Lfm2VlConfig(
                    text_config=TEXT | {"model_type": "lfm2", "layer_types": ["conv", "full_attention"]},
                    vision_config=SIGLIP
                    | {"model_type": "siglip2_vision_model", "num_patches": 64, "patch_size": 16, "vision_use_head": False},
                    image_token_id=263,
                    downsample_factor=2,
                    projector_hidden_size=80,
                )
            ),
            HALF,
            sizes_of(32),
            lfm2,
            ("vision_tower.", "vision_tower.vision_model."),
        ),
        "pixtral": lambda: Case(
            t.Mistral3ForConditionalGeneration(
                t.Mistral3Config(
                    text_config=TEXT | {"model_type": "mistral", "rms_norm_eps": 1e-5},  # Mistral's; files have one epsilon
                    vision_config=SIGLIP
                    | {"model_type": "pixtral", "head_dim": 32, "image_size": 448, "patch_size": 14,
                       "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
                    image_token_index=10,
                    spatial_merge_size=2,
                    vision_feature_layer=-1,
                )
            ),
            CLIP,
            sizes_of(28),
            lambda model, x: model.get_image_features(x[None], image_sizes=torch.tensor([x.shape[1:]]), vision_feature_layer=-1),
            files={
                "tokenizer.json": {"added_tokens": [{"id": 12, "content": "[IMG_BREAK]"}]},
                "tokenizer_config.json": {"added_tokens_decoder": {"12": {"content": "[IMG_BREAK]"}}},
            },
        ),
        "lightonocr": lambda: Case(
            t.LightOnOcrForConditionalGeneration(
                t.LightOnOcrConfig(
                    text_config=TEXT | {"model_type": "qwen3", "rms_norm_eps": 1e-5},  # files have one epsilon
                    vision_config=SIGLIP
                    | {"model_type": "pixtral", "head_dim": 32, "image_size": 280, "patch_size": 14,
                       "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
                    image_token_id=263,
                    spatial_merge_size=2,
                )
            ),
            CLIP,
            sizes_of(28),
            lambda model, x: model.get_image_features(x[None], image_sizes=torch.tensor([x.shape[1:]])),
            architecture="LightOnOCRForConditionalGeneration",
        ),
        "janus_pro": lambda: Case(
            t.JanusForConditionalGeneration(
                t.JanusConfig(
                    text_config=TEXT | {"model_type": "llama"},
                    vision_config={"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 64,
                                   "patch_size": 8, "mlp_ratio": 1.5, "projection_dim": 64, "depth": 2},
                    vq_config={"embed_dim": 8, "num_embeddings": 16, "latent_channels": 8, "base_channels": 32,
                               "channel_multiplier": [1, 1], "num_res_blocks": 1, "projection_dim": 64},
                    image_token_id=263,
                )
            ),
            HALF,
            [(64, 64)],
            whole,
        ),
        "idefics3": lambda: Case(
            t.SmolVLMForConditionalGeneration(
                t.SmolVLMConfig(
                    text_config=TEXT | {"model_type": "llama"},
                    vision_config=SIGLIP | {"model_type": "smolvlm_vision", "image_size": 64, "patch_size": 8},
                    image_token_id=263,
                    scale_factor=2,
                )
            ),
            HALF | {"size": {"longest_edge": 128}, "max_image_size": {"longest_edge": 64}},
            [(64, 64)],
            lambda model, x: model.get_image_features(x[None, None]),
        ),
        "internvl": lambda: Case(
            t.InternVLForConditionalGeneration(
                t.InternVLConfig(
                    text_config=TEXT | {"model_type": "qwen2"},
                    vision_config=SIGLIP | {"num_hidden_layers": 4, "image_size": [64, 64], "patch_size": [8, 8]},
                    image_token_id=263,
                    downsample_ratio=0.5,
                )
            ),
            CLIP,
            [(64, 64)],
            whole,
            ("", "model."),
            architecture="InternVisionModel",
        ),
        "gemma4v": lambda: Case(
            t.Gemma4ForConditionalGeneration(
                t.Gemma4Config(
                    text_config=TEXT
                    | {"global_head_dim": 32, "layer_types": ["sliding_attention", "full_attention"],
                       "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0},
                    vision_config=SIGLIP
                    | {"head_dim": 32, "num_key_value_heads": 2, "patch_size": 8, "position_embedding_size": 64,
                       "pooling_kernel_size": 3, "use_clipped_linears": True, "standardize": True},
                    audio_config=None,
                    image_token_id=263,
                )
            ),
            {"image_mean": [0.0] * 3, "image_std": [1.0] * 3},
            sizes_of(24),
            gemma4(8),
        ),
        "gemma4uv": lambda: Case(
            t.Gemma4UnifiedForConditionalGeneration(
                t.Gemma4UnifiedConfig(
                    text_config=TEXT
                    | {"global_head_dim": 32, "layer_types": ["sliding_attention", "full_attention"],
                       "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0},
                    vision_config={"mm_embed_dim": 48, "mm_posemb_size": 64, "patch_size": 8, "pooling_kernel_size": 3,
                                   "output_proj_dims": 48},
                    audio_config={"audio_embed_dim": 32},
                    image_token_id=263,
                )
            ),
            {"image_mean": [0.0] * 3, "image_std": [1.0] * 3},
            sizes_of(24),
            gemma4(24),
        ),
        "glm4v": lambda: Case(
            t.Glm4vForConditionalGeneration(
                t.Glm4vConfig(
                    text_config=TEXT | MROPE,
                    vision_config={"depth": 3, "hidden_size": 64, "intermediate_size": 96, "num_heads": 2, "patch_size": 14,
                                   "image_size": 112, "out_hidden_size": 64, "spatial_merge_size": 2, "temporal_patch_size": 2},
                    image_token_id=263,
                )
            ),
            CLIP,
            sizes_of(28),
            with_grid(14),
        ),
        "glm5v": lambda: Case(
            t.Glm5NextForConditionalGeneration(
                t.Glm5NextConfig(
                    text_config=TEXT
                    | {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 32, "qk_rope_head_dim": 0, "v_head_dim": 32,
                       "num_key_value_heads": 2, "pad_token_id": 0},
                    vision_config={"depth": 3, "hidden_size": 64, "intermediate_size": 96, "num_heads": 2, "patch_size": 14,
                                   "image_size": 112, "out_hidden_size": 64, "projection_intermediate_size": 80,
                                   "spatial_merge_size": 2, "temporal_patch_size": 2, "swiglu_limit": 0.5},
                    image_token_id=263,
                )
            ),
            CLIP | {"min_image_tokens": 16, "max_image_tokens": 8000},
            sizes_of(28),
            with_grid(14),
        ),
        "hunyuanvl": lambda: Case(
            t.HunYuanVLForConditionalGeneration(
                t.HunYuanVLConfig(
                    text_config=TEXT
                    | {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 1000.0, "factor": 1.0,
                                           "mrope_section": [4, 4, 4, 4]}, "pad_token_id": 0},
                    vision_config=SIGLIP
                    | {"patch_size": 16, "max_image_size": 128, "out_hidden_size": 64, "text_hidden_size": 64,
                       "spatial_merge_size": 2},
                    image_token_id=263,
                )
            ),
            CLIP | {"min_pixels": 32 * 32, "max_pixels": 32 * 32 * 1024},
            sizes_of(32),
            lambda model, x: model.get_image_features(
                x.reshape(3, x.shape[1] // 16, 16, x.shape[2] // 16, 16).permute(1, 3, 0, 2, 4).reshape(-1, 768),
                torch.tensor([[1, x.shape[1] // 16, x.shape[2] // 16]]),
            ),
        ),
        **{
            f"minicpmv4.6-{mode}": lambda mode=mode: Case(
                t.MiniCPMV4_6ForConditionalGeneration(
                    t.MiniCPMV4_6Config(
                        text_config=TEXT | {"model_type": "qwen3_5_text", "layer_types": ["full_attention"] * 2},
                        vision_config=SIGLIP | {"image_size": 112, "patch_size": 14},
                        insert_layer_id=0,
                        image_token_id=263,
                        downsample_mode=mode,
                    )
                ),
                HALF | {"scale_resolution": 112, "downsample_mode": mode},
                sizes_of(56),
                lambda model, x: torch.cat(
                    model.get_image_features(
                        x.reshape(3, x.shape[1] // 14, 14, -1).permute(0, 2, 1, 3).reshape(1, 3, 14, -1),
                        torch.tensor([[x.shape[1] // 14, x.shape[2] // 14]]),
                    ).pooler_output
                ),
            )
            for mode in ("16x", "4x")
        },
        "paddleocr": lambda: Case(
            t.PaddleOCRVLForConditionalGeneration(
                t.PaddleOCRVLConfig(
                    text_config=TEXT | MROPE,
                    vision_config=SIGLIP | {"image_size": 112, "patch_size": 14, "spatial_merge_size": 2},
                    image_token_id=263,
                )
            ),
            HALF | {"min_pixels": 28 * 28, "max_pixels": 28 * 28 * 1024},
            sizes_of(28),
            lambda model, x: model.get_image_features(
                x.reshape(3, x.shape[1] // 14, 14, x.shape[2] // 14, 14).permute(1, 3, 0, 2, 4).reshape(-1, 3, 14, 14),
                torch.tensor([[1, x.shape[1] // 14, x.shape[2] // 14]]),
            ),
            architecture="PaddleOCRVisionModel",
        ),
        "llama4": lambda: Case(
            t.Llama4ForConditionalGeneration(
                t.Llama4Config(
                    text_config=TEXT | {"num_local_experts": 2, "intermediate_size_mlp": 96},
                    vision_config=SIGLIP
                    | {"image_size": 64, "patch_size": 8, "pixel_shuffle_ratio": 0.5, "intermediate_size": 256,
                       "projector_input_dim": 48, "projector_output_dim": 48, "vision_output_dim": 48},
                    image_token_index=263,
                )
            ),
            HALF,
            [(64, 64)],
            llama4,
        ),
    }  # fmt: skip


def randomise(model: Any) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, float(1 / np.sqrt(np.prod(parameter.shape[1:]))))
            elif "norm" in name and "weight" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
            elif parameter.ndim == 1:
                parameter.normal_(0, 0.1)
            parameter.copy_(parameter.half().float())
        for name, buffer in model.named_buffers():
            if name.endswith(("_min", "_max")):  # bounds of Gemma 4's products
                buffer.fill_((-1.0 if "min" in name else 1.25) * (1.0 if "input" in name else 2.0))
            elif name.endswith(("std_bias", "std_scale")):
                buffer.normal_(0.5, 0.1)


def rows_of(found: Any) -> np.ndarray[Any, Any]:
    """Rows of an encoder's result, those of inner layers beside them."""
    deep = getattr(found, "deepstack_features", None) or ()
    found = getattr(found, "pooler_output", found)
    joined = [torch.cat(list(each)) if isinstance(each, list | tuple) else each for each in (found, *deep)]
    return torch.cat([each.reshape(-1, each.shape[-1]) for each in joined], dim=1).numpy()


def picture(height: int, width: int, seed: int) -> np.ndarray[Any, Any]:
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(y / 7 + seed), np.cos(x / 5), np.sin((x + y) / 9)], axis=-1)
    return (127 + 100 * waves + np.random.default_rng(seed).integers(0, 20, (height, width, 3))).astype(np.uint8)


def convert_projector(name: str, folder: Path, llama_cpp: Path) -> None:
    """Let llama.cpp write the projector file of a checkpoint."""
    command = [sys.executable, str(llama_cpp / "convert_hf_to_gguf.py"), "--mmproj", "--outtype", "f32"]
    done = subprocess.run(
        [*command, "--outfile", str(folder / "mmproj.gguf"), str(folder)],
        env={**os.environ, "PYTHONPATH": str(llama_cpp / "gguf-py")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-1500:]}")


def write(name: str, case: Case, folder: Path, llama_cpp: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    randomise(case.model)
    case.model.save_pretrained(folder)
    for file, content in {"preprocessor_config.json": case.images, **(case.files or {})}.items():
        (folder / file).write_text(json.dumps(content))
    if any(case.names):
        weights, (before, after) = load_file(folder / "model.safetensors"), case.names
        weights = {key if after in key else key.replace(before, after, 1): value for key, value in weights.items()}
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    if case.architecture:
        config = json.loads((folder / "config.json").read_text())
        config["vision_config"]["architectures"] = config["architectures"] = [case.architecture]
        (folder / "config.json").write_text(json.dumps(config))
    convert_projector(name, folder, llama_cpp)
    mean, std = (torch.tensor(case.images[key])[:, None, None] for key in ("image_mean", "image_std"))
    found = {}
    for number, (height, width) in enumerate(case.sizes):
        pixels = picture(height, width, number)
        x = (torch.tensor(pixels).permute(2, 0, 1).float() / 255 - mean) / std
        with torch.no_grad():
            rows = rows_of(case.features(getattr(case.model, "model", case.model), x))
        found |= {f"image_{number}": pixels, f"rows_{number}": rows}
    np.savez_compressed(folder / "expected.npz", **found)


def write_all(cases: Mapping[str, Callable[[], Any]], write: Callable[[str, Any, Path, Path], None]) -> None:
    """Write the cases that the command line names, or all."""
    llama_cpp, folder, names = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    for name, make in cases.items():
        if not names or name in names:
            torch.manual_seed(len(name))
            case = make()
            case.model = case.model.eval().float()
            write(name, case, folder / name, llama_cpp)
            print(f"{folder / name}: {sum(p.numel() for p in case.model.parameters())} parameters", flush=True)


if __name__ == "__main__":
    write_all(cases(), write)
