"""Writes tiny GGUF models with seeded random weights: every architecture and tensor type, with or without a tokenizer.

    path = tiny_model(tmp_path / "m.gguf", "gemma3", "Q4_K", tokenizer="spm", n_layers=1)

Written with the `gguf` package, so our reader and codecs are held against somebody else's writer.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import tiny_latent
import tiny_moe
from tiny_blocks import raw_type
from tiny_draw import Hybrid, output_norm
from tiny_encoders import ENCODERS, encoder_keys, encoder_tensors
from tiny_families import FAMILIES, Family
from tiny_gemmas import GEMMAS
from tiny_hybrids import HYBRIDS
from tiny_mixed import MIXED
from tiny_tokenizers import add_tokenizer, vocabulary_size

from edgellm.arch import build_graph
from edgellm.formats.gguf import open_gguf
from edgellm.spec import matrices, vectors

Array = npt.NDArray[Any]  # Any: metadata arrays and quantised rows have several element types

# sizes of the models that `tiny_model` writes, as a config.json names them
CONFIG: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "rope_theta": 10000.0,
    "vocab_size": 96,
}
GPT2_CONFIG: dict[str, Any] = {
    "n_embd": 64,
    "n_layer": 2,
    "n_inner": 96,
    "n_head": 4,
    "n_positions": 128,
    "layer_norm_epsilon": 1e-5,
}
# of any shape, which converters never quantise
FLOATS = (
    "conv.weight",
    "conv1d.weight",
    "conv1d_q.weight",
    "conv1d_k.weight",
    "conv1d_v.weight",
    "ssm_a",
    "ssm_d",
    ".scale",
    "lerp_fused.weight",
    "time_mix_first.weight",
    "attn_rel_b.weight",
    "ffn_gate_inp_shexp.weight",
)
OWN_BLOCKS = (
    HYBRIDS
    | GEMMAS
    | MIXED
    | {
        "deepseek2": Hybrid(tiny_latent.metadata, tiny_latent.block, output_norm),
        "mistral4": Hybrid(tiny_latent.metadata, tiny_latent.block, output_norm),
        "plm": Hybrid(tiny_latent.plm_keys, tiny_latent.plm_block, output_norm),
        "kimi-linear": Hybrid(tiny_latent.kimi_keys, tiny_latent.kimi_block, output_norm),
        "minicpm3": Hybrid(tiny_latent.minicpm3_keys, tiny_latent.minicpm3_block, output_norm),
    }
)
KEPT_BYTES = 64 << 20  # of models that were written, for tests that ask for them again
_WRITTEN: dict[bytes | None, bytes] = {}  # the newest last
QUANTS = (
    "F32",
    "F16",
    "BF16",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ4_NL",
    "IQ4_XS",
    "MXFP4",
)


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
    tied: bool = False  # no output.weight
    biases: bool = False  # on every matrix of a family that has none by nature
    rope_base: float = 10000.0
    n_rot: int = 0  # 0: head_dim
    window: int = 0  # attention.sliding_window; 0: no key
    n_experts: int = 0  # families that are made of experts have 4
    n_used: int = 2
    n_dense: int = 0  # layers before the first one with experts


class Zeros:
    """In place of a generator of random numbers."""

    def standard_normal(self, shape: int | tuple[int, ...]) -> Array:
        return np.zeros(shape, np.float32)


def tiny_model(
    path: str | os.PathLike[str],
    arch: str = "llama",
    quant: str = "F32",
    *,
    tokenizer: str | None = None,
    seed: int | None = 0,
    template: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Array | None] | None = None,
    controls: Sequence[str] = (),
    **sizes: Any,
) -> Path:
    """Write a model and return its path; one that was asked for before is copied.

    `quant`: type of the matrices; rows that its blocks do not divide become Q8_0 or F16. `tokenizer`: "spm", "bpe" or
    None (ids only). `template`: chat template. `metadata`: keys that replace or join the usual ones ("{arch}" in a key
    is filled in; None drops it). `tensors`: float32 arrays that replace or join the usual ones (None drops one).
    `controls`: more control tokens, for "bpe". `seed`: of the weights; None for zeros, which are written faster.
    `sizes`: fields of Shape; 256-element types get n_embd = n_ff = 256 and head_dim 64 unless sizes say otherwise.
    """
    asked = arch, quant, tokenizer, seed, template, metadata, tensors, tuple(controls), sizes
    try:
        key = pickle.dumps(asked)
    except (AttributeError, TypeError, pickle.PicklingError):  # a value of a test's own kind
        key = None
    if key in _WRITTEN:
        _WRITTEN[key] = _WRITTEN.pop(key)
        Path(path).write_bytes(_WRITTEN[key])
        return Path(path)
    _write(path, *asked)
    if key is not None:
        _WRITTEN[key] = Path(path).read_bytes()
        while sum(map(len, _WRITTEN.values())) > KEPT_BYTES:
            del _WRITTEN[next(iter(_WRITTEN))]
    return Path(path)


def _write(
    path: str | os.PathLike[str],
    arch: str,
    quant: str,
    tokenizer: str | None,
    seed: int | None,
    template: str | None,
    metadata: Mapping[str, Any] | None,
    tensors: Mapping[str, Array | None] | None,
    controls: Sequence[str],
    sizes: Mapping[str, Any],
) -> None:
    block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant]][0]
    shape = Shape(n_embd=256, n_ff=256, head_dim=64) if block == 256 else Shape()
    if tokenizer is not None:
        shape = replace(shape, n_vocab=vocabulary_size(tokenizer) + len(controls))
    shape = replace(shape, **({"n_experts": 4} if arch in tiny_moe.ROUTINGS else {}) | dict(sizes))
    writer = gguf.GGUFWriter(os.fspath(path), arch)
    keys = _metadata(arch, shape) | {key.replace("{arch}", arch): value for key, value in (metadata or {}).items()}
    for key, value in keys.items():
        if value is not None:
            _add_value(writer, key, value)
    add_tokenizer(writer, tokenizer, controls)
    if template is not None:
        writer.add_chat_template(template)
    rng: Any = Zeros() if seed is None else np.random.default_rng(seed)
    arrays: dict[str, Array | None] = {**_tensors(arch, shape, rng), **(tensors or {})}
    for index, (name, array) in enumerate(arrays.items()):
        if array is not None:
            _add_tensor(writer, name, array, quant, None if seed is None else seed + index)
    _finish(writer)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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


def _add_tensor(writer: gguf.GGUFWriter, name: str, array: Array, quant: str, seed: int | None) -> None:
    """Vectors and position tables stay float32, as every converter leaves them."""
    array = np.ascontiguousarray(array, np.float32)
    if array.ndim == 1 or "_norm" in name or name.startswith(("position_embd", "token_types")) or name.endswith((*FLOATS, ".bias")):
        writer.add_tensor(name, array)
        return
    kind = gguf.GGMLQuantizationType[quant]
    if array.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]:
        kind = gguf.GGMLQuantizationType["F16" if array.shape[-1] % 32 else "Q8_0"]
    writer.add_tensor(name, raw_type(array, kind, seed), raw_dtype=kind)


def _sized(family: Family, s: Shape) -> Shape:
    """The sizes that the family leaves free; the others follow."""
    n_kv = s.n_heads if family.one_kv_per_head else s.n_kv_heads
    head_dim = s.head_dim if family.own_head_dim else s.n_embd // s.n_heads
    return replace(s, n_kv_heads=n_kv, head_dim=head_dim, n_ff=family.ffn_factor * s.n_embd or s.n_ff, tied=s.tied or family.tied)


def _metadata(arch: str, s: Shape) -> dict[str, Any]:
    if arch in ENCODERS:
        return encoder_keys(arch, s)
    family = FAMILIES.get(arch, Family())
    s = _sized(family, s)
    norm = "layer_norm_epsilon" if family.layer_norm else "layer_norm_rms_epsilon"
    keys: dict[str, Any] = {
        "block_count": s.n_layers,
        "context_length": s.context,
        "embedding_length": s.n_embd,
        "feed_forward_length": family.told_widths * s.n_ff,
        "attention.head_count": s.n_heads,
        f"attention.{norm}": s.eps,
    }
    if not family.one_kv_per_head:
        keys["attention.head_count_kv"] = s.n_kv_heads
    if family.own_head_dim:
        keys |= {"attention.key_length": s.head_dim, "attention.value_length": s.head_dim}
    if family.rotates:
        keys["rope.freq_base"] = s.rope_base
    keys |= OWN_BLOCKS[arch].metadata(s) if arch in OWN_BLOCKS else family.keys
    if s.n_rot:
        keys["rope.dimension_count"] = s.n_rot
    if s.n_experts:
        keys |= tiny_moe.metadata(arch, s)
    if s.window:
        keys["attention.sliding_window"] = s.window
    return {f"{arch}.{key}": value for key, value in keys.items()} | {"general.name": f"tiny {arch}", **family.bare}


def _shapes(family: Family, s: Shape) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, ...]]]:
    """The matrices and norms of a block by name."""
    n_q, n_kv = s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim
    projections = {"attn_q": (n_q, s.n_embd), "attn_k": (n_kv, s.n_embd), "attn_v": (n_kv, s.n_embd)}
    if family.fused_qkv:
        projections = {"attn_qkv": (n_q + 2 * n_kv, s.n_embd)}
    if family.gated_attention:
        projections["attn_gate"] = (n_q, s.n_embd)
    if family.head_gates:
        projections["attn_gate"] = (s.n_heads, s.n_embd)
    up = {"ffn_up": ((2 if family.ffn == "fused" else 1) * s.n_ff, s.n_embd)}
    gate = {"ffn_gate": (s.n_ff, s.n_embd)} if family.ffn == "gated" else {}
    norms: dict[str, tuple[int, ...]] = dict.fromkeys(family.norms, (s.n_embd,))
    match family.qk_norm:
        case "head":
            norms |= {"attn_q_norm": (s.head_dim,), "attn_k_norm": (s.head_dim,)}
        case "row":
            norms |= {"attn_q_norm": (n_q,), "attn_k_norm": (n_kv,)}
        case "own":
            norms |= {"attn_q_norm": (s.n_heads, s.head_dim), "attn_k_norm": (s.n_kv_heads, s.head_dim)}
    if family.sub_norms:
        norms |= {"attn_sub_norm": (n_q,), "ffn_sub_norm": (s.n_ff,)}
    return projections | {"attn_output": (s.n_embd, n_q)} | gate | up | {"ffn_down": (s.n_embd, s.n_ff)}, norms


def _tensors(arch: str, s: Shape, rng: np.random.Generator) -> dict[str, Array]:
    """Float32 arrays by GGUF name."""
    if arch in ENCODERS:
        return encoder_tensors(arch, s, rng)
    if arch in OWN_BLOCKS:
        return OWN_BLOCKS[arch].tensors(s, rng)
    if arch not in FAMILIES:
        return _asked_for(arch, s, rng)
    family = FAMILIES[arch]
    s = _sized(family, s)

    def matrix(rows: int, columns: int) -> Array:
        return rng.standard_normal((rows, columns)).astype(np.float32) * np.float32(1.5 / columns**0.5)

    def vector(shape: tuple[int, ...], mean: float) -> Array:
        return (mean + 0.2 * rng.standard_normal(shape)).astype(np.float32)

    def norm(name: str) -> dict[str, Array]:
        found = {f"{name}.weight": vector((s.n_embd,), 1.0)}
        return found | ({f"{name}.bias": vector((s.n_embd,), 0.0)} if family.norm_bias else {})

    matrices, norms = _shapes(family, s)
    biased = tuple(matrices) if s.biases else family.biased
    biased += tuple(name for name in family.norms if family.norm_bias)
    found = {"token_embd.weight": matrix(s.n_vocab, s.n_embd)}
    if family.learned_positions:
        found["position_embd.weight"] = 0.3 * matrix(s.context, s.n_embd)
    if family.embedding_norm:
        found |= norm("token_embd_norm")
    for layer in range(s.n_layers):
        block, has_experts = f"blk.{layer}", s.n_experts > 0 and layer >= s.n_dense
        found |= {
            f"{block}.{name}.weight": matrix(*size)
            for name, size in matrices.items()
            if not (has_experts and name.startswith("ffn"))
        }
        if has_experts:
            found |= tiny_moe.tensors(arch, block, s, rng)
        found |= {f"{block}.{name}.weight": vector(shape, 1.0) for name, shape in norms.items()}
        found |= {f"{block}.{name}.bias": vector(matrices.get(name, (s.n_embd,))[:1], 0.0) for name in biased}
    if family.output_norm:
        found |= norm("output_norm")
    if not s.tied:
        found["output.weight"] = matrix(s.n_vocab, s.n_embd)
        if family.output_bias:
            found["output.bias"] = vector((s.n_vocab,), 0.0)
    return found


def _asked_for(arch: str, s: Shape, rng: np.random.Generator) -> dict[str, Array]:
    """Tensors of an architecture without a row in any table: the ones that its graph needs."""
    ends = {"token_embd.weight": (s.n_vocab, s.n_embd)} | ({} if s.tied else {"output.weight": (s.n_vocab, s.n_embd)})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "header.gguf"
        writer = gguf.GGUFWriter(os.fspath(path), arch)
        for key, value in _metadata(arch, s).items():
            _add_value(writer, key, value)
        for name, size in ends.items():
            writer.add_tensor(name, np.zeros(size, np.float32))
        _finish(writer)
        with open_gguf(path) as header:
            graph = build_graph(header)[1]
    found = {name: rng.standard_normal(size) * 1.5 / size[-1] ** 0.5 for name, size in matrices(graph).items()}
    return found | {name: name.endswith(".weight") + 0.2 * rng.standard_normal(size) for name, size in vectors(graph).items()}
