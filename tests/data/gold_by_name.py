"""Text models by classes of transformers that have other names for the tensors: halves of models that see, and twins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import transformers

NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "ffn_gate_inp": "mlp.gate",
    "ffn_down_exps": "mlp.experts.down_proj",
    "exp_probs_b": "mlp.gate.e_score_correction_bias",
    **{f"ffn_{part}_shexp": f"mlp.shared_experts.{part}_proj" for part in ("gate", "up", "down")},
}
# The output matrix is of the whole model:
WITHOUT_HEAD = ("qwen2vl", "qwen3vl", "qwen3vlmoe", "step35", "spark2_5", "hunyuan_vl", "paddleocr", "chameleon")
# Queries and keys with pairs side by side:
PAIRED = ("chameleon", "internlm2", "minicpm", "deepseek", "xverse", "baichuan", "maincoder", "bailingmoe")
SHARED = {f"ffn_{part}_shexp": f"mlp.shared_expert.{part}_proj" for part in ("gate", "up", "down")}
OWN_NAMES = {  # parts that a twin calls otherwise
    "codeshell": {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
    "maincoder": {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"},
    "mimo2": {"attn_sinks": "self_attn.sinks"},
    "plm": {
        "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
        "attn_kv_a_norm": "self_attn.kv_a_layernorm",
        "attn_kv_b": "self_attn.kv_b_proj",
    },
    "chatglm": {"ffn_up": "mlp.gate_up_proj"},
    "step35": {"attn_gate": "self_attn.g_proj"},
    "spark2_5": {"attn_gate": "self_attn.g_proj"},
    "hunyuan_vl": {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"},
    "deepseek": SHARED,
    "deepseek2-ocr": SHARED,
    "bailingmoe": SHARED,
}
BY_NAME = (*WITHOUT_HEAD, *PAIRED, *OWN_NAMES, "exaone", "bailingmoe2", "orion", "pangu-embedded", "qwen", "grovemoe")
Arrays = Mapping[str, np.ndarray[Any, Any]]


class Grove(torch.nn.Module):
    """GroveMoE's experts (Wu et al. 2025): beside those of Qwen3, a small one for each two of them, weighed as they are."""

    def __init__(self, inner: torch.nn.Module, config: Any, weights: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.inner, self.k, self.weights = inner, config.num_experts_per_tok, weights

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w, rows = self.weights, x[0]
        chances, chosen = torch.softmax(rows @ w["ffn_gate_inp"].T, dim=-1).topk(self.k, dim=-1)
        chances = chances / chances.sum(dim=-1, keepdim=True)
        small = torch.zeros_like(rows)
        for token, row in enumerate(rows):
            for chance, group in zip(chances[token], chosen[token] // 2, strict=True):
                inside = torch.nn.functional.silu(w["ffn_gate_chexps"][group] @ row) * (w["ffn_up_chexps"][group] @ row)
                small[token] += chance * (w["ffn_down_chexps"][group] @ inside)
        found: torch.Tensor = self.inner(x) + 0.4 * small
        return found


def logits(arch: str, family: str, config: Any, arrays: Arrays, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of a file's tensors, (ids, n_vocab)."""
    kind = "Model" if arch == "chameleon" else "TextModel" if arch in WITHOUT_HEAD else "ForCausalLM"
    model = getattr(transformers, family + kind)(config).float().eval()
    model.set_attn_implementation("eager")
    state = dict(_state(arch, config, {name: values for name, values in arrays.items() if "_chexps" not in name}))
    head = state.get("lm_head.weight", state["model.embed_tokens.weight"])
    if arch in WITHOUT_HEAD:
        state = {name.removeprefix("model."): values for name, values in state.items() if name != "lm_head.weight"}
    if arch == "spark2_5":  # its twin norms heads, and has another activation
        for layer in model.layers:
            layer.self_attn.q_norm = layer.self_attn.k_norm = torch.nn.Identity()
            layer.mlp.act_fn = torch.nn.GELU()
    missing, unexpected = model.load_state_dict(state, strict=False)
    if arch == "grovemoe":
        for number, layer in enumerate(model.model.layers):
            layer.mlp = Grove(
                layer.mlp,
                config,
                {name.split(".")[2]: torch.tensor(values) for name, values in arrays.items() if name.startswith(f"blk.{number}.")},
            )
    missing = [name for name in missing if not name.startswith("vqmodel.") and not name.endswith("_norm.bias")]  # eyes; 0
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    with torch.no_grad():
        if arch in WITHOUT_HEAD:
            found = model(input_ids=torch.from_numpy(ids)[None]).last_hidden_state @ head.T
        else:
            model.tie_weights()
            found = model(torch.from_numpy(ids)[None]).logits
    return np.asarray(found[0].numpy())


def _state(arch: str, config: Any, arrays: Arrays) -> Iterator[tuple[str, torch.Tensor]]:
    heads = 0 if arch == "step35" else config.num_attention_heads  # of which some of its layers have others
    kv_heads, dim = config.num_key_value_heads, config.head_dim
    names = NAMES | OWN_NAMES.get(arch, {})
    for name, values in arrays.items():
        *block, part, kind = name.split(".")
        layer = f"model.layers.{block[1]}." if block else ""
        if part == "attn_qkv":
            for each, rows in zip("qkv", np.split(values, np.cumsum([heads * dim, kv_heads * dim])), strict=True):
                yield f"{layer}self_attn.{each}_proj.{kind}", torch.tensor(rows)
        elif part == "ffn_gate_exps":
            both = np.concatenate([values, arrays[name.replace("gate", "up")]], axis=1)
            yield f"{layer}mlp.experts.gate_up_proj", torch.tensor(both)
        elif part != "ffn_up_exps":
            if arch in PAIRED and part in ("attn_q", "attn_k"):
                rows = values.reshape(heads if part == "attn_q" else kv_heads, dim // 2, 2, -1)
                values = rows.swapaxes(1, 2).reshape(values.shape)
            if arch == "chameleon" and part in ("attn_q_norm", "attn_k_norm"):
                values = values.reshape(-1, dim // 2, 2).swapaxes(1, 2).reshape(-1, dim)
            if arch == "maincoder" and part in ("attn_q_norm", "attn_k_norm"):
                values = values.reshape(-1, 2).T.reshape(-1)
            if arch == "plm" and part == "ffn_up":  # squares of relu(x) are x times relu(x): the twin's gate
                yield f"{layer}mlp.gate_proj.weight", torch.tensor(values)
            if arch in ("step35", "spark2_5") and part.endswith("_norm"):  # its norms are stored less 1
                values = values - np.float32(1.0)
            bare = part in ("ffn_down_exps", "exp_probs_b", "attn_sinks")
            if names.get("ffn_down_shexp") == SHARED["ffn_down_shexp"] and part == "ffn_down_shexp":  # weighed by a half, here
                yield f"{layer}mlp.shared_expert_gate.weight", torch.zeros(1, config.hidden_size)
                values = 2.0 * values
            yield layer + names[part] + ("" if bare else f".{kind}"), torch.tensor(values)
