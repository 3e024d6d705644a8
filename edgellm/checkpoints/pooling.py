"""The pooling of a sentence-transformers folder: modules.json, and the folders that it names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.errors import BadHParam, Unsupported
from edgellm.formats.mapped import MappedFile
from edgellm.formats.safetensors import open_safetensors, read_json

MODULES, CONFIG = "modules.json", "config.json"
POOLINGS = {"pooling_mode_mean_tokens": 1, "pooling_mode_cls_token": 2, "pooling_mode_lasttoken": 3}  # pooling_type
BY_NAME = {"mean": 1, "cls": 2, "lasttoken": 3}
DENSE = ("dense_2.weight", "dense_3.weight")
MAX_BYTES = 1 << 20  # of modules.json, which has a few lines
KNOWN = ("Transformer", "Pooling", "Dense", "Normalize", "LogitScore")
LINEAR = "torch.nn.modules.linear.Identity"


def modules(folder: str) -> Iterator[tuple[str, str]]:
    """The kind of each module, and its folder. Raises Unsupported for one that GGUF has no place for."""
    path = os.path.join(folder, MODULES)
    if not os.path.isfile(path):
        return
    for entry in _entries(path):
        kind = str(entry.get("type")).rpartition(".")[2] if isinstance(entry, Mapping) else ""
        place = str(entry.get("path", "")) if isinstance(entry, Mapping) else ""
        if kind not in KNOWN or os.path.isabs(place) or ".." in place.split("/"):
            raise Unsupported(f"asks for the module {kind[:40]!r}, which GGUF has no place for", file=path, field="type")
        yield kind, os.path.join(folder, place)


def _entries(path: str) -> list[Any]:
    file = MappedFile(path)
    try:
        entries = json.loads(bytes(file.data)) if file.size <= MAX_BYTES else None
    except (ValueError, RecursionError) as error:
        raise BadHParam(f"is not JSON ({str(error)[:80]}); download the folder again", file=path) from error
    finally:
        file.close()
    if not isinstance(entries, list):
        raise BadHParam("is not a list of modules; download the folder again", file=path)
    return entries


def pooling_keys(folder: str) -> dict[str, Any]:
    """`pooling_type`, where the folder says it. Raises Unsupported, BadHParam."""
    for kind, place in modules(folder):
        if kind == "Pooling":
            config = read_json(MappedFile(os.path.join(place, CONFIG)))
            named = config.get("pooling_mode")
            asked = [mode for mode, on in config.items() if mode.startswith("pooling_mode_") and on is True]
            numbers = [BY_NAME.get(named)] if isinstance(named, str) else [POOLINGS.get(mode) for mode in asked]
            if len(numbers) != 1 or numbers[0] is None:
                raise Unsupported(
                    f"pools by {str(named or asked)[:80]}; edgellm pools by mean, cls or last token",
                    file=place,
                    field="pooling_mode",
                )
            return {"pooling_type": numbers[0]}
    return {}


def dense_layers(folder: str) -> dict[str, npt.NDArray[np.float32]]:
    """The matrices behind the pooling by GGUF's names. Raises Unsupported, and the FormatErrors."""
    found: dict[str, npt.NDArray[np.float32]] = {}
    for kind, place in modules(folder):
        if kind == "Dense":
            config = read_json(MappedFile(os.path.join(place, CONFIG)))
            if config.get("bias") is True or config.get("activation_function", LINEAR) != LINEAR:
                raise Unsupported("has a bias or an activation, which GGUF's dense layers have not", file=place, field="Dense")
            if len(found) == len(DENSE):
                raise Unsupported("has more than two dense layers behind the pooling", file=folder, field=MODULES)
            with open_safetensors(place) as file:
                if file.tensors.keys() != {"linear.weight"}:
                    raise Unsupported("is not a dense layer of one matrix", file=place, field="Dense")
                found[DENSE[len(found)]] = np.array(file.array("linear.weight"), np.float32)
    return found
