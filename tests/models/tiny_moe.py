"""Parts of tiny models with experts that dense ones lack: keys and tensors, as `convert_hf_to_gguf` writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tiny_models import Shape

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Routing:
    """`bias`: of the selection; `shared`: how many shared experts; `sigmoid`: gating; `own_length`: a key for experts' width."""

    bias: bool = False
    shared: int = 0
    sigmoid: bool = False
    own_length: bool = True


ROUTINGS = {  # of the architectures that are made of experts
    "llama4": Routing(shared=1),
    "qwen3moe": Routing(),
    "qwen3vlmoe": Routing(),
    "bailingmoe2": Routing(bias=True, shared=1, sigmoid=True),
    "qwen2moe": Routing(shared=1),
    "olmoe": Routing(own_length=False),
    "minimax-m2": Routing(bias=True, sigmoid=True),
    "hunyuan-moe": Routing(shared=1),
    "afmoe": Routing(bias=True, shared=1, sigmoid=True),
    "deepseek": Routing(shared=2),
    "exaone-moe": Routing(bias=True, shared=1, sigmoid=True),
    "dots1": Routing(bias=True, shared=2, sigmoid=True),
    "glm4moe": Routing(bias=True, shared=1, sigmoid=True),
    "ernie4_5-moe": Routing(bias=True, shared=2),
    "gpt-oss": Routing(),
    "granitemoe": Routing(own_length=False),
    "granitehybrid": Routing(shared=1, own_length=False),
    "jamba": Routing(own_length=False),
    "phimoe": Routing(own_length=False),
    "mimo2": Routing(bias=True, sigmoid=True),
    "smallthinker": Routing(sigmoid=True),
    "lfm2moe": Routing(bias=True, sigmoid=True),
    "nemotron_h_moe": Routing(bias=True, shared=2),
    "step35": Routing(bias=True, shared=1, sigmoid=True),
    "laguna": Routing(bias=True, shared=1, sigmoid=True),
    "mellum": Routing(),
    "hy_v3": Routing(bias=True, shared=1, sigmoid=True),
    "cohere2moe": Routing(shared=2, sigmoid=True),
    "bailingmoe": Routing(shared=2),
    "deepseek2-ocr": Routing(shared=2),
    "dbrx": Routing(own_length=False),
    "maple": Routing(),
    "arctic": Routing(own_length=False),
    "grovemoe": Routing(),
}
PLAIN = Routing(own_length=False)  # Mixtral


def metadata(arch: str, s: Shape) -> dict[str, Any]:
    """Keys, without the architecture's name."""
    family = ROUTINGS.get(arch, PLAIN)
    keys: dict[str, Any] = {"expert_count": s.n_experts, "expert_used_count": s.n_used}
    if family.own_length:
        keys["expert_feed_forward_length"] = s.n_ff
    if arch in ("qwen2moe", "ernie4_5-moe", "granitehybrid", "nemotron_h_moe", "step35", "laguna", "hy_v3"):
        keys["expert_shared_feed_forward_length"] = family.shared * s.n_ff
    elif family.shared and arch != "llama4":
        keys["expert_shared_count"] = family.shared
    if family.sigmoid:
        keys |= {"expert_gating_func": 2}
    if arch == "gpt-oss":
        keys |= {"expert_gating_func": 3}
    if s.n_dense:
        keys["leading_dense_block_count"] = s.n_dense
    return keys


def tensors(arch: str, block: str, s: Shape, rng: np.random.Generator) -> dict[str, Array]:
    """Of the feed-forward of one layer with experts."""
    family, n = ROUTINGS.get(arch, PLAIN), s.n_experts

    def matrices(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32) * np.float32(1.5 / shape[-1] ** 0.5)

    found = {
        "ffn_gate_inp.weight": matrices(n, s.n_embd),
        "ffn_gate_exps.weight": matrices(n, s.n_ff, s.n_embd),
        "ffn_up_exps.weight": matrices(n, s.n_ff, s.n_embd),
        "ffn_down_exps.weight": matrices(n, s.n_embd, s.n_ff),
    }
    if family.bias:
        suffix = "" if arch == "hy_v3" else ".bias"
        found[f"exp_probs_b{suffix}"] = np.float32(0.2) * rng.standard_normal(n).astype(np.float32)
    if family.shared:
        n_ff = family.shared * s.n_ff
        found |= {
            "ffn_gate_shexp.weight": matrices(n_ff, s.n_embd),
            "ffn_up_shexp.weight": matrices(n_ff, s.n_embd),
            "ffn_down_shexp.weight": matrices(s.n_embd, n_ff),
        }
    if arch == "qwen2moe":
        found["ffn_gate_inp_shexp.weight"] = np.float32(0.02) * rng.standard_normal((1, s.n_embd)).astype(np.float32)
    if arch == "gpt-oss":
        shapes = {"ffn_gate_inp": (n,), "ffn_gate_exps": (n, s.n_ff), "ffn_up_exps": (n, s.n_ff), "ffn_down_exps": (n, s.n_embd)}
        found |= {f"{name}.bias": rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        found["attn_sinks.weight"] = rng.standard_normal(s.n_heads).astype(np.float32)
    return {f"{block}.{name}": array for name, array in found.items()}
