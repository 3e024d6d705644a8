"""A PEFT adapter (LoRA) as a GGUF adapter: llama.cpp's names, rows and keys."""
from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.catalogue.hub_cache import snapshots
from edgellm.errors import BadHParam, BadTensorInfo, OptionError, Unreadable, Unsupported
from edgellm.formats.codecs import CODECS
from edgellm.formats.families import Family, part_of
from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.gguf_file_type import NAMES
from edgellm.formats.mapped import MappedFile
from edgellm.formats.mlx_config import find_family
from edgellm.formats.mlx_folder import paired_rows
from edgellm.formats.safetensors import SafeTensorsFile, open_safetensors, read_json
from edgellm.formats.writer import GGUFWriter, NewTensor
from edgellm.tools.converted import PLAIN, Converted

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
NAME = re.compile(r"base_model\.model\.(.+)\.lora_([AB])(?:\.\w+)?\.weight")
Floats = npt.NDArray[np.float32]
Json = Mapping[str, Any]         # Any: parsed JSON


def convert_lora(folder: str | os.PathLike[str], out: str | os.PathLike[str], *, base: str | os.PathLike[str] | None = None,
                 type_name: str | None = None) -> Converted:
    """Convert the adapter in `folder` to the file `out`.

    `base`: the folder of the model that it was trained on, of which only config.json is read; None takes what the adapter names,
    a folder or a repository in the hub's cache. Raises Unsupported for adapters that GGUF cannot hold, OptionError, Unwritable and
    the FormatErrors.
    """
    kind = (type_name or "F32").upper()
    if kind not in PLAIN:
        raise OptionError(f"--type {type_name}: adapters are {', '.join(PLAIN)}.")
    folder = os.path.abspath(folder)
    if not os.path.isfile(os.path.join(folder, CONFIG)):
        raise Unreadable(f"has no {CONFIG}, so it is not a PEFT adapter", file=folder)
    settings = read_json(MappedFile(os.path.join(folder, CONFIG)))
    _check(settings, folder)
    place = _base(settings, base)
    family, config = find_family(read_json(MappedFile(os.path.join(place, "config.json"))), place)
    alpha = settings.get("lora_alpha")
    rank = settings.get("r")
    if not isinstance(alpha, (int, float)) or not isinstance(rank, int) or rank < 1:
        raise BadHParam(f"names no lora_alpha and r (they are {alpha!r}, {rank!r}); save the adapter again", file=folder)
    stated = float(alpha) * (math.sqrt(rank) if settings.get("use_rslora") else 1.0)
    with open_safetensors(os.path.join(folder, WEIGHTS)) as file:
        arrays = _tensors(file, family, config, settings, stated)
    tensors = [NewTensor(name, array.shape, TYPES_BY_NAME[kind]) for name, array in arrays.items()]
    metadata = {"general.architecture": family.architecture, "general.type": "adapter", "adapter.type": "lora",
                "general.name": os.path.basename(folder), "adapter.lora.alpha": stated,
                "general.file_type": next(number for number, name in NAMES.items() if name == kind)}
    with GGUFWriter(out, metadata, tensors) as writer:
        for tensor in tensors:
            writer.write(tensor.name, CODECS[kind].quantize(arrays[tensor.name]))
    path = writer.paths[0]
    return Converted(path, family.architecture, kind, os.stat(path).st_size, len(tensors), ())


def _check(settings: Json, folder: str) -> None:
    """Raises Unsupported for what llama.cpp's adapters cannot say."""
    if settings.get("peft_type") != "LORA":
        raise Unsupported(f"is {str(settings.get('peft_type'))[:40]!r}; GGUF holds LoRA adapters only", file=folder,
                          field="peft_type")
    for key in ("use_dora", "modules_to_save", "trainable_token_indices"):
        if settings.get(key):
            raise Unsupported("is not part of GGUF's adapters; merge the adapter into its model, and convert that", file=folder,
                              field=key)
    if settings.get("bias", "none") != "none":
        raise Unsupported("biases are not part of GGUF's adapters; merge the adapter into its model", file=folder, field="bias")


def _base(settings: Json, base: str | os.PathLike[str] | None) -> str:
    """The folder with the base model's config.json. Raises OptionError."""
    named = str(settings.get("base_model_name_or_path") or "")
    asked = named if base is None else os.fspath(base)
    candidates = [asked, *map(str, snapshots(named) if base is None and named.count("/") == 1 else [])]
    found = next((place for place in candidates if place and os.path.isfile(os.path.join(place, "config.json"))), None)
    if found is None:
        raise OptionError(f"the base model {asked[:100]!r} is not here; name a folder with its config.json with --base.")
    return found


def _tensors(file: SafeTensorsFile, family: Family, config: Json, settings: Json, alpha: float) -> dict[str, Floats]:
    """Arrays by GGUF's names; B is scaled where its own alpha or rank differ from those that are stated."""
    found: dict[str, Floats] = {}
    for name in sorted(file.tensors):
        match = NAME.fullmatch(name)
        ours, number = family.place(f"{match[1]}.weight") if match else (name, None)
        shape = file.tensors[name].shape
        differs = part_of(ours) in family.pieces or number is not None           # one expert of a tensor that has them all
        if match is None or ours == f"{match[1]}.weight" or len(shape) != 2 or differs:
            raise Unsupported("has no place in a GGUF adapter; merge the adapter into its model, and convert that",
                              file=file.paths[0], field=name)
        array = file.array(name).astype(np.float32)
        if match[2] == "B":
            array = _placed(array, ours, family, config, file.paths[0]) * np.float32(_factor(match[1], shape[1], settings, alpha))
        found[f"{ours}.lora_{match[2].lower()}"] = array
    for name in found:
        other = found.get(name[:-1] + ("b" if name.endswith("a") else "a"))
        if other is None or (name.endswith("a") and other.shape[1] != found[name].shape[0]):
            raise BadTensorInfo("the two halves of the adapter do not fit each other; save it again", file=file.paths[0],
                                field=name)
    if not found:
        raise BadTensorInfo("holds no tensors", file=file.paths[0])
    return found


def _placed(array: Floats, ours: str, family: Family, config: Json, path: str) -> Floats:
    """Rows of queries and keys in GGUF's order."""
    part = ours.split(".")[-2]
    heads = {"attn_q": config.get("num_attention_heads"),
             "attn_k": config.get("num_key_value_heads") or config.get("num_attention_heads")}.get(part)
    if not family.paired_rows or heads is None:
        return array
    if not isinstance(heads, int) or heads < 1:
        raise BadHParam(f"{heads!r} is not a number of heads", file=path, field=ours)
    return array[paired_rows(len(array), heads, path, ours)]


def _factor(module: str, rank: int, settings: Json, alpha: float) -> float:
    """What B is multiplied by, so that alpha / rank comes out as PEFT's scaling of this module."""
    own = settings["lora_alpha"]
    patterns = settings.get("alpha_pattern")
    for pattern, value in patterns.items() if isinstance(patterns, Mapping) else ():
        if (module == pattern or module.endswith(f".{pattern}")) and isinstance(value, (int, float)):
            own = value
    scaling = own / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    return float(scaling / (alpha / rank)) if alpha else 1.0
