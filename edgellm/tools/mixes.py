"""Which type each tensor of a quantised file gets: llama.cpp's mixtures and fall-backs (src/llama-quant.cpp)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edgellm.catalogue.spelling import near_type
from edgellm.errors import OptionError, Unsupported
from edgellm.formats.ggml_types import TYPES_BY_NAME, GGMLType
from edgellm.formats.gguf_tensors import TensorInfo


@dataclass(frozen=True, slots=True)
class Mix:
    """The meaning of TYPE on the command line: `file_type` (general.file_type), `base`: the type of most matrices."""

    name: str
    file_type: int
    base: str
    about: str


MIXES: dict[str, Mix] = {
    mix.name: mix
    for mix in (
        Mix("F32", 0, "F32", "32 bits, for further work"),
        Mix("F16", 1, "F16", "16 bits"),
        Mix("BF16", 32, "BF16", "16 bits with the range of F32"),
        Mix("Q8_0", 7, "Q8_0", "8.5 bits, as good as F16"),
        Mix("Q6_K", 18, "Q6_K", "6.6 bits, very good"),
        Mix("Q5_K_M", 17, "Q5_K", "5.7 bits, good"),
        Mix("Q5_K_S", 16, "Q5_K", "5.5 bits"),
        Mix("Q5_1", 9, "Q5_1", "6 bits, for rows that K types do not fit"),
        Mix("Q5_0", 8, "Q5_0", "5.5 bits, for rows that K types do not fit"),
        Mix("Q4_K_M", 15, "Q4_K", "4.8 bits, the usual choice"),
        Mix("Q4_K_S", 14, "Q4_K", "4.6 bits"),
        Mix("Q4_1", 3, "Q4_1", "5 bits"),
        Mix("Q4_0", 2, "Q4_0", "4.5 bits, fast on ARM"),
        Mix("IQ4_NL", 25, "IQ4_NL", "4.5 bits, better than Q4_0"),
        Mix("IQ4_XS", 30, "IQ4_XS", "4.3 bits"),
        Mix("MXFP4", 38, "MXFP4", "4.25 bits, powers of two as scales: for models trained so"),
        Mix("MXFP4_MOE", 38, "MXFP4", "experts in MXFP4, the rest in Q8_0"),
        Mix("Q3_K_L", 13, "Q3_K", "4.3 bits"),
        Mix("Q3_K_M", 12, "Q3_K", "3.9 bits"),
        Mix("Q3_K_S", 11, "Q3_K", "3.5 bits, noticeably worse"),
        Mix("Q2_K", 10, "Q2_K", "3.2 bits, much worse"),
        Mix("Q2_K_S", 21, "Q2_K", "2.9 bits, needs --imatrix"),
        Mix("TQ2_0", 37, "TQ2_0", "2.1 bits, for models trained in three values"),
        Mix("TQ1_0", 36, "TQ1_0", "1.7 bits, for models trained in three values"),
    )
}
ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}

# Matrices that stay as they are, by a part of their name: small, or spoilt by any rounding.
_KEPT = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".attn.pos_",  # the names of those tables in files
    ".patch_embd",
    ".patch_merger",
    "mm.input_projection.weight",  # Gemma 3's is read by columns, and llama.cpp can't turn quantised rows
    "a.rvq.codebook",
    "mm.a.code_embd",
)
_KEPT_WHOLE = ("position_embd.weight", "token_types.weight")
_NOT_REAL = ("I8", "I16", "I32", "I64", "F64")
EMBEDDINGS = ("token_embd.weight", "per_layer_token_embd.weight")
OUTPUT = "output.weight"
_ROLES = (  # the first part that a name has says what the tensor is
    ("attn_qkv.weight", "qkv"),
    ("attn_kv_b.weight", "kv_b"),
    ("attn_v.weight", "v"),
    ("attn_k.weight", "k"),
    ("attn_q.weight", "q"),
    ("attn_output.weight", "attn_output"),
    ("ffn_up", "up"),
    ("ffn_gate", "gate"),
    ("ffn_down", "down"),
)
_FALLBACKS = {  # for rows that are not a whole number of superblocks
    "IQ1_S": "IQ4_NL",
    "IQ1_M": "IQ4_NL",
    "IQ2_XXS": "IQ4_NL",
    "IQ2_XS": "IQ4_NL",
    "IQ2_S": "IQ4_NL",
    "IQ3_XXS": "IQ4_NL",
    "IQ3_S": "IQ4_NL",
    "IQ4_XS": "IQ4_NL",
    "Q2_K": "Q4_0",
    "Q3_K": "Q4_0",
    "TQ1_0": "Q4_0",
    "TQ2_0": "Q4_0",
    "Q2_0": "Q4_0",
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}
_NEED_IMPORTANCE = ("IQ3_XXS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_M", "IQ1_S")
_GROUPED_70B = ("llama", "deci", "qwen2", "qwen2vl", "apertus")  # whose 80-layer models llama.cpp knows as 70B


@dataclass(frozen=True, slots=True)
class Wishes:
    """The user's requests beside the mix: types by pattern, of the output and of embeddings; `pure`: one type for all."""

    tensor_types: tuple[tuple[re.Pattern[str], str], ...] = ()
    output: str | None = None
    token_embedding: str | None = None
    pure: bool = False


def find_mix(name: str) -> Mix:
    """The mix of that name, in any case. Raises OptionError."""
    mix = MIXES.get(ALIASES.get(name.upper(), name.upper()))
    if mix is None:
        near = near_type(name, list(MIXES))
        hint = f"did you mean {near}?" if near else f"choose one of {', '.join(MIXES)}."
        raise OptionError(f"type {name!r} is not known; {hint}")
    return mix


def is_quantisable(info: TensorInfo) -> bool:
    """True if a tensor takes the type of the file: matrices that are not norms, routers, positions or small."""
    name, shape = info.name, info.shape
    while shape and shape[0] == 1:
        shape = shape[1:]
    return (
        len(shape) >= 2
        and name.endswith("weight")
        and name not in _KEPT_WHOLE
        and not any(part in name for part in _KEPT)
        and info.type.name not in _NOT_REAL
    )


def choose_types(
    tensors: Mapping[str, TensorInfo], metadata: Mapping[str, Any], mix: Mix, wishes: Wishes, *, has_importance: bool
) -> dict[str, GGMLType]:
    """The type of every tensor in the new file, in the order of `tensors`. Raises OptionError where importance is missing."""
    rules = _Rules(tensors, metadata, mix, has_importance)
    chosen = {}
    for name in sorted(tensors, key=_llama_order):  # counters of layers run in llama.cpp's order
        info = tensors[name]
        chosen[name] = TYPES_BY_NAME[_type_of(info, rules, wishes)] if is_quantisable(info) else info.type
    for name, kind in chosen.items():
        needs = kind.name in _NEED_IMPORTANCE or (kind.name == "Q2_K" and mix.name == "Q2_K_S")
        if needs and not has_importance and name not in (*EMBEDDINGS, OUTPUT) and kind is not tensors[name].type:
            raise OptionError(
                f"{name} would become {kind.name}, which is useless without an importance matrix; make one with "
                "edgellm imatrix and give it with --imatrix, or choose a larger type."
            )
    return {name: chosen[name] for name in tensors}


def _type_of(info: TensorInfo, rules: _Rules, wishes: Wishes) -> str:
    by_pattern = next((kind for pattern, kind in wishes.tensor_types if pattern.search(info.name)), None)
    is_separate = info.name == EMBEDDINGS[1] and by_pattern is not None
    if wishes.token_embedding and info.name in EMBEDDINGS and not is_separate:
        kind = wishes.token_embedding
    elif wishes.output and info.name == OUTPUT:
        kind = wishes.output
    elif by_pattern is not None:
        kind = by_pattern
    elif wishes.pure or rules.mix.base in ("F32", "F16", "BF16"):
        kind = rules.mix.base
    elif wishes.output and rules.is_output(info.name):
        kind = wishes.output
    else:
        kind = rules.choose(info)
    return _fitting(info, kind)


def _fitting(info: TensorInfo, kind: str) -> str:
    """The type, or the one that takes its place where the rows are not a whole number of its blocks."""
    columns = info.shape[-1]
    if columns % TYPES_BY_NAME[kind].block == 0:
        return kind
    kind = _FALLBACKS.get(kind, kind)
    return kind if columns % TYPES_BY_NAME[kind].block == 0 else "F16"


def _llama_order(name: str) -> tuple[int, str]:
    match = re.match(r"blk\.(\d+)\.", name)
    return int(match[1]) if match else -1, name


def _more_bits(layer: int, layers: int) -> bool:
    """The first and last eighth of the layers, and every third between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


class _Rules:
    """llama.cpp's standard logic; counts the tensors of some roles as it goes."""

    def __init__(self, tensors: Mapping[str, TensorInfo], metadata: Mapping[str, Any], mix: Mix, has_importance: bool) -> None:
        self.mix, self.has_importance = mix, has_importance
        self.architecture = str(metadata.get("general.architecture", ""))
        self.layers, self.experts = self._number(metadata, "block_count"), self._number(metadata, "expert_count")
        heads, kv_heads = self._number(metadata, "attention.head_count"), self._number(metadata, "attention.head_count_kv")
        self.shared = heads // kv_heads if kv_heads else (1 if heads else 0)  # query heads for each of keys and values
        self.is_70b = self.layers == 80 and self.architecture in _GROUPED_70B and (self.architecture != "llama" or self.shared != 1)
        self.tied = OUTPUT not in tensors
        self.n_v = sum(_role(name) in ("v", "qkv", "kv_b") for name in tensors)
        self.seen = {"v": 0, "down": 0}

    def _number(self, metadata: Mapping[str, Any], key: str) -> int:
        value = metadata.get(f"{self.architecture}.{key}", 0)
        return int(value) if isinstance(value, (int, float)) else int(value[0]) if len(value) else 0

    def is_output(self, name: str) -> bool:
        return name == OUTPUT or (self.tied and name in EMBEDDINGS)

    def choose(self, info: TensorInfo) -> str:
        """The type of a quantisable tensor."""
        name, base = info.name, self.mix.base
        if self.is_output(name):
            if self.mix.name == "MXFP4_MOE" or self.architecture == "falcon" or info.shape[-1] % TYPES_BY_NAME[base].block:
                return "Q8_0"
            return base if base == "Q8_0" else "Q6_K"
        if self.mix.name == "MXFP4_MOE":
            is_expert = self.architecture != "bailingmoe3" or _role(name) in ("up", "gate", "down")
            return "MXFP4" if len(info.shape) == 3 and info.shape[0] > 1 and is_expert else "Q8_0"
        if name in EMBEDDINGS:
            return "Q4_K" if base in ("TQ1_0", "TQ2_0") else base
        rule: Callable[[str], str | None] | None = {
            "v": self._value,
            "qkv": self._value,
            "kv_b": self._value,
            "k": self._key,
            "down": self._down,
            "attn_output": self._attention_output,
        }.get(_role(name))
        return (rule(name) if rule else None) or base

    def _value(self, name: str) -> str | None:
        mix, index = self.mix.name, self.seen["v"]
        self.seen["v"] += 1
        kind: str | None = None
        if mix in ("Q2_K", "Q2_K_S") and self.shared >= 4:
            kind = "Q4_K"
        elif mix == "Q2_K":
            kind = "Q3_K"
        elif mix == "Q3_K_M":
            kind = "Q5_K" if index < 2 else "Q4_K"
        elif mix == "Q3_K_L" or (mix in ("IQ4_NL", "IQ4_XS") and self.shared >= 4) or (mix == "Q4_K_S" and index < 4):
            kind = "Q5_K"
        elif mix in ("Q4_K_M", "Q5_K_M") and _more_bits(index, self.n_v):
            kind = "Q6_K"
        if self.is_70b and (kind or self.mix.base) in ("Q3_K", "Q4_K"):
            kind = "Q5_K"  # eight query heads share it, so that it is small
        return "Q8_0" if self.experts == 8 else kind

    def _key(self, name: str) -> str | None:
        return "Q8_0" if self.experts == 8 else None

    def _down(self, name: str) -> str | None:
        mix, layer, layers = self.mix.name, self.seen["down"], self.layers
        self.seen["down"] += 1
        if self.experts > 1:
            layer = _llama_order(name)[0]
            if not 0 <= layer < layers:
                raise Unsupported(f"is a tensor of layer {layer} in a model of {layers}; make the file again", file="", field=name)
        falcon, more = self.architecture == "falcon", _more_bits(layer, layers)
        first_eighth, first_sixteenth = layer < layers // 8, layer < layers // 16
        if mix == "Q3_K_M":
            return "Q5_K" if first_sixteenth else "Q4_K" if not falcon or more else "Q3_K"
        if mix == "Q4_K_M" and falcon:
            return "Q6_K" if first_sixteenth else "Q5_K" if more else "Q4_K"
        table: dict[str, str | None] = {
            "Q2_K": "Q3_K",
            "Q2_K_S": "Q4_K" if first_eighth else None,
            "Q3_K_L": "Q4_K" if falcon else "Q5_K",
            "Q4_K_M": "Q6_K" if more else None,
            "Q5_K_M": "Q6_K" if more else None,
            "Q4_K_S": "Q5_K" if first_eighth and not falcon else None,
            "IQ4_NL": "Q5_K" if first_eighth and not self.has_importance else None,
            "Q4_0": "Q4_1" if first_eighth and self.has_importance else None,
            "Q5_0": "Q5_1" if first_eighth and self.has_importance else None,
        }
        table["IQ4_XS"] = table["IQ4_NL"]
        return table.get(mix)

    def _attention_output(self, name: str) -> str | None:
        mix = self.mix.name
        if self.architecture == "falcon":
            return "Q4_K" if mix == "Q3_K_L" else None
        if self.experts == 8:
            return "Q5_K" if mix in ("Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ4_NL", "IQ4_XS") else None
        return {"Q2_K": "Q3_K", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K"}.get(mix)


def _role(name: str) -> str:
    return next((role for part, role in _ROLES if part in name), "other")
