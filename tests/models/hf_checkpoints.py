"""Tiny checkpoints in the Hugging Face layout with seeded weights, written without PyTorch.

tests/data/hf_layouts.json holds their configurations, as the hub has them, and the names and shapes that transformers gives their
tensors; tests/data/hf_gold.json what it computes for them. scripts/hf_gold.py writes both.
"""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from places import DATA

Array = npt.NDArray[Any]
IDS = [3, 17, 40, 8, 63, 21, 5, 33, 12, 50, 27, 44]
LAYOUTS: dict[str, dict[str, Any]] = json.loads((DATA / "hf_layouts.json").read_text(encoding="utf-8"))
KINDS = tuple(kind for kind, layout in LAYOUTS.items() if "pooling" not in layout)  # models that write text
EMBEDDERS = tuple(kind for kind, layout in LAYOUTS.items() if "pooling" in layout)
NORMS_FROM_ZERO = ("gemma", "nemotron", "qwen3_next", "qwen3_5")  # by the start of a model type, but for gemma3n and gemma4
LIKE_OTHERS = ("gemma3n", "gemma4", "nemotron_h")
DECAY, STEP, CUT = "A_log", ("dt_bias", "dt_proj.bias"), "act_fn.eps"


def config_of(kind: str) -> dict[str, Any]:
    """config.json of a kind."""
    return dict(LAYOUTS[kind]["config"])


def names_of(tensors: list[list[Any]]) -> dict[str, tuple[int, ...]]:
    """Shapes by name, of rows of pattern, shape, layers and number of experts."""
    found = {}
    for pattern, shape, *numbers in tensors:
        layers = numbers[0] if numbers else [0]
        for layer in layers:
            for expert in range(numbers[1] if len(numbers) > 1 else 1):
                found[pattern.replace("*", str(layer), 1).replace("*", str(expert), 1)] = tuple(shape)
    return found


def rows_of(shapes: dict[str, tuple[int, ...]]) -> list[list[Any]]:
    """The other way round."""
    found: dict[tuple[str, tuple[int, ...]], tuple[set[int], set[int]]] = {}
    for name, shape in shapes.items():
        number = re.search(r"(?<=\.)\d+(?=\.)", name)
        pattern = name if number is None else f"{name[: number.start()]}*{name[number.end() :]}"
        inner = re.search(r"(?<=experts\.)\d+|(?<=norms\.)\d+", pattern)
        pattern = pattern if inner is None else f"{pattern[: inner.start()]}*{pattern[inner.end() :]}"
        sets = found.setdefault((pattern, tuple(shape)), (set(), set()))
        for place, digits in zip(sets, (number, inner), strict=True):
            place.update([] if digits is None else [int(digits[0])])
    return [
        [pattern, list(shape), *([sorted(layers)] if layers else []), *([len(experts)] if experts else [])]
        for (pattern, shape), (layers, experts) in found.items()
    ]


def tensors_of(kind: str) -> dict[str, Array]:
    """Every tensor by transformers' name, float32; each has a seed of its own."""
    model_type = config_of(kind)["model_type"]
    from_zero = model_type.startswith(NORMS_FROM_ZERO) and not model_type.startswith(LIKE_OTHERS)
    return {
        name: _drawn(f"{kind} {name}", shape, from_zero and "linear_attn" not in name)
        for name, shape in names_of(LAYOUTS[kind]["tensors"]).items()
    }


def _drawn(name: str, shape: tuple[int, ...], norms_from_zero: bool) -> Array:
    values = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
    if name.endswith(CUT):
        return np.full(shape, -1e-6, np.float32)
    if len(shape) > 1 and not name.endswith(DECAY):
        return np.asarray(1.3 / max(shape[-1], 1) ** 0.5 * values, np.float32)
    mean = (
        -1.0
        if name.endswith(STEP)
        else 0.0
        if name.endswith("bias")
        else float(not norms_from_zero)
        if re.search(r"norm|ln_|\.D$|ln\.", name)
        else 0.0
    )
    return np.asarray(mean + 0.2 * values, np.float32)


def write_safetensors(path: Path, tensors: dict[str, Array], dtypes: dict[str, str] | None = None) -> None:
    """A .safetensors file as PyTorch's writers make it; `dtypes` names those that NumPy cannot tell (BF16 given as uint16)."""
    kinds = {"float32": "F32", "uint8": "U8", "float16": "F16", "int32": "I32", "int64": "I64", "uint16": "BF16"}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, array in tensors.items():
        kind = (dtypes or {}).get(name, kinds[array.dtype.name])
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(np.ascontiguousarray(a).tobytes() for a in tensors.values()))


def write_checkpoint(folder: Path, kind: str, *, tensors: dict[str, Array] | None = None, **config: Any) -> Path:
    """A folder of that kind; `tensors` and `config` replace or join the usual ones."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(kind) | config), encoding="utf-8")
    if LAYOUTS[kind].get("pooling", "rank") != "rank":
        write_modules(folder, LAYOUTS[kind]["pooling"])
    write_safetensors(folder / "model.safetensors", tensors_of(kind) | (tensors or {}))
    return folder


def write_modules(folder: Path, pooling: str, **modes: bool) -> None:
    """The modules file of sentence-transformers: "cls_token", "mean_tokens" or "lasttoken", and more modes."""
    listed = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    (folder / "modules.json").write_text(json.dumps(listed), encoding="utf-8")
    (folder / "1_Pooling").mkdir(exist_ok=True)
    asked = {f"pooling_mode_{mode}": mode == pooling for mode in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}
    config = {"word_embedding_dimension": 32, "include_prompt": True} | asked | modes
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config), encoding="utf-8")


def write_adapter(folder: Path, kind: str, **settings: Any) -> dict[str, Array]:
    """A PEFT adapter of rank 4 on three modules; returns what it adds to each of the model's tensors at a scaling of 1."""
    rng, tensors, added = np.random.default_rng(1), dict[str, Array](), dict[str, Array]()
    source = tensors_of(kind)
    for module in ("model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.k_proj", "model.layers.1.mlp.down_proj"):
        rows, columns = source[f"{module}.weight"].shape
        a, b = rng.standard_normal((4, columns)).astype(np.float32), rng.standard_normal((rows, 4)).astype(np.float32)
        tensors |= {f"base_model.model.{module}.lora_A.weight": a, f"base_model.model.{module}.lora_B.weight": b}
        added[f"{module}.weight"] = b @ a
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    usual = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(usual | settings))
    return added
