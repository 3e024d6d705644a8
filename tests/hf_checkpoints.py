"""Tiny checkpoints in the Hugging Face layout with seeded weights, written without PyTorch; names and shapes are transformers'.

tests/data/hf_gold.json holds what transformers computes for them (scripts/hf_gold.py writes it).
"""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hf_newer
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
IDS = [3, 17, 40, 8, 63, 21, 5, 33, 12, 50, 27, 44]
KINDS = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text", "phi3", "gpt2", "gemma", "gemma2", "arcee", "ernie4_5", "seed_oss",
         "smollm3", "olmo2", "olmo3", "exaone4", "glm4", *hf_newer.CONFIGS)
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
CONFIG: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "max_position_embeddings": 128, "vocab_size": 64, "rms_norm_eps": 1e-5, "rope_parameters": ROPE,
    "tie_word_embeddings": False, "hidden_act": "silu", "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}
OWN: dict[str, dict[str, Any]] = {
    "llama": {"rope_parameters": ROPE | {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                         "original_max_position_embeddings": 32}},
    "mistral": {"sliding_window": 5},
    "qwen2": {"use_sliding_window": False},
    "qwen3": {"use_sliding_window": False},
    "gemma3_text": {
        "sliding_window": 4, "query_pre_attn_scalar": 8, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {"full_attention": ROPE | {"rope_theta": 1e6}, "sliding_attention": ROPE}},
    "phi3": {"partial_rotary_factor": 0.5, "original_max_position_embeddings": 64, "sliding_window": None,
             "rope_parameters": ROPE | {"rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0],
                                        "original_max_position_embeddings": 64, "partial_rotary_factor": 0.5}},
    "gemma": {"hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True},
    "gemma2": {
        "sliding_window": 4, "query_pre_attn_scalar": 8, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
        "layer_types": ["sliding_attention", "full_attention"], "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "arcee": {"hidden_act": "relu2"},
    "ernie4_5": {"use_bias": False},
    "seed_oss": {"attention_bias": True, "attention_out_bias": False},
    "smollm3": {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]},
    "olmo3": {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"],
              "rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE}},
    "exaone4": {"sliding_window": 4, "sliding_window_pattern": 2, "layer_types": ["sliding_attention", "full_attention"]},
    "glm4": {"attention_bias": True, "partial_rotary_factor": 0.5, "rope_parameters": ROPE | {"partial_rotary_factor": 0.5}},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "activation_function": "gelu_new", "hidden_act": None,
             "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True},
}


def config_of(kind: str) -> dict[str, Any]:
    """config.json of a kind."""
    return {"model_type": kind} | CONFIG | (OWN | hf_newer.CONFIGS).get(kind, {})


def tensors_of(kind: str) -> dict[str, Array]:
    """Every tensor by transformers' name, float32."""
    config, rng = config_of(kind), np.random.default_rng(KINDS.index(kind))
    wide, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    n_q, n_kv = 32, 16
    found: dict[str, Array] = {}

    def add(name: str, *shape: int, mean: float = 0.0) -> None:
        scale = 0.2 if len(shape) == 1 else 1.3 / shape[-1] ** 0.5
        found[name] = (mean + scale * rng.standard_normal(shape)).astype(np.float32)

    if kind == "gpt2":
        add("transformer.wte.weight", vocabulary, wide)
        add("transformer.wpe.weight", 128, wide)
        for i in range(2):
            block = f"transformer.h.{i}"
            for norm in ("ln_1", "ln_2"):
                add(f"{block}.{norm}.weight", wide, mean=1.0)
                add(f"{block}.{norm}.bias", wide)
            for name, columns, rows in (("attn.c_attn", wide, 3 * wide), ("attn.c_proj", wide, wide), ("mlp.c_fc", wide, 4 * wide),
                                        ("mlp.c_proj", 4 * wide, wide)):
                add(f"{block}.{name}.weight", columns, rows)
                add(f"{block}.{name}.bias", rows)
        add("transformer.ln_f.weight", wide, mean=1.0)
        add("transformer.ln_f.bias", wide)
        return found
    if kind in hf_newer.CONFIGS:
        hf_newer.add_tensors(kind, config, add)
        if not config["tie_word_embeddings"]:
            add("lm_head.weight", vocabulary, wide)
        return found
    mean = 0.0 if kind.startswith("gemma") else 1.0
    post = ("post_attention_layernorm", "post_feedforward_layernorm")
    norms = {"gemma2": ("input_layernorm", "pre_feedforward_layernorm", *post), "olmo2": post, "olmo3": post, "exaone4": post,
             "glm4": ("input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm")}
    norms["gemma3_text"] = norms["gemma2"]
    matrices = {"self_attn.q_proj": (n_q, wide), "self_attn.k_proj": (n_kv, wide), "self_attn.v_proj": (n_kv, wide),
                "self_attn.o_proj": (wide, n_q), "mlp.gate_proj": (inner, wide), "mlp.up_proj": (inner, wide),
                "mlp.down_proj": (wide, inner)}
    if kind == "phi3":
        matrices = {"self_attn.qkv_proj": (n_q + 2 * n_kv, wide), "self_attn.o_proj": (wide, n_q)}
    if kind in ("phi3", "glm4"):
        matrices = {name: shape for name, shape in matrices.items() if not name.startswith("mlp")}
        matrices |= {"mlp.gate_up_proj": (2 * inner, wide), "mlp.down_proj": (wide, inner)}
    if kind == "arcee":
        del matrices["mlp.gate_proj"]
    add("model.embed_tokens.weight", vocabulary, wide)
    for i in range(config["num_hidden_layers"]):
        block = f"model.layers.{i}"
        for name, shape in matrices.items():
            add(f"{block}.{name}.weight", *shape)
            if kind in ("qwen2", "seed_oss", "glm4") and name.endswith(("q_proj", "k_proj", "v_proj")):
                add(f"{block}.{name}.bias", shape[0])
        for norm in norms.get(kind, ("input_layernorm", "post_attention_layernorm")):
            add(f"{block}.{norm}.weight", wide, mean=mean)
        if kind in ("qwen3", "gemma3_text", "exaone4", "olmo2", "olmo3"):
            rows = (n_q, n_kv) if kind.startswith("olmo") else (8, 8)
            add(f"{block}.self_attn.q_norm.weight", rows[0], mean=mean)
            add(f"{block}.self_attn.k_norm.weight", rows[1], mean=mean)
    add("model.norm.weight", wide, mean=mean)
    if not config["tie_word_embeddings"]:
        add("lm_head.weight", vocabulary, wide)
    return found


def write_safetensors(path: Path, tensors: dict[str, Array], dtypes: dict[str, str] | None = None) -> None:
    """A .safetensors file as PyTorch's writers make it; `dtypes` names those that NumPy cannot tell (BF16 given as uint16)."""
    kinds = {"float32": "F32", "float16": "F16", "int32": "I32", "int64": "I64", "uint16": "BF16"}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, array in tensors.items():
        kind = (dtypes or {}).get(name, kinds[array.dtype.name])
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(np.ascontiguousarray(a).tobytes() for a in tensors.values()))


def write_checkpoint(folder: Path, kind: str, *, tensors: dict[str, Array] | None = None, **config: Any) -> Path:
    """A folder of that kind; `tensors` and `config` replace or join the usual ones."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(kind) | config), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", tensors_of(kind) | (tensors or {}))
    return folder


def write_adapter(folder: Path, kind: str, **settings: Any) -> dict[str, Array]:
    """A PEFT adapter of rank 4 on three modules; returns what it adds to each of the model's tensors at a scaling of 1."""
    rng, tensors, added = np.random.default_rng(1), dict[str, Array](), dict[str, Array]()
    source = tensors_of(kind)
    for module in ("model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.k_proj", "model.layers.1.mlp.down_proj"):
        rows, columns = source[f"{module}.weight"].shape
        a, b = rng.standard_normal((4, columns)).astype(np.float32), rng.standard_normal((rows, 4)).astype(np.float32)
        tensors |= {f"base_model.model.{module}.lora_A.weight": a, f"base_model.model.{module}.lora_B.weight": b}
        added[f"{module}.weight"] = b @ a
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    usual = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(usual | settings))
    return added
