"""A GGUF file's tensors as a checkpoint of the Hugging Face hub: the converter's own rules, followed backwards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from hf_checkpoints import write_safetensors

from edgellm.checkpoints.families import minus_exp, plus_one
from edgellm.checkpoints.folder import MlxFolder, open_mlx_folder

Arrays = Mapping[str, np.ndarray[Any, Any]]


def write_state(folder: Path, shapes: Mapping[str, tuple[int, ...]], arrays: Arrays) -> None:
    """Into a folder with a config.json, the checkpoint that converts to `arrays`; `shapes` are those of its tensors by name.

    Each value is numbered, and the converter says where the numbers go. AssertionError where a tensor is left without values.
    """
    sizes = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    starts = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))
    numbers = {
        name: np.arange(start, start + sizes[name], dtype=np.float32).reshape(shapes[name]) for name, start in starts.items()
    }
    write_safetensors(folder / "model.safetensors", numbers)
    values = np.full(sum(sizes.values()), np.nan, np.float32)
    with open_mlx_folder(folder) as model:
        for name in model.tensors:
            source = model.source(name)
            if source is not None and name in arrays:
                values[source.raw(model.file).view(np.float32).astype(np.int64)] = _undone(model, name, arrays[name])
        for name, start in starts.items():  # a part that GGUF had whole before llama.cpp split it
            part, whole = slice(start, start + sizes[name]), arrays.get(model.family.name(name))
            if whole is not None and whole.shape == shapes[name] and np.isnan(values[part]).all():
                values[part] = whole.reshape(-1)
    found = {name: values[start : start + sizes[name]].reshape(shapes[name]) for name, start in starts.items()}
    empty = [name for name, array in found.items() if np.isnan(array).any() and "act_fn" not in name]
    assert not empty, empty
    write_safetensors(folder / "model.safetensors", found)


def _undone(model: MlxFolder, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Values before `Piece.values`, in GGUF's order."""
    source = model.source(name)
    change = source.piece.values if source is not None else None
    flat = np.asarray(array, np.float32).reshape(-1)
    if change is plus_one:
        return flat - np.float32(1.0)
    if change is minus_exp:
        return np.log(-flat)
    assert change is None or np.array_equal(change(model.config, array), array), name
    return flat


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of a safetensors file's tensors."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
