"""Writes tiny GGUF models with seeded random weights: every architecture and tensor type, with or without a tokenizer.

    path = tiny_model(tmp_path / "m.gguf", "gemma3", "Q4_K", tokenizer="spm", n_layers=1)

Written with the `gguf` package, so our reader and codecs are held against somebody else's writer.
"""
from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from tiny_blocks import raw_type
from tiny_encoders import ENCODERS, encoder_keys, encoder_tensors
from tiny_tokenizers import add_tokenizer, vocabulary_size

Array = npt.NDArray[Any]         # Any: metadata arrays and quantised rows have several element types

QUANTS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
          "IQ4_NL", "IQ4_XS", "MXFP4")


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a tiny model; any of them may be given to `tiny_model` by name."""

    n_vocab: int = 96
    n_layers: int = 2
    n_embd: int = 64
    n_ff: int = 96
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 16
    context: int = 128
    eps: float = 1e-5
    tied: bool = False           # no output.weight
    biases: bool = False         # on every matrix of a family that has none by nature
    rope_base: float = 10000.0
    n_rot: int = 0               # 0: head_dim
    window: int = 0              # attention.sliding_window; 0: no key


def tiny_model(path: str | os.PathLike[str], arch: str = "llama", quant: str = "F32", *, tokenizer: str | None = None,
               seed: int = 0, template: str | None = None, metadata: Mapping[str, Any] | None = None,
               tensors: Mapping[str, Array | None] | None = None, **sizes: Any) -> Path:
    """Write a model and return its path.

    `quant`: type of the matrices; rows that its blocks do not divide become Q8_0 or F16. `tokenizer`: "spm", "bpe" or
    None (ids only). `template`: chat template. `metadata`: keys that replace or join the usual ones ("{arch}" in a key
    is filled in; None drops it). `tensors`: float32 arrays that replace or join the usual ones (None drops one).
    `sizes`: fields of Shape; 256-element types get n_embd = n_ff = 256 and head_dim 64 unless sizes say otherwise.
    """
    block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant]][0]
    shape = Shape(n_embd=256, n_ff=256, head_dim=64) if block == 256 else Shape()
    if tokenizer is not None:
        shape = replace(shape, n_vocab=vocabulary_size(tokenizer))
    shape = replace(shape, **sizes)
    writer = gguf.GGUFWriter(os.fspath(path), arch)
    keys = _metadata(arch, shape) | {key.replace("{arch}", arch): value for key, value in (metadata or {}).items()}
    for key, value in keys.items():
        if value is not None:
            _add_value(writer, key, value)
    add_tokenizer(writer, tokenizer)
    if template is not None:
        writer.add_chat_template(template)
    arrays: dict[str, Array | None] = {**_tensors(arch, shape, np.random.default_rng(seed)), **(tensors or {})}
    for index, (name, array) in enumerate(arrays.items()):
        if array is not None:
            _add_tensor(writer, name, array, quant, seed + index)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(path)


def _add_value(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, (list, tuple, np.ndarray)):
        writer.add_array(key, list(value))
    elif isinstance(value, (bool, np.bool_)):
        writer.add_bool(key, bool(value))
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_string(key, value)


def _add_tensor(writer: gguf.GGUFWriter, name: str, array: Array, quant: str, seed: int) -> None:
    """Vectors and position tables stay float32, as every converter leaves them."""
    array = np.ascontiguousarray(array, np.float32)
    if array.ndim == 1 or name.startswith(("position_embd", "token_types")):
        writer.add_tensor(name, array)
        return
    kind = gguf.GGMLQuantizationType[quant]
    if array.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]:
        kind = gguf.GGMLQuantizationType["F16" if array.shape[-1] % 32 else "Q8_0"]
    writer.add_tensor(name, raw_type(array, kind, seed), raw_dtype=kind)


def _metadata(arch: str, s: Shape) -> dict[str, Any]:
    if arch in ENCODERS:
        return encoder_keys(arch, s)
    norm = "layer_norm_epsilon" if arch == "gpt2" else "layer_norm_rms_epsilon"
    keys: dict[str, Any] = {
        "block_count": s.n_layers, "context_length": s.context, "embedding_length": s.n_embd,
        "feed_forward_length": s.n_ff, "attention.head_count": s.n_heads, f"attention.{norm}": s.eps,
    }
    if arch != "gpt2":
        keys |= {"attention.head_count_kv": s.n_kv_heads, "attention.key_length": s.head_dim,
                 "attention.value_length": s.head_dim, "rope.freq_base": s.rope_base}
    if s.n_rot:
        keys["rope.dimension_count"] = s.n_rot
    if s.window or arch == "gemma3":
        keys["attention.sliding_window"] = s.window or 8
    return {f"{arch}.{key}": value for key, value in keys.items()} | {"general.name": f"tiny {arch}"}


def _tensors(arch: str, s: Shape, rng: np.random.Generator) -> dict[str, Array]:
    """Float32 arrays by GGUF name: what `convert_hf_to_gguf` writes for that family."""
    if arch in ENCODERS:
        return encoder_tensors(arch, s, rng)
    if arch == "gpt2":
        s = replace(s, n_kv_heads=s.n_heads, head_dim=s.n_embd // s.n_heads)

    def matrix(rows: int, columns: int) -> Array:
        return rng.standard_normal((rows, columns)).astype(np.float32) * np.float32(1.5 / columns**0.5)

    def vector(n: int, mean: float) -> Array:
        return (mean + 0.2 * rng.standard_normal(n)).astype(np.float32)

    n_q, n_kv = s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim
    projections = {"attn_q": (n_q, s.n_embd), "attn_k": (n_kv, s.n_embd), "attn_v": (n_kv, s.n_embd)}
    gate_and_up = {"ffn_gate": (s.n_ff, s.n_embd), "ffn_up": (s.n_ff, s.n_embd)}
    norms = {"attn_norm": s.n_embd, "ffn_norm": s.n_embd}
    biased: tuple[str, ...] = ()
    match arch:
        case "qwen2":
            biased = ("attn_q", "attn_k", "attn_v")
        case "qwen3" | "gemma3":
            norms |= {"attn_q_norm": s.head_dim, "attn_k_norm": s.head_dim}
            if arch == "gemma3":
                norms |= {"post_attention_norm": s.n_embd, "post_ffw_norm": s.n_embd}
        case "phi3" | "gpt2":
            projections = {"attn_qkv": (n_q + 2 * n_kv, s.n_embd)}
            gate_and_up = {"ffn_up": ((2 if arch == "phi3" else 1) * s.n_ff, s.n_embd)}
        case "llama":
            pass
        case _:
            raise NotImplementedError(f"tests/tiny_models.py knows no architecture {arch}: add its tensors here")
    matrices = projections | {"attn_output": (s.n_embd, n_q)} | gate_and_up | {"ffn_down": (s.n_embd, s.n_ff)}
    if s.biases or arch == "gpt2":
        biased = (*matrices, *(norms if arch == "gpt2" else ()))
    found = {"token_embd.weight": matrix(s.n_vocab, s.n_embd)}
    if arch == "gpt2":
        found["position_embd.weight"] = 0.3 * matrix(s.context, s.n_embd)
    for block in (f"blk.{layer}" for layer in range(s.n_layers)):
        found |= {f"{block}.{name}.weight": matrix(*size) for name, size in matrices.items()}
        found |= {f"{block}.{name}.weight": vector(n, 1.0) for name, n in norms.items()}
        found |= {f"{block}.{name}.bias": vector(matrices.get(name, (s.n_embd,))[0], 0.0) for name in biased}
    found["output_norm.weight"] = vector(s.n_embd, 1.0)
    if arch == "gpt2":
        found["output_norm.bias"] = vector(s.n_embd, 0.0)
    if not s.tied:
        found["output.weight"] = matrix(s.n_vocab, s.n_embd)
    return found


