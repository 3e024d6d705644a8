"""Writes tiny models that hear, with random weights, and the features and rows that `transformers` computes of clips.

    python scripts/make_hf_audio.py LLAMA_CPP FOLDER [NAME ...]         (needs: pip install torch transformers gguf)

LLAMA_CPP is a checkout of llama.cpp, or the one within llama-cpp-python's sources, whose converter writes each model's projector
file. Each model is a folder with mmproj.gguf and expected.npz: `samples_N` (n,) f32 at 16 kHz, `features_N` (frames, bins) that the
model's processor makes of them, and rows `rows_N` (n, width) f32. `scripts/check_audio.py FOLDER/*` compares.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as t
from make_hf_vision import MROPE, SIGLIP, TEXT, convert_projector, randomise, write_all
from safetensors.torch import load_file, save_file

WHISPER: dict[str, Any] = {
    "d_model": 64, "encoder_layers": 3, "encoder_attention_heads": 2, "encoder_ffn_dim": 96, "num_mel_bins": 128,
    "max_source_positions": 1500, "encoder_layerdrop": 0.0,
}  # fmt: skip
AS_BERT = {  # other names of the same settings
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 96, "num_mel_bins": 128,
    "max_source_positions": 1500, "layerdrop": 0.0,
}  # fmt: skip
SECONDS = (0.7, 3.0, 8.13, 21.4)


@dataclass
class Case:
    """A model, and what makes features (frames, bins) and rows of samples."""

    model: Any
    heard: Callable[[Any, Any], tuple[Any, Any]]
    seconds: tuple[float, ...] = SECONDS
    files: dict[str, Any] = field(default_factory=dict)
    renamed: Callable[[str], str] = str
    architecture: str = ""  # in llama.cpp's list, where it has another name there
    thinker: bool = False  # the makers' checkpoint has its settings one level deeper


def with_mask(model: Any, samples: Any) -> tuple[Any, Any]:
    """Of models that take the mask of frames that the clip fills, in 30 seconds."""
    made = t.WhisperFeatureExtractor(feature_size=128)(
        samples, sampling_rate=16000, return_attention_mask=True, padding="max_length", return_tensors="pt"
    )
    return made.input_features[0].T, model.get_audio_features(made.input_features, made.attention_mask)


def qwen2(model: Any, samples: Any) -> tuple[Any, Any]:
    """As the model's `forward` does it."""
    made = t.WhisperFeatureExtractor(feature_size=128)(
        samples, sampling_rate=16000, return_attention_mask=True, padding="max_length", return_tensors="pt"
    )
    heard, kept = model.audio_tower._get_feat_extract_output_lengths(made.attention_mask.sum(-1))
    mask = torch.zeros(1, 1, 1500, 1500).masked_fill(torch.arange(1500) >= heard, -torch.inf)
    found = model.multi_modal_projector(model.audio_tower(made.input_features, attention_mask=mask).last_hidden_state)
    return made.input_features[0].T, found[0, : int(kept)]


def omni(model: Any, samples: Any) -> tuple[Any, Any]:
    made = t.WhisperFeatureExtractor(feature_size=128)(
        samples, sampling_rate=16000, return_attention_mask=True, padding="max_length", return_tensors="pt"
    )
    return made.input_features[0, :, : int(made.attention_mask.sum())].T, model.get_audio_features(
        made.input_features, made.attention_mask
    )


def voxtral(model: Any, samples: Any) -> tuple[Any, Any]:
    made = t.WhisperFeatureExtractor(feature_size=128)(
        samples, sampling_rate=16000, truncation=False, padding=True, pad_to_multiple_of=480000, return_tensors="pt"
    )
    parts = made.input_features.reshape(128, -1, 3000).transpose(0, 1)
    return made.input_features[0].T, model.get_audio_features(parts)


def qwen3(model: Any, samples: Any) -> tuple[Any, Any]:
    from transformers.models.qwen3_asr.feature_extraction_qwen3_asr import Qwen3ASRFeatureExtractor

    made = Qwen3ASRFeatureExtractor()(samples, sampling_rate=16000, padding=True, truncation=False, return_attention_mask=True)
    mask = made.attention_mask
    return made.input_features[0, :, : int(mask.sum())].T, model.get_audio_features(made.input_features, mask)


def gemma4_unified(model: Any, samples: Any) -> tuple[Any, Any]:
    frames = np.pad(samples, (0, -len(samples) % 640)).reshape(1, -1, 640)
    x = torch.tensor(frames)
    return x[0], model.get_audio_features(x, torch.ones(x.shape[:2], dtype=torch.bool)).pooler_output


def gemma4(model: Any, samples: Any) -> tuple[Any, Any]:
    from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor

    made = Gemma4AudioFeatureExtractor()([samples], sampling_rate=16000, return_tensors="pt")
    features, mask = made.input_features, made.input_features_mask
    found = model.get_audio_features(features, mask)
    return features[0][mask[0]], found.pooler_output[0][found.attention_mask[0]]


class Lfm2Audio(torch.nn.Module):
    """LFM2-Audio's encoder, which is NeMo's FastConformer, and its adapter, with the names of its makers' checkpoints."""

    RENAMED = (
        ("encoder.subsampling.layers.", "conformer.pre_encode.conv."), ("encoder.subsampling.linear.", "conformer.pre_encode.out."),
        ("encoder.layers.", "conformer.layers."), ("q_proj", "linear_q"), ("relative_k_proj", "linear_pos"), ("k_proj", "linear_k"),
        ("v_proj", "linear_v"), ("o_proj", "linear_out"), ("bias_u", "pos_bias_u"), ("bias_v", "pos_bias_v"),
        ("conv.norm", "conv.batch_norm"),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.encoder = t.ParakeetEncoder(
            t.ParakeetEncoderConfig(
                hidden_size=64, num_hidden_layers=7, num_attention_heads=2, intermediate_size=96, num_mel_bins=128,
                subsampling_conv_channels=16, scale_input=False,
            )
        )  # fmt: skip
        for layer in self.encoder.layers:
            layer.conv.norm.running_mean.normal_(0, 0.1)
            layer.conv.norm.running_var.uniform_(0.5, 1.5)
        linear = torch.nn.Linear
        self.audio_adapter = torch.nn.ModuleDict(
            {"model": torch.nn.Sequential(torch.nn.LayerNorm(64), linear(64, 80), torch.nn.GELU(), linear(80, 64))}
        )

    def save_pretrained(self, folder: Path) -> None:
        def renamed(name: str) -> str:
            for before, after in self.RENAMED:
                name = name if after in name else name.replace(before, after)
            return name

        weights = {renamed(name): value.clone() for name, value in self.state_dict().items()}
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        encoder = {"d_model": 64, "n_heads": 2, "n_layers": 7, "feat_in": 128}
        text = {"model_type": "lfm2", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = {"architectures": ["Lfm2AudioForConditionalGeneration"], "encoder": encoder, "lfm": text}
        (folder / "config.json").write_text(json.dumps(config))


def lfm2(model: Lfm2Audio, samples: Any) -> tuple[Any, Any]:
    made = t.ParakeetFeatureExtractor(feature_size=128)(samples, sampling_rate=16000, return_tensors="pt")
    n = int(made.attention_mask.sum())
    features = made.input_features[:, :n]
    rows = model.encoder(features, attention_mask=made.attention_mask[:, :n]).last_hidden_state
    return features[0], model.audio_adapter["model"](rows)


def cases() -> dict[str, Callable[[], Case]]:
    qwen3_text = TEXT | {"model_type": "qwen3"}
    qwen3_audio = {
        **{key: value for key, value in WHISPER.items() if key not in ("max_source_positions", "encoder_layerdrop")},
        "encoder_layers": 4, "downsample_hidden_size": 16, "output_dim": 64, "n_window": 50, "n_window_infer": 800,
    }  # fmt: skip
    gemma = TEXT | {"model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
                    "vocab_size_per_layer_input": 320, "layer_types": ["sliding_attention", "full_attention"]}  # fmt: skip
    return {
        "qwen2a": lambda: Case(
            t.Qwen2AudioForConditionalGeneration(
                t.Qwen2AudioConfig(
                    audio_config=WHISPER | {"model_type": "qwen2_audio_encoder"}, text_config=TEXT | {"model_type": "qwen2"}
                )
            ),
            qwen2,
        ),
        "voxtral": lambda: Case(
            t.VoxtralForConditionalGeneration(
                t.VoxtralConfig(
                    audio_config=AS_BERT | {"model_type": "voxtral_encoder", "intermediate_size": 256},
                    text_config=TEXT | {"model_type": "llama"},
                )
            ),
            voxtral,
            (3.0, 31.5),
        ),
        "musicflamingo": lambda: Case(
            t.AudioFlamingo3ForConditionalGeneration(
                t.AudioFlamingo3Config(
                    audio_config=AS_BERT | {"model_type": "audioflamingo3_encoder"}, text_config=TEXT | {"model_type": "qwen2"}
                )
            ),
            with_mask,
        ),
        "qwen2.5o": lambda: Case(
            t.Qwen2_5OmniThinkerForConditionalGeneration(
                t.Qwen2_5OmniThinkerConfig(
                    audio_config=WHISPER | {"model_type": "qwen2_5_omni_audio_encoder", "output_dim": 64, "n_window": 100},
                    vision_config={"depth": 1, "hidden_size": 64, "intermediate_size": 96, "num_heads": 2, "out_hidden_size": 64},
                    text_config=TEXT | MROPE,
                )
            ),
            omni,
            renamed=lambda name: name.replace("model.", "thinker.", 1),
            architecture="Qwen2_5OmniModel",
            thinker=True,
        ),
        "qwen3a": lambda: Case(
            t.Qwen3ASRForConditionalGeneration(
                t.Qwen3ASRConfig(audio_config=qwen3_audio | {"model_type": "qwen3_asr_encoder"}, text_config=qwen3_text)
            ),
            qwen3,
            renamed=lambda name: name.replace("model.audio_tower.", "thinker.audio_tower.")
            .replace("model.multi_modal_projector.linear_", "thinker.audio_tower.proj"),
            thinker=True,
        ),
        "gemma4a": lambda: Case(
            t.Gemma4ForConditionalGeneration(
                t.Gemma4Config(
                    text_config=gemma,
                    audio_config={"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2,
                                  "subsampling_conv_channels": [128, 8], "output_proj_dims": 48},
                    vision_config=SIGLIP | {"head_dim": 32, "num_key_value_heads": 2, "patch_size": 8,
                                            "position_embedding_size": 64, "use_clipped_linears": True},
                )
            ),
            gemma4,
        ),
        "lfm2a": lambda: Case(Lfm2Audio(), lfm2),
        "gemma4ua": lambda: Case(
            t.Gemma4UnifiedForConditionalGeneration(
                t.Gemma4UnifiedConfig(text_config=gemma, audio_config={}, vision_config={"mm_embed_dim": 64})
            ),
            gemma4_unified,
        ),
    }  # fmt: skip


def clip(seconds: float, seed: int) -> np.ndarray[Any, Any]:
    """A tone that rises, and noise."""
    at = np.arange(int(seconds * 16000)) / 16000
    noise = np.random.default_rng(seed).standard_normal(len(at))
    return (0.3 * np.sin(2 * np.pi * (200 + 150 * at) * at) + 0.05 * noise).astype(np.float32)


def write(name: str, case: Case, folder: Path, llama_cpp: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    randomise(case.model)
    case.model.save_pretrained(folder)
    for file, content in {"preprocessor_config.json": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}, **case.files}.items():
        (folder / file).write_text(json.dumps(content))
    weights = load_file(folder / "model.safetensors")
    save_file({case.renamed(key): value for key, value in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    if case.thinker:
        config = json.loads((folder / "config.json").read_text())
        kind = config["model_type"].removesuffix("_thinker")
        (folder / "config.json").write_text(json.dumps(config | {"thinker_config": config, "model_type": kind}))
    if case.architecture:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"architectures": [case.architecture]}))
    convert_projector(name, folder, llama_cpp)
    found = {}
    for number, seconds in enumerate(case.seconds):
        samples = clip(seconds, number)
        with torch.no_grad():
            features, rows = case.heard(getattr(case.model, "model", case.model), samples)
        rows = getattr(rows, "pooler_output", rows)
        rows = torch.cat(list(rows)) if isinstance(rows, list | tuple) else rows.reshape(-1, rows.shape[-1])
        found |= {f"samples_{number}": samples, f"features_{number}": features.numpy(), f"rows_{number}": rows.numpy()}
    np.savez_compressed(folder / "expected.npz", **found)


if __name__ == "__main__":
    write_all(cases(), write)
