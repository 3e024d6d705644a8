"""Makes tests/data/gold/*.npz: the variants' logits by transformers' own definitions in float32 (run by hand).

    PYTHONPATH=tests python tests/data/make_gold.py        # made with transformers 5.23 and torch 2.13 (CPU)
"""
from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from tiny_models import Shape
from variants import GOLD, VARIANTS, Variant, fingerprint, tokens

NAMES = {                        # GGUF name of a part -> transformers' name
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_qkv": "self_attn.qkv_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "post_ffw_norm": "post_feedforward_layernorm",
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
}
OWN_NAMES: dict[str, dict[str, str]] = {
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
    "gemma3": {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm"},
    "gpt2": {"attn_norm": "ln_1", "ffn_norm": "ln_2", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj",
             "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj", "token_embd": "transformer.wte",
             "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f"},
}


def hf_name(arch: str, name: str) -> str:
    """`blk.0.attn_q.weight` -> `model.layers.0.self_attn.q_proj.weight`."""
    names = NAMES | OWN_NAMES.get(arch, {})
    *block, part, kind = name.split(".")
    if not block:
        return f"{names[part]}.{kind}"
    return f"{'transformer.h' if arch == 'gpt2' else 'model.layers'}.{block[1]}.{names[part]}.{kind}"


def hf_values(arch: str, name: str, values: np.ndarray, heads: int) -> torch.Tensor:
    """Undo what convert_hf_to_gguf does: pairs side by side (llama), norms plus one (gemma), transposes (gpt2)."""
    if arch == "llama" and (".attn_q." in name or ".attn_k." in name):
        values = values.reshape(heads, values.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)
    if arch == "gemma3" and "norm" in name:
        values = values - 1
    if arch == "gpt2" and name.startswith("blk") and values.ndim == 2:
        values = values.T
    return torch.from_numpy(np.array(values, np.float32))


def hf_config(variant: Variant, shape: Shape) -> Any:
    """The config class of the family, filled from the shape and the variant."""
    if variant.arch == "gpt2":
        return transformers.GPT2Config(vocab_size=shape.n_vocab, n_positions=shape.context, n_embd=shape.n_embd,
                                       n_layer=shape.n_layers, n_head=shape.n_heads, n_inner=shape.n_ff,
                                       layer_norm_epsilon=shape.eps, tie_word_embeddings=shape.tied, bos_token_id=1,
                                       eos_token_id=2)
    text = "TextConfig" if variant.arch == "gemma3" else "Config"
    common = {
        "vocab_size": shape.n_vocab, "hidden_size": shape.n_embd, "intermediate_size": shape.n_ff,
        "num_hidden_layers": shape.n_layers, "num_attention_heads": shape.n_heads, "rms_norm_eps": shape.eps,
        "num_key_value_heads": shape.n_kv_heads, "max_position_embeddings": shape.context, "head_dim": shape.head_dim,
        "tie_word_embeddings": shape.tied, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_base},
    }
    if variant.arch == "gemma3":
        common |= {"query_pre_attn_scalar": shape.head_dim, "use_bidirectional_attention": False}
    return getattr(transformers, variant.family + text)(**common | dict(variant.config))


def gold(variant: Variant, path: Path) -> dict[str, Any]:
    """Logits of one variant's file."""
    shape = Shape(**variant.sizes)
    config = hf_config(variant, shape)
    head = "LMHeadModel" if variant.arch == "gpt2" else "ForCausalLM"
    model = getattr(transformers, variant.family + head)(config).float().eval()
    arrays = {tensor.name: tensor.data for tensor in gguf.GGUFReader(variant.write(path)).tensors}
    state = {
        hf_name(variant.arch, name): hf_values(variant.arch, name, values,
                                               shape.n_heads if ".attn_q." in name else shape.n_kv_heads)
        for name, values in arrays.items() if not name.startswith("rope_factors")
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    ids = tokens(shape.n_vocab)
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None]).logits[0].numpy()
    return {"logits": logits, "fingerprint": fingerprint(arrays)}


if __name__ == "__main__":
    GOLD.mkdir(exist_ok=True)
    wanted = sys.argv[1:] or list(VARIANTS)
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            np.savez_compressed(GOLD / f"{name}.npz", **gold(VARIANTS[name], Path(folder) / f"{name}.gguf"))
            print(name)
