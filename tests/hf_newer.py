"""Checkpoints with experts and of Gemma 3n and 4: the parts of them that tests/hf_checkpoints.py has no table for."""
from __future__ import annotations

from typing import Any, Protocol

ROPE = {"rope_type": "default", "rope_theta": 10000.0}
SLIDING, FULL = "sliding_attention", "full_attention"
GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "sliding_window": 4, "num_hidden_layers": 4,
         "layer_types": [SLIDING, FULL] * 2, "num_kv_shared_layers": 2,
         "hidden_size_per_layer_input": 4, "final_logit_softcapping": 3.0}
ROUTED = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
GRANITE = {"embedding_multiplier": 3, "residual_multiplier": 0.5, "attention_multiplier": 0.2, "logits_scaling": 4.0}
CONFIGS: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "qwen3_moe": ROUTED | {"norm_topk_prob": True},
    "qwen2_moe": ROUTED | {"shared_expert_intermediate_size": 40},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 4},
    "granite": GRANITE,
    "granitemoe": GRANITE | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gemma3n_text": GEMMA | {
        "intermediate_size": [48] * 4, "laurel_rank": 4, "vocab_size_per_layer_input": 60, "pad_token_id": 0,
        "activation_sparsity_pattern": [0.8, 0.0, 0.8, 0.0], "rope_parameters": {SLIDING: ROPE, FULL: ROPE | {"rope_theta": 1e6}}},
    "gemma4_text": GEMMA | {
        "global_head_dim": 16, "num_global_key_value_heads": 1, "attention_k_eq_v": True, "use_double_wide_mlp": True,
        "vocab_size_per_layer_input": 64, "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2,
        "moe_intermediate_size": 24, "pad_token_id": 0, "rope_parameters": {
            SLIDING: ROPE, FULL: ROPE | {"rope_type": "proportional", "partial_rotary_factor": 0.25}}},
}


class Add(Protocol):
    """Adds a tensor of a shape."""

    def __call__(self, name: str, *shape: int, mean: float = 0.0) -> None: ...


def add_tensors(kind: str, config: dict[str, Any], add: Add) -> None:
    """All of a checkpoint but the head."""
    wide, vocabulary = config["hidden_size"], config["vocab_size"]
    add("model.embed_tokens.weight", vocabulary, wide)
    add("model.norm.weight", wide, mean=1.0)
    if kind.startswith("gemma"):
        all_rows = 4 * config["num_hidden_layers"]
        add("model.embed_tokens_per_layer.weight", config["vocab_size_per_layer_input"], all_rows)
        add("model.per_layer_model_projection.weight", all_rows, wide)
        add("model.per_layer_projection_norm.weight", 4, mean=1.0)
    for i in range(3 if kind == "gemma3n_text" else 0):
        add(f"model.altup_projections.{i}.weight", wide, wide)
        add(f"model.altup_unembed_projections.{i}.weight", wide, wide)
    for layer in range(config["num_hidden_layers"]):
        block = f"model.layers.{layer}"
        _attention(kind, config, layer, block, add)
        if kind.startswith("gemma"):
            _gemma(kind, config, layer, block, add)
        else:
            for norm in ("input_layernorm", "post_attention_layernorm"):
                add(f"{block}.{norm}.weight", wide, mean=1.0)
            _feed_forward(kind, config, block, add)


def _attention(kind: str, config: dict[str, Any], layer: int, block: str, add: Add) -> None:
    wide, heads, kv_heads, dim = config["hidden_size"], 4, config["num_key_value_heads"], 8
    full = kind == "gemma4_text" and config["layer_types"][layer] == FULL
    if full:
        kv_heads, dim = 1, 16
    parts = {"q": (heads * dim, wide), "k": (kv_heads * dim, wide), "v": (kv_heads * dim, wide), "o": (wide, heads * dim)}
    shares = kind.startswith("gemma") and layer >= 2
    for part, shape in parts.items():
        if not (shares and part in "kv") and not (full and part == "v"):
            add(f"{block}.self_attn.{part}_proj.weight", *shape)
            if kind == "qwen2_moe" and part != "o":
                add(f"{block}.self_attn.{part}_proj.bias", shape[0])
    if kind.startswith("gemma") or kind in ("qwen3_moe", "olmoe"):
        for part in "q" if shares else "qk":
            add(f"{block}.self_attn.{part}_norm.weight", parts[part][0] if kind == "olmoe" else dim, mean=1.0)


def _feed_forward(kind: str, config: dict[str, Any], block: str, add: Add) -> None:
    wide, inner = config["hidden_size"], config["intermediate_size"]
    narrow = inner if kind in ("mixtral", "olmoe") else config.get("moe_intermediate_size", inner)
    if kind == "granitemoe":
        add(f"{block}.block_sparse_moe.router.layer.weight", 4, wide)
        add(f"{block}.block_sparse_moe.input_linear.weight", 4, 2 * inner, wide)
        add(f"{block}.block_sparse_moe.output_linear.weight", 4, wide, inner)
    elif kind == "granite":
        _gated(f"{block}.mlp", inner, wide, add)
    elif kind == "mixtral":
        add(f"{block}.block_sparse_moe.gate.weight", 4, wide)
        for expert in range(4):
            for part, shape in (("w1", (inner, wide)), ("w2", (wide, inner)), ("w3", (inner, wide))):
                add(f"{block}.block_sparse_moe.experts.{expert}.{part}.weight", *shape)
    else:
        add(f"{block}.mlp.gate.weight", 4, wide)
        for expert in range(4):
            _gated(f"{block}.mlp.experts.{expert}", narrow, wide, add)
        if kind == "qwen2_moe":
            _gated(f"{block}.mlp.shared_expert", 40, wide, add)
            add(f"{block}.mlp.shared_expert_gate.weight", 1, wide)


def _gated(name: str, inner: int, wide: int, add: Add) -> None:
    for part, shape in (("gate", (inner, wide)), ("up", (inner, wide)), ("down", (wide, inner))):
        add(f"{name}.{part}_proj.weight", *shape)


def _gemma(kind: str, config: dict[str, Any], layer: int, block: str, add: Add) -> None:
    wide = config["hidden_size"]
    norms = ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
             "post_per_layer_input_norm"]
    add(f"{block}.per_layer_input_gate.weight", 4, wide)
    add(f"{block}.per_layer_projection.weight", wide, 4)
    _gated(f"{block}.mlp", 48 * (2 if kind == "gemma4_text" and layer >= 2 else 1), wide, add)
    if kind == "gemma4_text":
        norms += ["pre_feedforward_layernorm_2", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2"]
        add(f"{block}.layer_scalar", 1, mean=1.0)
        add(f"{block}.router.proj.weight", 4, wide)
        add(f"{block}.router.scale", wide, mean=1.0)
        add(f"{block}.router.per_expert_scale", 4, mean=1.0)
        add(f"{block}.experts.gate_up_proj", 4, 48, wide)
        add(f"{block}.experts.down_proj", 4, wide, 24)
    else:
        norms += ["altup.router_norm", "laurel.post_laurel_norm"]
        add(f"{block}.altup.correct_output_scale", wide, mean=1.0)
        add(f"{block}.altup.correction_coefs.weight", 4, 4)
        add(f"{block}.altup.prediction_coefs.weight", 16, 4)
        add(f"{block}.altup.modality_router.weight", 4, wide)
        add(f"{block}.laurel.linear_left.weight", 4, wide)
        add(f"{block}.laurel.linear_right.weight", wide, 4)
    for norm in norms:
        add(f"{block}.{norm}.weight", wide, mean=1.0)
