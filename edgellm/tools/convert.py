"""A safetensors checkpoint in the Hugging Face layout as a GGUF file: llama.cpp's names, rows, metadata and tokenizer."""

from __future__ import annotations

import contextlib
import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.arch import build_graph, load_graph
from edgellm.checkpoints.families import PREFIX
from edgellm.checkpoints.folder import MlxFolder, open_mlx_folder
from edgellm.checkpoints.lora import CONFIG as ADAPTER
from edgellm.checkpoints.packings import unpacked
from edgellm.checkpoints.packings.exact import ExactCheckpoint
from edgellm.checkpoints.source import Source
from edgellm.checkpoints.tokenizer.reader import UNNAMED_CUTS, UNSAID
from edgellm.errors import NoTokenizer, OptionError, Unreadable, Unsupported
from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import TYPES_BY_NAME, GGMLType, row_bytes
from edgellm.formats.gguf_file_type import NAMES
from edgellm.formats.writer import GGUFWriter, NewTensor
from edgellm.spec import vectors
from edgellm.tokenizer import UnknownPreTokenizer, build_tokenizer
from edgellm.tokenizer.pre_tokenizers import OWN_CUTS, PRE_TOKENIZERS
from edgellm.tools.converted import LARGEST_F16, PLAIN, Converted
from edgellm.tools.places import check_out, checkpoint_files

TARGETS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
AUTO = "auto"
FLOAT_TENSORS = re.compile(  # stay float32, as in llama.cpp's files
    r"position_embd\.weight|token_types\.weight|rope_.*|.*_norm\.weight|.*\.bias|.*\.ffn_gate_inp(?:_shexp)?\.weight"
    r"|.*conv(?:1d)?\.weight|.*\.ssm_[ad]|.*\.attn_rel_b\.weight|.*\.time_mix_(?:lerp_fused|first|(?:decay_)?[wavg][12])\.weight"
)
AT_ONCE = 1 << 22  # values that are converted together: 16 MiB in float32
SHOWN = 40  # letters of a setting's value
Progress = Callable[[str, int, int], None]


def convert(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    type_name: str | None = None,
    pre: str | None = None,
    progress: Progress | None = None,
) -> Converted:
    """Convert the checkpoint in `folder` to the file `out`, which appears when it is complete.

    `type_name`: one of TARGETS for the matrices, None or AUTO for the type that the checkpoint has; a matrix whose rows its blocks
    do not divide becomes F16. Vectors and tables of positions become F32. `pre`: the name of the pre-tokenizer, None to recognise
    it. Raises Unsupported for a model that edgellm could not run, OptionError, Unwritable and the FormatErrors.
    """
    target = _target(type_name)
    if os.path.isfile(os.path.join(folder, ADAPTER)) and not os.path.isfile(os.path.join(folder, "config.json")):
        raise OptionError(f"{os.fspath(folder)} is a PEFT adapter; give --lora, and --base with the folder of its model.")
    if not os.path.isdir(folder):
        raise Unreadable("is not a folder; give the folder of a checkpoint, with config.json and .safetensors files", file=folder)
    check_out(out, checkpoint_files(folder), force=True)
    if pre is not None and pre not in PRE_TOKENIZERS:
        raise OptionError(f"--pre {pre[:40]!r} is not a pre-tokenizer; give one such as {', '.join(list(PRE_TOKENIZERS)[:8])}.")
    with open_mlx_folder(os.path.abspath(folder), unpacked, pre=pre) as model:
        notes = _left_out(model) + model.notes
        if model.metadata.get("tokenizer.ggml.pre") == OWN_CUTS:
            raise Unsupported(UNNAMED_CUTS, file=folder, field="pre_tokenizer")
        if step := model.metadata.get(f"tokenizer.ggml.{UNSAID}"):
            raise Unsupported(
                f"its tokenizer.json has {step}, which GGUF has no keys for; run the folder as it is, or give --pre (such as "
                "default) and check the ids with edgellm tokenize",
                file=folder,
            )
        model.drop_tied_output()
        keys, graph = load_graph(model)
        if not keys.causal and (len(graph.kv_states) < len(graph.states) or any(state.causal for state in graph.kv_states)):
            raise Unsupported(
                f"asks for tokens that see the whole text, which {keys.architecture} graphs cannot do; take another "
                "embedding model",
                file=folder,
                field="is_causal",
            )
        exact, more = _exact(model) if target is None else ({}, [])
        notes += more
        plan = [
            NewTensor(name, model.tensors[name].shape, _type(model, name, target, exact.get(name)))
            for name in sorted(model.tensors, key=_order)
        ]
        fallen = [tensor.name for tensor in plan if target is not None and tensor.type.name not in (target.name, "F32")]
        if fallen:
            notes.append(f"{len(fallen)} matrices are F16, for {target.name if target else ''} blocks do not divide their rows")
        metadata = _metadata(model, plan)
        _check_tokenizer(metadata, folder)
        with GGUFWriter(out, metadata, plan) as writer:
            for done, tensor in enumerate(plan):
                if progress is not None:
                    progress(f"converting {tensor.name}", done, len(plan))
                for data in _encoded(model, tensor):
                    writer.write(tensor.name, data)
                model.drop(tensor.name)
        name = NAMES[metadata["general.file_type"]]
        notes += _dynamic(model) + [note for note in [model.unread()] if note]
        return Converted(
            writer.paths[0], metadata["general.architecture"], name, os.stat(writer.paths[0]).st_size, len(plan), tuple(notes)
        )


def _check_tokenizer(metadata: Mapping[str, Any], folder: str | os.PathLike[str]) -> None:
    """Raises what loading the file would raise of its tokenizer."""
    with warnings.catch_warnings(), contextlib.suppress(NoTokenizer):
        warnings.simplefilter("ignore", UnknownPreTokenizer)
        build_tokenizer(metadata, file=folder)


def _dynamic(model: MlxFolder) -> list[str]:
    rope = model.config.get("rope_scaling") or model.config.get("rope_parameters")
    if not isinstance(rope, Mapping) or "alpha" in rope or (rope.get("rope_type") or rope.get("type")) != "dynamic":
        return []  # Hunyuan's alpha is in its base
    length = rope.get("original_max_position_embeddings") or model.config.get("max_position_embeddings")
    return [
        f"dynamic rope scaling begins after {str(length)[:SHOWN]} tokens and has no place in the file; keep the context within them"
    ]


def _target(name: str | None) -> GGMLType | None:
    if name is None or name.lower() == AUTO:
        return None
    if name.upper() not in TARGETS:
        raise OptionError(f"--type {name!r}: give one of {', '.join(TARGETS)}; for others convert first, then edgellm quantize.")
    return TYPES_BY_NAME[name.upper()]


def _exact(model: MlxFolder) -> tuple[dict[str, GGMLType], list[str]]:
    """The types that hold packed matrices exactly, by name; and what there is to say about them. Adds tensors `.scale`."""
    found: dict[str, tuple[str, str]] = {}
    made: list[tuple[str, str]] = []
    for name in sorted(model.tensors, key=_order):
        packed = _packed(model, name)
        if packed is None:
            continue
        file, source = packed
        found[name] = file.exact_type(source)
        factors = None if found[name][0] in PLAIN else file.factors(source)
        if factors is not None and (scale := name.removesuffix("weight") + "scale") in model.tensors:
            found[name] = "BF16", "the model has scales of its own beside them"
        elif factors is not None:
            model.add_made(scale, factors)
            made.append((name, scale))
    read = vectors(build_graph(model)[1]) if made else {}
    for name, scale in made:
        if scale not in read:
            del model.tensors[scale]
            found[name] = "BF16", "the model has no place for their scales"
    reasons = Counter(found.values())
    return {name: TYPES_BY_NAME[kind] for name, (kind, _) in found.items()}, [
        f"{n} matrices are {kind}" + (f", because {why}" if why else ", exactly as in the checkpoint")
        for (kind, why), n in reasons.items()
    ]


def _packed(model: MlxFolder, name: str) -> tuple[ExactCheckpoint, Source] | None:
    """Where a tensor comes from, if that is one packed matrix or several."""
    source, file = model.source(name), model.file
    if source is None or not isinstance(file, ExactCheckpoint) or not all(map(file.is_packed, source.names)):
        return None
    changed = not source.only_rows if not source.others else not source.is_stack
    return None if changed else (file, source)


def _left_out(model: MlxFolder) -> list[str]:
    silent = (".attn.bias", ".attention.bias", ".masked_bias", ".inv_freq")  # masks and angles, which are computed
    parts = sorted({PREFIX.sub("", name, count=1).partition(".")[0] for name in model.skipped() if not name.endswith(silent)})
    notes = [f"the language model alone is converted, without {', '.join(parts)}"] if parts else []
    return notes + (["layers that only draft tokens are left out"] if model.drafting else [])


def _type(model: MlxFolder, name: str, target: GGMLType | None, exact: GGMLType | None) -> GGMLType:
    """The type of a tensor in the file. `exact`: the one that holds its packed values."""
    info = model.tensors[name]
    if exact is not None and not (exact.name in PLAIN and FLOAT_TENSORS.fullmatch(name)):
        return exact
    if len(info.shape) < 2 or FLOAT_TENSORS.fullmatch(name):
        return TYPES_BY_NAME["F32"]
    if target is None:
        return info.type
    return TYPES_BY_NAME["F16"] if info.shape[-1] % target.block else target


def _order(name: str) -> tuple[int, int, str]:
    """Tables first, then layer by layer."""
    block = re.match(r"blk\.(\d+)\.", name)
    return (1, int(block[1]), name) if block else (0, 0, name)


def _metadata(model: MlxFolder, plan: list[NewTensor]) -> dict[str, Any]:
    """The model's keys, and what general.* says of the file."""
    nbytes: dict[str, int] = {}
    for tensor in plan:
        if len(tensor.shape) > 1:
            nbytes[tensor.type.name] = nbytes.get(tensor.type.name, 0) + tensor.nbytes
    commonest = max(nbytes, key=nbytes.__getitem__, default="F32")
    number = next(number for number, name in NAMES.items() if name.removesuffix("_MOE") == commonest)
    metadata = {
        "general.architecture": model.metadata["general.architecture"],
        "general.type": "model",
        **model.metadata,
        "general.file_type": number,
    }
    if commonest not in PLAIN:
        metadata["general.quantization_version"] = 2
    table = model.tensors.get("token_embd.weight")
    if table is not None:
        metadata[f"{metadata['general.architecture']}.vocab_size"] = table.shape[0]
    if (kinds := model.tensors.get("token_types.weight")) is not None:
        metadata["tokenizer.ggml.token_type_count"] = kinds.shape[0]
    return metadata


def _encoded(model: MlxFolder, tensor: NewTensor) -> Iterator[npt.NDArray[np.uint8]]:
    """The bytes of a tensor in its new type, some rows at a time."""
    if tensor.type.name not in PLAIN and (packed := _packed(model, tensor.name)) is not None:
        file, source = packed
        if file.exact_type(source)[0] == tensor.type.name:
            for name in source.names:
                yield file.encoded(name, tensor.type.name, source.rows)
            return
    info, raw = model.tensors[tensor.name], model.raw(tensor.name)
    if info.type == tensor.type:
        yield raw
        return
    columns = info.shape[-1] if info.shape else 1
    rows = raw.reshape(math.prod(info.shape[:-1]), row_bytes(info.type, columns))
    step = max(AT_ONCE // columns, 1)
    for first in range(0, len(rows), step):
        values = CODECS[info.type.name].dequantize(rows[first : first + step])
        if tensor.type.name == "F16" and np.abs(values[np.isfinite(values)]).max(initial=0.0) > LARGEST_F16:
            raise Unsupported(
                "has values beyond the range of F16; convert with --type BF16 or F32", file=model.path, field=tensor.name
            )
        encoded = CODECS[tensor.type.name].quantize(values)
        if tensor.type.name not in PLAIN and not _fits(values, encoded, tensor.type):
            raise Unsupported(
                "has NaN, Inf or values too large for the scales of its blocks; convert with --type BF16 or F32",
                file=model.path,
                field=tensor.name,
            )
        yield encoded


def _fits(values: npt.NDArray[np.float32], encoded: npt.NDArray[np.uint8], kind: GGMLType) -> bool:
    """True if all is finite, and so are the scales, in f16."""
    largest = np.abs(values).max(initial=0.0)  # NaN where there is one
    return bool(largest <= LARGEST_F16 or (np.isfinite(largest) and np.isfinite(CODECS[kind.name].dequantize(encoded)).all()))
