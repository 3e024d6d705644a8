"""What is particular to one family of checkpoints: names of tensors, order of rows, norms; GGUF's side is llama.cpp's."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any  # of parsed JSON

import numpy as np
import numpy.typing as npt

PREFIX = re.compile(r"^(?:(?:model|language_model|transformer)\.)+")      # wrappers around the language model, none or several
LAYER = re.compile(r"(?:layers|h)\.(\d+)\.(.+)")
NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
OUTER = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
INNER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
"""What most families share: their own names of a layer's parts, and GGUF's."""


def nothing(config: Mapping[str, Any]) -> str:
    """For families whose configurations all ask for one graph."""
    return ""


def no_keys(config: Mapping[str, Any]) -> Mapping[str, object]:
    return {}


def no_tensors(config: Mapping[str, Any]) -> Mapping[str, npt.NDArray[np.float32]]:
    return {}


@dataclass(frozen=True, slots=True)
class Family:
    """Checkpoints of one or more `model_types`. Names in `inner` and `outer` come without wrappers and without .weight or .bias.

    `activations`: what config.json may name; another one would need another graph. `paired_rows`: GGUF orders the rows of queries
    and keys so that a rotation's pairs lie side by side. `norms_from_zero`: norms are stored less 1. `slides`: whether
    `sliding_window` holds. `transposed`: matrices that PyTorch's checkpoints store as (columns, rows). `skipped`: tensors that
    the language model does not need (a regular expression). `refuses`: the key of a configuration that asks for another graph, "".
    A * in `inner` and `outer` stands for a number: such tensors are one in GGUF, in the order of their numbers. `bare`: names of a
    layer without .weight, and GGUF's with it. `halves`: parts whose matrices GGUF has in two. `flat`: those that are vectors
    there. `padded`: tables that get as many rows as there are tokens, by their first one. `keys`: GGUF's keys that other families
    do not have, without the architecture's name. `made`: tensors that follow from the configuration. `own_ropes`: scalings of
    angles that `made` has. `merged_tokenizer`: see mlx_tokenizer.
    """

    architecture: str
    model_types: tuple[str, ...]
    inner: Mapping[str, str]
    outer: Mapping[str, str] = field(default_factory=lambda: OUTER)
    activations: tuple[str, ...] = ("silu",)
    paired_rows: bool = False
    norms_from_zero: bool = False
    slides: bool = False
    transposed: frozenset[str] = frozenset()
    skipped: str = r".*\.rotary_emb\.inv_freq"
    refuses: Callable[[Mapping[str, Any]], str] = nothing
    bare: Mapping[str, str] = field(default_factory=dict)
    halves: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    flat: frozenset[str] = frozenset()
    padded: frozenset[str] = frozenset()
    keys: Callable[[Mapping[str, Any]], Mapping[str, object]] = no_keys
    made: Callable[[Mapping[str, Any]], Mapping[str, npt.NDArray[np.float32]]] = no_tensors
    own_ropes: frozenset[str] = frozenset()
    merged_tokenizer: str = ""

    def name(self, tensor: str) -> str:
        """GGUF's name of a tensor; one that is unknown keeps its own, and is refused where the graph is checked."""
        return self.place(tensor)[0]

    def place(self, tensor: str) -> tuple[str, int | None]:
        """The name, and the number of the tensor where GGUF has several in one."""
        whole = PREFIX.sub("", tensor, count=1)
        found = LAYER.fullmatch(whole)
        if found is not None and found[2] in self.bare:
            return f"blk.{found[1]}.{self.bare[found[2]]}", None
        base, _, suffix = whole.rpartition(".")
        found = LAYER.fullmatch(base)
        names, inside = (self.outer, base) if found is None else (self.inner, found[2])
        ours, number = names.get(inside), None
        if ours is None and (digits := NUMBER.search(inside)):
            ours, number = names.get(f"{inside[:digits.start()]}*{inside[digits.end():]}"), int(digits[0])
        if ours is None:
            return tensor, None
        return f"{ours}.{suffix}" if found is None else f"blk.{found[1]}.{ours}.{suffix}", number

    def skips(self, tensor: str) -> bool:
        return re.fullmatch(self.skipped, tensor) is not None
