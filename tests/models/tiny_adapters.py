"""Small LoRA adapters of random factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.gguf import open_gguf
from edgellm.formats.writer import GGUFWriter, NewTensor
from edgellm.weights import WeightStore

Floats = npt.NDArray[np.float32]


def matrices(path: Path) -> dict[str, Floats]:
    """The weights of a model that adapters may change."""
    gguf = open_gguf(path)
    store = WeightStore(gguf)
    found = {name: store[name].array().copy() for name in store.names() if len(store[name].shape) == 2}
    store.close()
    return found


def write(
    path: Path, factors: Mapping[str, tuple[Floats, Floats]], alpha: float | None, arch: str, kind: str = "F32", **metadata: Any
) -> Path:
    """A GGUF adapter."""
    tensors = {f"{name}.{half}": pair[k] for name, pair in factors.items() for k, half in enumerate(("lora_a", "lora_b"))}
    keys = {"general.architecture": arch, "general.type": "adapter", "adapter.type": "lora"} | metadata
    keys |= {} if alpha is None else {"adapter.lora.alpha": float(alpha)}
    kinds = {name: kind if array.shape[-1] % TYPES_BY_NAME[kind].block == 0 else "F32" for name, array in tensors.items()}
    infos = [NewTensor(name, array.shape, TYPES_BY_NAME[kinds[name]]) for name, array in tensors.items()]
    with GGUFWriter(path, keys, infos) as writer:
        for name, array in tensors.items():
            writer.write(name, CODECS[kinds[name]].quantize(np.ascontiguousarray(array, np.float32)))
    return path


def factors_for(
    weights: Mapping[str, Floats], rank: int, seed: int, names: Sequence[str] | None = None
) -> dict[str, tuple[Floats, Floats]]:
    """Random factors, as large as to matter."""
    rng, found = np.random.default_rng(seed), {}
    for name in names or weights:
        rows, columns = weights[name].shape
        a_shape, b_shape = ((rows, rank), (columns, rank)) if name == "token_embd.weight" else ((rank, columns), (rows, rank))
        a, b = (rng.standard_normal(shape).astype(np.float32) * np.float32(0.2) for shape in (a_shape, b_shape))
        found[name] = (a, b)
    return found


def tiny_adapter(path: Path, base: Path, arch: str = "llama", seed: int = 0) -> Path:
    """An adapter of all matrices of a model, as strong as to change what it writes."""
    return write(path, factors_for(matrices(base), 4, seed), 8.0, arch)
