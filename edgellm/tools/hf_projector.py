"""The image encoder of a Hugging Face checkpoint as a projector file (mmproj-*.gguf), with llama.cpp's names and keys."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any  # values of JSON

import numpy as np
import numpy.typing as npt

from edgellm.checkpoints.config import read_config
from edgellm.checkpoints.folder import paired_rows
from edgellm.checkpoints.packings.mlx_groups import grouped
from edgellm.errors import BadHParam, OptionError, Unreadable, Unsupported, shown
from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.gguf_file_type import NAMES
from edgellm.formats.mapped import MappedFile
from edgellm.formats.safetensors import SafeTensorsFile, open_safetensors, read_json
from edgellm.formats.writer import GGUFWriter, NewTensor
from edgellm.tools.converted import LARGEST_F16, LARGEST_F32, Converted
from edgellm.tools.places import check_out, checkpoint_files

Config = Mapping[str, Any]
Floats = npt.NDArray[np.float32]
TYPES = ("F32", "F16", "BF16", "Q8_0")
PREPROCESSORS = ("preprocessor_config.json", "processor_config.json")
FLOAT_TENSORS = re.compile(r"v\.position_embd\.weight|v\.patch_embd\.weight.*")  # stay float32

SIGLIP = {
    r"embeddings\.patch_embedding\.": "v.patch_embd.",
    r"embeddings\.position_embedding\.": "v.position_embd.",
    r"post_layernorm\.": "v.post_ln.",
    r"encoder\.layers\.(\d+)\.layer_norm([12])\.": r"v.blk.\1.ln\2.",
    r"encoder\.layers\.(\d+)\.self_attn\.([qkv])_proj\.": r"v.blk.\1.attn_\2.",
    r"encoder\.layers\.(\d+)\.self_attn\.out_proj\.": r"v.blk.\1.attn_out.",
    r"encoder\.layers\.(\d+)\.mlp\.fc1\.": r"v.blk.\1.ffn_up.",
    r"encoder\.layers\.(\d+)\.mlp\.fc2\.": r"v.blk.\1.ffn_down.",
}
QWEN3 = {
    r"patch_embed\.proj\.": "v.patch_embd.",
    r"pos_embed\.": "v.position_embd.",
    r"blocks\.(\d+)\.norm([12])\.": r"v.blk.\1.ln\2.",
    r"blocks\.(\d+)\.attn\.qkv\.": r"v.blk.\1.attn_qkv.",
    r"blocks\.(\d+)\.attn\.proj\.": r"v.blk.\1.attn_out.",
    r"blocks\.(\d+)\.mlp\.linear_fc1\.": r"v.blk.\1.ffn_up.",
    r"blocks\.(\d+)\.mlp\.linear_fc2\.": r"v.blk.\1.ffn_down.",
    r"merger\.norm\.": "v.post_ln.",
    r"merger\.linear_fc1\.": "mm.0.",
    r"merger\.linear_fc2\.": "mm.2.",
    r"deepstack_merger_list\.(\d+)\.norm\.": r"v.deepstack.\1.norm.",
    r"deepstack_merger_list\.(\d+)\.linear_fc([12])\.": r"v.deepstack.\1.fc\2.",
}
QWEN2 = QWEN3 | {
    r"blocks\.(\d+)\.mlp\.fc1\.": r"v.blk.\1.ffn_up.",
    r"blocks\.(\d+)\.mlp\.fc2\.": r"v.blk.\1.ffn_down.",
    r"blocks\.(\d+)\.mlp\.(gate|up|down)_proj\.": r"v.blk.\1.ffn_\2.",
    r"merger\.ln_q\.": "v.post_ln.",
    r"merger\.mlp\.([02])\.": r"mm.\1.",
}
PIXTRAL = {
    r"patch_conv\.": "v.patch_embd.",
    r"ln_pre\.": "v.pre_ln.",
    r"transformer\.layers\.(\d+)\.attention\.([qkv])_proj\.": r"v.blk.\1.attn_\2.",
    r"transformer\.layers\.(\d+)\.attention\.o_proj\.": r"v.blk.\1.attn_out.",
    r"transformer\.layers\.(\d+)\.attention_norm\.": r"v.blk.\1.ln1.",
    r"transformer\.layers\.(\d+)\.ffn_norm\.": r"v.blk.\1.ln2.",
    r"transformer\.layers\.(\d+)\.feed_forward\.(gate|up|down)_proj\.": r"v.blk.\1.ffn_\2.",
    r"norm\.": "mm.input_norm.",
    r"patch_merger\.merging_layer\.": "mm.patch_merger.",
    r"linear_([12])\.": r"mm.\1.",
}
FLAGS = {"gelu": "use_gelu", "silu": "use_silu", "quick_gelu": ""}  # by names of activations
FULL = [7, 15, 23, 31]  # layers of Qwen2.5-VL that see all of the image, where nothing is said
COLOURS, WINDOW = 3, 112  # of pixels; pixels of a window's side
SEEN, ROPE_BASE = 560, 10000.0  # image_size in llama.cpp's files of Qwen2-VL; of Pixtral's rotations


@dataclass(frozen=True, slots=True)
class Layout:
    """A kind of checkpoint: its projector type, names of tensors (patterns without prefixes), and keys of its own."""

    projector: str
    names: Mapping[str, str]
    keys: Callable[[Config, Config, Config], Mapping[str, Any]]  # of the config, its vision_config, and the preprocessor's
    activation: str = "gelu"  # one of FLAGS, "" for what vision_config says
    paired: bool = False  # whether a rotation's pairs lie side by side in GGUF


def _gemma3(config: Config, vision: Config, images: Config) -> Mapping[str, Any]:
    side = math.isqrt(int(config.get("mm_tokens_per_image", 256)))
    return {"projector.scale_factor": vision["image_size"] // vision["patch_size"] // side}


def _idefics3(config: Config, vision: Config, images: Config) -> Mapping[str, Any]:
    longest = (images.get("size") or {}).get("longest_edge")
    return {"projector.scale_factor": config["scale_factor"]} | ({"preproc_image_size": longest} if longest else {})


def _lfm2(config: Config, vision: Config, images: Config) -> Mapping[str, Any]:
    return {"projector.scale_factor": config.get("downsample_factor", 2), "image_size": 256}


def _qwen3(config: Config, vision: Config, images: Config) -> Mapping[str, Any]:
    side = math.isqrt(vision["num_position_embeddings"])
    deep = vision.get("deepstack_visual_indexes") or ()
    flags = {"is_deepstack_layers": [layer in deep for layer in range(vision["depth"])]} if deep else {}
    return {"spatial_merge_size": vision.get("spatial_merge_size", 2), "image_size": side * vision["patch_size"], **flags}


def _qwen2(config: Config, vision: Config, images: Config) -> Mapping[str, Any]:
    width = vision["embed_dim"]
    return {
        "embedding_length": width,
        "feed_forward_length": int(width * vision.get("mlp_ratio", 4)),
        "spatial_merge_size": vision.get("spatial_merge_size", 2),
        "image_size": SEEN,
    }


def _qwen25(config: Config, vision: Config, images: Config) -> Mapping[str, Any]:
    full = vision.get("fullatt_block_indexes") or FULL
    every = full[0] + 1
    if vision.get("window_size", WINDOW) != WINDOW or full != [*range(every - 1, vision["depth"], every)]:
        raise ValueError(f"windows of {WINDOW} pixels, and none in every n-th layer, are all that such files can say")
    return {"n_wa_pattern": every, "spatial_merge_size": vision.get("spatial_merge_size", 2), "image_size": SEEN}


def _pixtral(config: Config, vision: Config, images: Config) -> Mapping[str, Any]:
    base = (vision.get("rope_parameters") or vision).get("rope_theta", ROPE_BASE)
    if vision.get("model_type", "pixtral") != "pixtral" or base != ROPE_BASE or config.get("vision_feature_layer", -1) != -1:
        raise ValueError("another encoder than Pixtral's, another rope_theta or vision_feature_layer")
    merge = config.get("spatial_merge_size", 2 if config["model_type"] == "mistral3" else 1)
    head = vision.get("head_dim") or vision["hidden_size"] // vision["num_attention_heads"]
    return {"spatial_merge_size": merge, "attention.layer_norm_epsilon": np.float32(1e-5), "attention.head_dim": head}


LAYOUTS = {
    "gemma3": Layout(
        "gemma3",
        SIGLIP | {r"mm_input_projection_weight$": "mm.input_projection.weight", r"mm_soft_emb_norm\.": "mm.soft_emb_norm."},
        _gemma3,
    ),
    "idefics3": Layout("idefics3", SIGLIP | {r"modality_projection\.proj\.": "mm.model.fc."}, _idefics3),
    "smolvlm": Layout("idefics3", SIGLIP | {r"modality_projection\.proj\.": "mm.model.fc."}, _idefics3),
    "lfm2_vl": Layout("lfm2", SIGLIP | {r"layer_norm\.": "mm.input_norm.", r"linear_([12])\.": r"mm.\1."}, _lfm2),
    "qwen2_vl": Layout("qwen2vl_merger", QWEN2, _qwen2, "quick_gelu"),
    "qwen2_5_vl": Layout("qwen2.5vl_merger", QWEN2, _qwen25, "silu"),
    **dict.fromkeys(("mistral3", "pixtral", "llava (pixtral)"), Layout("pixtral", PIXTRAL, _pixtral, "", paired=True)),
    "qwen3_vl": Layout("qwen3vl_merger", QWEN3, _qwen3),
}
PREFIX = re.compile(r"(?:model\.)?(?:vision_tower|vision_model|visual|multi_modal_projector|connector)\.(?:vision_model\.)?")


def convert_projector(folder: str | os.PathLike[str], out: str | os.PathLike[str], *, type_name: str | None = None) -> Converted:
    """Write the encoder of the checkpoint in `folder` to the file `out`. `type_name`: one of `TYPES` for its matrices, else F16.

    Raises Unsupported for a model whose encoder is none of `LAYOUTS`, OptionError, BadHParam, Unwritable and the FormatErrors.
    """
    kind = (type_name or "F16").upper()
    if kind not in TYPES:
        raise OptionError(f"--type {shown(str(type_name))} is no type of projector files; give {', '.join(TYPES)}.")
    if not os.path.isdir(folder):
        raise Unreadable("is not a folder; give the folder of a checkpoint, with config.json and .safetensors files", file=folder)
    check_out(out, checkpoint_files(folder), force=True)
    config = read_config(os.fspath(folder))
    model, vision = str(config.get("model_type")), config.get("vision_config")
    if model == "llava" and isinstance(vision, Mapping):
        model = f"llava ({vision.get('model_type')})"
    layout = LAYOUTS.get(model)
    if layout is None:
        raise Unsupported(
            f"is a model of type {shown(model)}, and projector files are written for {', '.join(LAYOUTS)}",
            file=folder,
            field="model_type",
        )
    try:
        metadata = _metadata(folder, config, layout, kind)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise BadHParam(
            f"lacks a setting of its encoder, or has one of another kind ({error})", file=folder, field="vision_config"
        ) from error
    with open_safetensors(folder) as opened:
        file = grouped(opened, config, lambda name: PREFIX.match(name) is not None)
        found = {name: (source, how) for source in file.tensors for name, how in _targets(source, config, layout, file)}
        tensors = []
        for name in sorted(found):
            values = found[name][1](file)
            tensors.append(NewTensor(name, values.shape, TYPES_BY_NAME[_type(name, values, kind)]))
        if not tensors:
            raise Unsupported("has no tensors of an image encoder", file=folder, field="model_type")
        with GGUFWriter(out, metadata, tensors) as writer:
            for tensor in tensors:
                values = found[tensor.name][1](file)
                if not np.abs(values).max(initial=0.0) <= (LARGEST_F16 if tensor.type.name == "F16" else LARGEST_F32):
                    raise Unsupported(
                        f"has NaN, Inf or values beyond the range of {tensor.type.name}; convert with --type F32",
                        file=folder,
                        field=found[tensor.name][0],
                    )
                writer.write(tensor.name, CODECS[tensor.type.name].quantize(values))
    path = writer.paths[0]
    return Converted(path, "clip", kind, os.stat(path).st_size, len(tensors), ())


def _metadata(folder: str | os.PathLike[str], config: Config, layout: Layout, kind: str) -> dict[str, Any]:
    vision, text, images = config["vision_config"], config.get("text_config") or {}, _images(folder)
    width, flag = text.get("hidden_size", config.get("hidden_size")), FLAGS[layout.activation or vision.get("hidden_act", "gelu")]
    keys: dict[str, Any] = {
        "image_size": vision.get("image_size"),
        "patch_size": vision["patch_size"],
        "embedding_length": vision.get("hidden_size"),
        "feed_forward_length": vision.get("intermediate_size"),
        "block_count": vision["num_hidden_layers"] if "num_hidden_layers" in vision else vision["depth"],
        "projection_dim": width,
        "attention.head_count": vision["num_attention_heads"] if "num_attention_heads" in vision else vision["num_heads"],
        "attention.layer_norm_epsilon": np.float32(vision.get("layer_norm_eps", 1e-6)),
        "image_mean": np.array(images.get("image_mean", [0.5] * 3), np.float32),
        "image_std": np.array(images.get("image_std", [0.5] * 3), np.float32),
    }
    keys |= layout.keys(config, vision, images)
    if missing := next((key for key, value in keys.items() if value is None), None):
        raise KeyError(missing)
    return {
        "general.architecture": "clip",
        "general.type": "mmproj",
        "general.name": os.path.basename(os.path.abspath(folder)),
        "general.file_type": next(number for number, name in NAMES.items() if name == kind),
        "clip.has_vision_encoder": True,
        "clip.projector_type": layout.projector,
        **({f"clip.{flag}": True} if flag else {}),
    } | {f"clip.vision.{key}": value for key, value in keys.items()}


def _images(folder: str | os.PathLike[str]) -> Config:
    """The settings of the checkpoint's image processor."""
    for name in PREPROCESSORS:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            found = read_json(MappedFile(path))
            inner = found.get("image_processor")
            return inner if isinstance(inner, dict) else found
    return {}


Reads = Callable[[SafeTensorsFile], Floats]


def _targets(source: str, config: Config, layout: Layout, file: SafeTensorsFile) -> Iterator[tuple[str, Reads]]:
    """The tensors that one of a checkpoint becomes: none, one, or the two frames of a patch convolution."""
    match = PREFIX.match(source)
    if match is None:
        return
    rest = source[match.end() :]
    name = next((re.sub(pattern, new, rest) for pattern, new in layout.names.items() if re.match(pattern, rest)), None)
    if name is None:
        return
    if (deep := re.match(r"v\.deepstack\.(\d+)\.", name)) is not None:
        layer = config["vision_config"]["deepstack_visual_indexes"][int(deep[1])]
        name = f"v.deepstack.{layer}.{name[deep.end() :]}"

    def plain(file: SafeTensorsFile) -> Floats:
        values = file.array(source).astype(np.float32)
        return values + np.float32(1) if name == "mm.soft_emb_norm.weight" else values  # Gemma's norms lack the 1

    shape = file.tensors[source].shape
    last = len(shape) > 3 and shape[-1] == COLOURS != shape[1]  # as MLX has convolutions

    def convolution(file: SafeTensorsFile) -> Floats:
        return np.ascontiguousarray(np.moveaxis(plain(file), -1, 1)) if last else plain(file)

    if name == "v.patch_embd.weight" and len(shape) == 5:  # two frames
        yield name, lambda file: convolution(file)[:, :, 0]
        yield f"{name}.1", lambda file: convolution(file)[:, :, 1]
    elif name == "v.patch_embd.weight" and len(shape) == 2:  # pixels with their colours side by side
        side = math.isqrt(shape[1] // 3)
        yield name, lambda file: np.ascontiguousarray(plain(file).reshape(-1, side, side, 3).transpose(0, 3, 1, 2))
    elif layout.paired and re.fullmatch(r"v\.blk\.\d+\.attn_[qk]\.weight", name):
        rows = paired_rows(shape[0], int(config["vision_config"]["num_attention_heads"]), file.paths[0], source)
        yield name, lambda file: np.ascontiguousarray(plain(file)[rows])
    else:
        yield name, convolution


def _type(name: str, values: Floats, kind: str) -> str:
    """The type of a tensor: matrices have the wanted one, where its blocks divide their rows."""
    if values.ndim < 2 or FLOAT_TENSORS.fullmatch(name):
        return "F32"
    return "F16" if kind == "Q8_0" and (values.shape[-1] % 32 or name == "mm.input_projection.weight") else kind
