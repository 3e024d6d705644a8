"""Settings of a Hugging Face config.json as GGUF keys."""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from edgellm.checkpoints.families import FAMILIES, Family, copied, yarn_magnitude
from edgellm.checkpoints.settings import CheckpointSettings, checked
from edgellm.errors import BadHParam, Unsupported
from edgellm.formats.mapped import MappedFile
from edgellm.formats.safetensors import read_json

T = TypeVar("T")
Config = Mapping[str, Any]  # Any: parsed JSON
FULL, SLIDING = "full_attention", "sliding_attention"  # kinds of layers
ACTIVATIONS = ("hidden_activation", "hidden_act", "activation_function")
MAX_NUMBER = 1e30  # of an integer that is taken as a float: float32 ends at 3e38
MAX_HEAD = 1 << 24  # what hparams take as a head's length
MAX_LAYERS = 1 << 12
# Keys that are floats, and may be integers in JSON.
FLOATS = {
    "logit_scale",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "expert_weights_scale",
    "attention.scale",
    "attention.temperature_scale",
    "rope.scaling.yarn_log_multiplier",
    "embedding_scale",
    "residual_scale",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "ssm.dt_b_c_rms_epsilon",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scaling.factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
}
usual_keys = copied(
    {
        "block_count": "num_hidden_layers",
        "context_length": "max_position_embeddings",
        "embedding_length": "hidden_size",
        "feed_forward_length": "intermediate_size",
        "attention.head_count": "num_attention_heads",
        "attention.key_length": "head_dim",
        "attention.value_length": "head_dim",
        "attention.layer_norm_rms_epsilon": "rms_norm_eps",
        "attention.layer_norm_epsilon": "layer_norm_epsilon",
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
    }
)
CONFIG = "config.json"
PART = "partial_rotary_factor"
LONGROPE = ("longrope", "su")  # new name and old


def read_config(folder: str) -> Mapping[str, Any]:
    """The config.json of a folder. Raises BadHParam for one that is damaged, LimitExceeded."""
    path = os.path.join(folder, CONFIG)
    return checked(read_json(MappedFile(path)), path)


def find_family(config: Config, file: str) -> tuple[Family, CheckpointSettings]:
    """The family of a folder, and its configuration under common names, with its text part on top. Raises Unsupported."""
    text = config.get("text_config")
    text = text if isinstance(text, Mapping) else {}
    kinds = (config.get("model_type"), text.get("model_type"))
    kind = next((kind for kind in kinds if isinstance(kind, str) and kind in FAMILIES), None)
    if kind is None:
        if config.get("model_type") is None:
            raise Unsupported(
                "config.json names no model_type, so nothing says what its tensors are; download the folder again",
                file=file,
                field="model_type",
            )
        raise Unsupported(
            f"folders of the model type {str(config.get('model_type'))[:64]!r} cannot be read yet; take a .gguf file "
            "of the model (docs/files.md lists the types that can be read)",
            file=file,
            field="model_type",
        )
    merged = {**config, **text}
    family = FAMILIES[asked(FAMILIES[kind].instead, merged, file) or kind]
    usual = _defaults(next(kind for kind in (text.get("model_type"), kind) if kind in FAMILIES), merged, family)
    config = _common_names(CheckpointSettings({**usual, **family.defaults, **merged}, frozenset(merged)), family, usual)
    config.saw(*ACTIVATIONS)
    named = next((config[key] for key in ACTIVATIONS if config.get(key) is not None), family.activations[0])
    if named not in family.activations:
        raise Unsupported(
            f"the activation {str(named)[:40]!r} is none of {', '.join(family.activations)}, which this family uses; "
            "edgellm cannot run the model",
            file=file,
            field="hidden_act",
        )
    only = {"rope_traditional": (False,), **family.only}
    wrong = (key for key, allowed in only.items() if _at(config, key) is not None and _at(config, key) not in allowed)
    if key := next(wrong, "") or asked(family.refuses, config, file):
        raise Unsupported(
            f"{str(_at(config, key))[:40]} asks for a graph that edgellm does not have for {family.architecture} "
            "models; take one with the family's usual setting",
            file=file,
            field=key,
        )
    return family, config


def asked(rule: Callable[[Config], T], config: Config, file: str) -> T:
    """The result of a family's rule. Raises BadHParam where the configuration does not fit such models."""
    try:
        return rule(config)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise BadHParam(
            f"config.json does not fit models of the type {str(config.get('model_type'))[:64]!r} ({str(error)[:80]}); "
            "download the folder again",
            file=file,
        ) from error


@functools.cache
def transformers_defaults() -> Mapping[str, Mapping[str, object]]:
    """By model type: the values that transformers takes for settings that config.json lacks (scripts/hf_defaults.py)."""
    found: Mapping[str, Mapping[str, object]] = json.loads(Path(__file__).with_name("defaults.json").read_text("utf-8"))["defaults"]
    return found


def _defaults(kind: str, config: Config, family: Family) -> dict[str, object]:
    """transformers' defaults, without settings that the configuration has under this name or another that the family reads."""
    named = {name for common, theirs in family.reads.items() if config.keys() & {common, *theirs} for name in (common, *theirs)}
    return {key: value for key, value in transformers_defaults().get(kind, {}).items() if key not in named}


def _common_names(config: CheckpointSettings, family: Family, usual: Config) -> CheckpointSettings:
    """With what the family calls otherwise under the names that others have."""
    found = {
        common: next((value for key in theirs if (value := _at(config, key)) is not None), usual.get(common))
        for common, theirs in family.reads.items()
    }
    config.saw(*family.reads, *(key.partition(".")[0] for theirs in family.reads.values() for key in theirs))
    return config | found


def _at(config: Config, key: str) -> Any:
    """A setting, which may lie within another: "attn_config.clip_qkv"."""
    outer, _, inner = key.partition(".")
    value = config.get(outer)
    return value if not inner else value.get(inner) if isinstance(value, Mapping) else None


def metadata_of(config: CheckpointSettings, family: Family, file: str) -> dict[str, Any]:
    """GGUF's metadata. Values are passed on as they are: the getters of hparams check them. Raises Unsupported (rope scaling)."""
    name, rope = family.architecture, _rope(config)
    keys: dict[str, Any] = usual_keys(config) | {
        "attention.head_count_kv": config.get("num_key_value_heads") or config.get("num_attention_heads"),
        "rope.dimension_count": _rotated(config | rope),
        "rope.freq_base": rope.get("rope_theta"),
        "rope.freq_base_swa": _sliding_base(config),
    }
    if family.slides:
        keys["attention.sliding_window"] = config.get("sliding_window")
        keys["attention.sliding_window_pattern"] = _pattern(config)
    own = asked(family.keys, config, file)
    if (config | rope).get(PART) not in (None, 1) and not family.turns_part and "rope.dimension_count" not in own:
        raise Unsupported(
            f"models of the type {str(config.get('model_type'))[:64]!r} rotate whole heads, other than this setting "
            "says; take a model without it",
            file=file,
            field=PART,
        )
    keys |= {**_scaling(config, rope, file, family, own), **own}
    sliding = _sliding_rope(config)
    other = sliding and "rope.dimension_count_swa" not in own and sliding.get(PART) != rope.get(PART)
    if other or _kind(sliding) != "default":
        raise Unsupported(
            f"{str(dict(sliding))[:80]}: edgellm cannot scale the angles of sliding layers; take a model without this setting",
            file=file,
            field=f"rope_parameters.{SLIDING}",
        )
    found = {f"{name}.{key}": _float(value) if key in FLOATS else value for key, value in keys.items() if value is not None}
    return {"general.architecture": name, "general.name": folder_name(file), **found}


def folder_name(folder: str) -> str:
    """The name of a model's folder; in the hub's cache, whose folders are named after commits, the repository's name."""
    parts = PureWindowsPath(os.path.abspath(folder)).parts  # parted by either slash
    cached = len(parts) > 2 and parts[-2] == "snapshots" and parts[-3].startswith("models--")
    return parts[-3].split("--", 2)[-1] if cached else parts[-1]


def _rotated(config: Config) -> object:
    """The number of rotated values of a head, where not all are. An invalid share is passed on, and hparams refuses it."""
    share, heads, width = (config.get(key) for key in (PART, "num_attention_heads", "hidden_size"))
    if share is None or not (isinstance(heads, int) and isinstance(width, int) and heads > 0):
        return None
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        return f"partial_rotary_factor {str(share)[:40]}"
    size = config.get("head_dim") or width // heads
    return int(size * share) if isinstance(size, int) and 0 < size < MAX_HEAD else None


def _rope(config: Config) -> dict[str, Any]:
    """Rope settings, which newer files nest, with their scaling beside the base. The old name counts where both are there."""
    found: dict[str, Any] = {"rope_theta": config.get("rope_theta")}
    for key in ("rope_parameters", "rope_scaling"):
        settings = config.get(key)
        if isinstance(settings, Mapping):
            found |= settings[FULL] if isinstance(settings.get(FULL), Mapping) else settings
    return found


def _sliding_rope(config: Config) -> Config:
    """Settings of sliding layers' angles, {} where they have none of their own."""
    settings = config.get("rope_parameters")
    sliding = settings.get(SLIDING) if isinstance(settings, Mapping) else None
    return sliding if isinstance(sliding, Mapping) else {}


def _sliding_base(config: Config) -> object:
    """The base of sliding layers where they have one of their own."""
    return sliding.get("rope_theta") if (sliding := _sliding_rope(config)) else config.get("rope_local_base_freq")


def _scaling(config: Config, rope: Config, file: str, family: Family, own: Config) -> dict[str, Any]:
    """Keys of scaled angles; `own`: those that the family adds."""
    kind = _kind(rope)
    if kind in ("default", "llama3", *family.own_ropes):
        return {}
    if kind in LONGROPE:
        old = rope.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
        return {
            "rope.scaling.type": "longrope",
            "rope.scaling.original_context_length": old,
            "rope.scaling.attn_factor": _float(rope.get("attention_factor"))
            or _magnitude(rope.get("factor"), config.get("max_position_embeddings"), old),
        }
    if kind not in ("linear", "yarn"):
        raise Unsupported(
            f"rope scaling of the type {str(kind)[:64]!r} cannot be read from a folder yet; take a .gguf file of the model",
            file=file,
            field="rope_scaling",
        )
    if kind == "yarn" and rope.get("truncate", True) is not family.whole_pairs:
        raise Unsupported(
            f"yarn's bounds are {'' if family.whole_pairs else 'not '}rounded to whole pairs in GGUF's "
            f"{family.architecture}, other than this setting says; edgellm cannot run the model",
            file=file,
            field="rope_scaling.truncate",
        )
    return {
        "rope.scaling.type": kind,
        "rope.scaling.factor": rope.get("factor"),
        "rope.scaling.original_context_length": rope.get("original_max_position_embeddings"),
        "rope.scaling.yarn_attn_factor": _float(rope.get("attention_factor"))
        or (None if "rope.scaling.yarn_log_multiplier" in own else asked(lambda config: yarn_magnitude(rope), config, file)),
        "rope.scaling.yarn_beta_fast": rope.get("beta_fast"),
        "rope.scaling.yarn_beta_slow": rope.get("beta_slow"),
    }


def _kind(rope: Config) -> object:
    return rope.get("rope_type") or rope.get("type") or "default"


def _magnitude(factor: object, context: object, old: object) -> float:
    """Longrope's factor of cos and sin, as in transformers' modeling_rope_utils. `factor`: context / old where it is none."""
    if not (isinstance(context, int) and isinstance(old, int) and max(context, old) < MAX_NUMBER and old > 1):
        return 1.0
    growth = factor if isinstance(factor, (int, float)) and factor < MAX_NUMBER else context / old
    return math.sqrt(1.0 + math.log(growth) / math.log(old)) if growth > 1 else 1.0


def rope_divisors(config: CheckpointSettings, file: str, turned: object = None) -> dict[str, npt.NDArray[np.float32]]:
    """Divisors of each pair's frequency (n_rot/2,) by GGUF's names of tensors; {} for scalings without any. Raises BadHParam.

    `turned`: how many values of a head are rotated, None where the head's length says it.
    """
    rope = _rope(config)
    if _kind(rope) in LONGROPE:
        return {f"rope_factors_{name}.weight": _factors(rope.get(f"{name}_factor"), name, file) for name in ("long", "short")}
    return {"rope_freqs.weight": _llama3(config, rope, file, turned)} if _kind(rope) == "llama3" else {}


def _factors(values: object, name: str, file: str) -> npt.NDArray[np.float32]:
    if not isinstance(values, list) or not all(isinstance(_float(x), float) and abs(x) < MAX_NUMBER for x in values):
        problem = f"longrope's {name}_factor is not a list of numbers; download the folder again"
        raise BadHParam(problem, file=file, field="rope_scaling")
    return np.array(values, np.float32)


@np.errstate(all="ignore")
def _llama3(config: CheckpointSettings, rope: Config, file: str, turned: Any) -> npt.NDArray[np.float32]:
    """As in transformers' modeling_rope_utils."""
    try:
        dims = int(turned or config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
        base, factor = float(rope["rope_theta"]), float(rope["factor"])
        low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
        old = float(rope["original_max_position_embeddings"])
        waves = 2.0 * math.pi * base ** (np.arange(0, dims, 2, dtype=np.float64) / dims)
        kept = np.clip((old / waves - low) / (high - low or 1e-9), 0.0, 1.0)  # 1: unchanged; 0: divided by the factor
        divisors = (1.0 / ((1.0 - kept) / factor + kept)).astype(np.float32)
        if not (np.isfinite(divisors) & (divisors > 0)).all():
            raise ValueError(f"rope_theta {base:g} and factor {factor:g} give no angles")
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise BadHParam(f"llama3's rope scaling is incomplete: {str(error)[:80]}", file=file, field="rope_scaling") from error
    return divisors


def _pattern(config: Config) -> Any:
    kinds, period = config.get("layer_types"), config.get("sliding_window_pattern") or config.get("_sliding_window_pattern")
    if kinds is None and isinstance(period, str) and period and isinstance(n := config.get("num_hidden_layers"), int):
        kinds = [SLIDING if period[layer % len(period)] == "L" else FULL for layer in range(min(n, MAX_LAYERS))]
    return np.array([kind == SLIDING for kind in kinds]) if isinstance(kinds, list) else period


def _float(value: object) -> object:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < MAX_NUMBER else value
