"""What is particular to one family of checkpoints: names of tensors, order of rows, norms; GGUF's side is llama.cpp's."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any  # of parsed JSON

PREFIX = re.compile(r"^(?:(?:model|language_model|transformer)\.)+")      # wrappers around the language model, none or several
LAYER = re.compile(r"(?:layers|h)\.(\d+)\.(.+)")
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


@dataclass(frozen=True, slots=True)
class Family:
    """Checkpoints of one or more `model_types`. Names in `inner` and `outer` come without wrappers and without .weight or .bias.

    `activations`: what config.json may name; another one would need another graph. `paired_rows`: GGUF orders the rows of queries
    and keys so that a rotation's pairs lie side by side. `norms_from_zero`: norms are stored less 1. `slides`: whether
    `sliding_window` holds. `transposed`: matrices that PyTorch's checkpoints store as (columns, rows). `skipped`: tensors that
    the language model does not need (a regular expression). `refuses`: the key of a configuration that asks for another graph, "".
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

    def name(self, tensor: str) -> str:
        """GGUF's name of a tensor; one that is unknown keeps its own, and is refused where the graph is checked."""
        base, _, suffix = PREFIX.sub("", tensor, count=1).rpartition(".")
        found = LAYER.fullmatch(base)
        ours = self.outer.get(base) if found is None else self.inner.get(found[2])
        if ours is None:
            return tensor
        return f"{ours}.{suffix}" if found is None else f"blk.{found[1]}.{ours}.{suffix}"

    def skips(self, tensor: str) -> bool:
        return re.fullmatch(self.skipped, tensor) is not None
