"""Converts a PEFT adapter (LoRA) to a GGUF adapter: llama.cpp's names, rows and keys."""

from __future__ import annotations

import math
import os

import numpy as np

from edgellm.catalogue.hub_cache import snapshots
from edgellm.checkpoints.config import find_family, read_config
from edgellm.checkpoints.lora import CONFIG, WEIGHTS, Adapter, Json, check_adapter
from edgellm.errors import BadHParam, OptionError, Unreadable, Unsupported, shown
from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.gguf_file_type import NAMES
from edgellm.formats.mapped import MappedFile
from edgellm.formats.safetensors import open_safetensors, read_json
from edgellm.formats.writer import GGUFWriter, NewTensor
from edgellm.tools.converted import LARGEST_F16, LARGEST_F32, PLAIN, Converted
from edgellm.tools.places import check_out, checkpoint_files


def convert_lora(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] | None = None,
    type_name: str | None = None,
) -> Converted:
    """Convert the adapter in `folder` to the file `out`.

    `base`: the folder of the model that it was trained on: its config.json, and names and shapes of its tensors if there are any;
    None takes what the adapter names, a folder or a repository in the hub's cache. Raises Unsupported for adapters that GGUF cannot
    hold or that edgellm could not load, OptionError, Unwritable and the FormatErrors.
    """
    kind = (type_name or "F32").upper()
    if kind not in PLAIN:
        raise OptionError(f"--type {type_name}: adapters are {', '.join(PLAIN)}.")
    folder = os.path.abspath(folder)
    if not os.path.isfile(os.path.join(folder, CONFIG)):
        raise Unreadable(f"has no {CONFIG}, so it is not a PEFT adapter", file=folder)
    settings = read_json(MappedFile(os.path.join(folder, CONFIG)))
    check_adapter(settings, folder)
    place = _base(settings, base)
    check_out(out, [*checkpoint_files(folder), *checkpoint_files(place)], force=True)
    family, config = find_family(read_config(place), place)
    alpha = settings.get("lora_alpha")
    rank = settings.get("r")
    if not isinstance(alpha, (int, float)) or not isinstance(rank, int) or rank < 1:
        raise BadHParam(f"names no lora_alpha and r (they are {alpha!r}, {rank!r}); save the adapter again", file=folder)
    try:
        stated = float(alpha) * (math.sqrt(rank) if settings.get("use_rslora") else 1.0)
    except OverflowError:
        stated = math.inf
    if not abs(stated) < LARGEST_F32:
        raise BadHParam(f"has the lora_alpha {shown(alpha)}; save the adapter again", file=folder, field="lora_alpha")
    with open_safetensors(os.path.join(folder, WEIGHTS)) as file:
        adapter = Adapter(file, family, config, settings, place)
        tensors = [NewTensor(half.name, half.shape, TYPES_BY_NAME[kind]) for half in adapter.halves]
        metadata = {
            "general.architecture": family.architecture,
            "general.type": "adapter",
            "adapter.type": "lora",
            "general.name": os.path.basename(folder),
            "adapter.lora.alpha": stated,
            "general.file_type": next(number for number, name in NAMES.items() if name == kind),
        }
        with GGUFWriter(out, metadata, tensors) as writer:
            for half in adapter.halves:
                values = adapter.array(half, stated)
                if not np.abs(values).max(initial=0.0) <= (LARGEST_F16 if kind == "F16" else LARGEST_F32):
                    raise Unsupported(
                        f"has NaN, Inf or values beyond the range of {kind}; train it again, or convert with --type F32",
                        file=folder,
                        field=half.name,
                    )
                writer.write(half.name, CODECS[kind].quantize(values))
    path = writer.paths[0]
    return Converted(path, family.architecture, kind, os.stat(path).st_size, len(tensors), ())


def _base(settings: Json, base: str | os.PathLike[str] | None) -> str:
    """The folder with the base model's config.json. Raises OptionError."""
    named = str(settings.get("base_model_name_or_path") or "")
    wanted = named if base is None else os.fspath(base)
    candidates = [wanted, *map(str, snapshots(named) if base is None and named.count("/") == 1 else [])]
    found = next((place for place in candidates if place and os.path.isfile(os.path.join(place, "config.json"))), None)
    if found is None:
        raise OptionError(f"the base model {wanted[:100]!r} is not here; name a folder with its config.json with --base.")
    return found
