"""A family of checkpoints: names of tensors, order of rows, norms. GGUF names and layouts are llama.cpp's."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from edgellm.checkpoints.families._pieces import Config, Slice

# Wrappers around the language model, none or several; torch.compile's too.
PREFIX = re.compile(
    r"^(?:(?:_orig_mod|model|language_model|text_model|transformer|backbone|gpt_neox|bert|roberta|encoder|rwkv)"
    r"\.)+"
)
LAYER = re.compile(r"(?:layers|layer|h|blocks|block)\.(\d+)\.(.+)")
NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
PART = re.compile(r"(?:(?:enc\.)?blk\.\d+\.)?(.+?)(?:\.(?:weight|bias|scale))?")
STACKED = re.compile(r".+\.(?:switch_mlp|switch_glu|experts)\.(gate|up|down)_proj")  # the matrices of all experts in MLX's folders
OLD_NAMES = {"gamma": "weight", "beta": "bias"}  # of norms, in BERT's first files
OUTER = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
# Angles, which are computed; eyes and ears; layers that draft tokens.
OTHERS = (
    r".*\.rotary_emb\.inv_freq|(?:model\.)?(?:visual|vision_tower|vision_model|audio_tower|embed_vision|embed_audio"
    r"|multi_modal_projector|connector|mtp|mtp_\w+)\..*|(?:model\.)?image_newline"
)
INNER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""The usual names of a layer's parts, and GGUF's."""


def nothing(config: Config) -> str:
    """For families whose configurations all ask for one graph."""
    return ""


def scaling(config: Config) -> Config:
    """Settings of angles, under their old name or their new one."""
    return config.get("rope_scaling") or config.get("rope_parameters") or {}


def yarn_magnitude(rope: Config) -> float | None:
    """The factor of cos and sin where yarn has one magnitude for them and another for scores, None where it follows."""
    own, every = rope.get("mscale"), rope.get("mscale_all_dim")
    if not own or not every:
        return None
    growth = 0.1 * math.log(max(float(rope["factor"]), 1.0))
    return (growth * float(own) + 1.0) / (growth * float(every) + 1.0)


def no_keys(config: Config) -> Mapping[str, object]:
    return {}


def no_tensors(config: Config) -> Mapping[str, npt.NDArray[np.float32]]:
    return {}


@dataclass(frozen=True, slots=True)
class Family:
    """Checkpoints of one or more `model_types`. Names in `inner` and `outer` come without wrappers and without .weight or .bias.

    `activations`: what config.json may name; another one would need another graph. `paired_rows`: GGUF orders the rows of queries
    and keys so that a rotation's pairs lie side by side. `norms_from_zero`: norms are stored less 1, but those of `kept_norms`;
    MLX's files too, unless `shifted_in_mlx`. `folded_in_mlx`: matrices of MLX's files have been multiplied by their factors, but
    for the factors that it gives as tensors. `slides`: whether `sliding_window` holds. `turns_part`: whether a part of each head
    may be rotated alone. `transposed`: matrices that PyTorch's checkpoints store as (columns, rows). `skipped`: tensors that the
    language model does not need (a regular expression).
    `instead`: the model type whose family a configuration belongs to, "" for this one.
    `only`: what a setting must be, where others ask for another graph; one that is missing is right. `refuses`: the key of a
    configuration that asks for another graph in a less simple way, "".
    A * in `inner` and `outer` stands for a number: such tensors are one in GGUF, in the order of their numbers. `bare`: names of a
    layer or of the model without .weight, and GGUF's in full. `pieces`: what GGUF makes of a part where it is not the tensor
    itself. `parts`: bare names of a layer that are one tensor in GGUF, by its name in full and their place in it.
    `padded`: tables that get as many rows as there are tokens, by their first one. `defaults`: what transformers takes
    where a configuration says nothing. `reads`: their names of what others call `hidden_size` and so on, the first that is there
    counts. `keys`: GGUF's keys that other families do not have, without the architecture's name. `values`: bare names of a layer
    whose number becomes a key's value for that layer. `measured`: keys whose value is the number of rows of a part of the first
    layer, whatever the configuration says. `made`: tensors that follow from the configuration. `own_ropes`: scalings
    of angles that `made` has. `whole_pairs`: whether yarn's ramp begins and ends at whole pairs. `merged_tokenizer`: see
    checkpoints/tokenizer. `blocks`: how GGUF names of layers begin.
    """

    architecture: str
    model_types: tuple[str, ...]
    inner: Mapping[str, str]
    outer: Mapping[str, str] = field(default_factory=lambda: OUTER)
    activations: tuple[str, ...] = ("silu",)
    paired_rows: bool = False
    norms_from_zero: bool = False
    kept_norms: Set[str] = frozenset()
    shifted_in_mlx: bool = False
    folded_in_mlx: Callable[[Config], Mapping[str, npt.NDArray[np.float32]]] | None = None
    slides: bool = False
    turns_part: bool = False
    transposed: Set[str] = frozenset()
    skipped: str = OTHERS
    instead: Callable[[Config], str] = nothing
    only: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    refuses: Callable[[Config], str] = nothing
    bare: Mapping[str, str] = field(default_factory=dict)
    pieces: Mapping[str, tuple[Slice, ...]] = field(default_factory=dict)
    parts: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    padded: Set[str] = frozenset()
    defaults: Mapping[str, object] = field(default_factory=dict)
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keys: Callable[[Config], Mapping[str, object]] = no_keys
    values: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, str] = field(default_factory=dict)
    made: Callable[[Config], Mapping[str, npt.NDArray[np.float32]]] = no_tensors
    own_ropes: Set[str] = frozenset()
    whole_pairs: bool = True
    merged_tokenizer: str = ""
    blocks: str = "blk"

    def name(self, tensor: str) -> str:
        """GGUF's name of a tensor; one that is unknown keeps its own, and is refused where the graph is checked."""
        return self.place(tensor)[0]

    def place(self, tensor: str) -> tuple[str, int | None]:
        """The name, and the number of the tensor where GGUF has several in one."""
        whole = PREFIX.sub("", tensor, count=1)
        found = LAYER.fullmatch(whole)
        if (inside := whole if found is None else found[2]) in self.bare:
            return self.bare[inside] if found is None else f"{self.blocks}.{found[1]}.{self.bare[inside]}", None
        if found is not None and inside in self.parts:
            part, number = self.parts[inside]
            return f"{self.blocks}.{found[1]}.{part}", number
        base, _, suffix = whole.rpartition(".")
        suffix = OLD_NAMES.get(suffix, suffix)
        found = None if base in self.outer else LAYER.fullmatch(base)
        names, inside = (self.outer, base) if found is None else (self.inner, found[2])
        ours, place = names.get(inside), None
        if ours is None and (digits := NUMBER.search(inside)):
            ours, place = names.get(f"{inside[: digits.start()]}*{inside[digits.end() :]}"), int(digits[0])
        if ours is None and (stacked := STACKED.fullmatch(inside)):
            ours = f"ffn_{stacked[1]}_exps"
        if ours is None:
            return tensor, None
        return f"{ours}.{suffix}" if found is None else f"{self.blocks}.{found[1]}.{ours}.{suffix}", place

    def pieces_of(self, tensor: str, ours: str) -> tuple[Slice, ...]:
        """The pieces that GGUF makes of a tensor, () for the tensor itself: always of experts that MLX has stacked."""
        if STACKED.fullmatch(tensor.rpartition(".")[0]):
            return ()
        part = part_of(ours)
        return self.pieces.get(f"{part}.{ours.rpartition('.')[2]}") or self.pieces.get(part) or ()

    def value(self, tensor: str) -> tuple[str, int] | None:
        """The key that a tensor of one number is a value of, and for which layer."""
        found = LAYER.fullmatch(PREFIX.sub("", tensor, count=1))
        return (self.values[found[2]], int(found[1])) if found is not None and found[2] in self.values else None

    def skips(self, tensor: str) -> bool:
        return re.fullmatch(self.skipped, tensor) is not None


def part_of(name: str) -> str:
    """GGUF's name of a part of a layer or of the model: without the layer, and without .weight or .bias."""
    found = PART.fullmatch(name)
    return found[1] if found else name
