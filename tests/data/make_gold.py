"""Makes tests/data/gold/*.npz: the variants' logits by transformers' own definitions in float32 (run by hand).

    PYTHONPATH=tests:. python tests/data/make_gold.py [VARIANT ...]     (needs: pip install torch transformers gguf)

Made with transformers 5.23 and torch 2.13 on a CPU.
"""
from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import rwkv7_definition
import torch
import transformers
from gold_ssm import DT_BIAS, GATES_AND_PRODUCTS, SHARED_GRANITE, shared_granite
from gold_ssm import OWN_NAMES as SSM_NAMES
from tiny_models import Shape
from variants import GOLD, ROWS, VARIANTS, Variant, fingerprint, tokens

NAMES = {                        # GGUF name of a part -> transformers' name
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_qkv": "self_attn.qkv_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "post_ffw_norm": "post_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm", "attn_sub_norm": "self_attn.attn_sub_norm",
    "ffn_sub_norm": "mlp.ffn_sub_norm", "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "ffn_gate_inp": "mlp.gate", "ffn_down_exps": "mlp.experts.down_proj", "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj", "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj", "exp_probs_b": "mlp.gate.e_score_correction_bias",
}
_BLOOM = {"attn_qkv": "self_attention.query_key_value", "attn_output": "self_attention.dense", "ffn_up": "mlp.dense_h_to_4h",
          "ffn_down": "mlp.dense_4h_to_h", "token_embd": "transformer.word_embeddings", "output_norm": "transformer.ln_f",
          "token_embd_norm": "transformer.word_embeddings_layernorm"}
OWN_NAMES: dict[str, dict[str, str]] = {
    "apertus": {"attn_norm": "attention_layernorm", "ffn_norm": "feedforward_layernorm"},
    "bloom": _BLOOM,
    "falcon": _BLOOM,
    "gemma2": {"ffn_norm": "pre_feedforward_layernorm"},
    "gemma3": {"ffn_norm": "pre_feedforward_layernorm"},
    "glm4": {"ffn_up": "mlp.gate_up_proj", "post_attention_norm": "post_self_attn_layernorm",
             "post_ffw_norm": "post_mlp_layernorm"},
    "gpt2": {"attn_norm": "ln_1", "ffn_norm": "ln_2", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj",
             "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj", "token_embd": "transformer.wte",
             "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f"},
    "gptneox": {"attn_qkv": "attention.query_key_value", "attn_output": "attention.dense", "ffn_up": "mlp.dense_h_to_4h",
                "ffn_down": "mlp.dense_4h_to_h", "token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm"},
    "hunyuan-dense": {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"},
    "lfm2": {"attn_norm": "operator_norm", "ffn_norm": "ffn_norm", "attn_output": "self_attn.out_proj",
             "ffn_gate": "feed_forward.w1", "ffn_up": "feed_forward.w3", "ffn_down": "feed_forward.w2",
             "attn_q_norm": "self_attn.q_layernorm",
             "attn_k_norm": "self_attn.k_layernorm", "conv": "conv.conv", "in_proj": "conv.in_proj", "out_proj": "conv.out_proj",
             "token_embd_norm": "model.embedding_norm"},
    "mpt": {"attn_norm": "norm_1", "ffn_norm": "norm_2", "attn_qkv": "attn.Wqkv", "attn_output": "attn.out_proj",
            "ffn_up": "ffn.up_proj", "ffn_down": "ffn.down_proj", "token_embd": "transformer.wte",
            "output_norm": "transformer.norm_f"},
    "phi2": {"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2", "output_norm": "model.final_layernorm"},
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
    "starcoder2": {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
    "qwen2moe": {f"ffn_{part}_shexp": f"mlp.shared_expert.{part}_proj" for part in ("gate", "up", "down")},
    "hunyuan-moe": {f"ffn_{part}_shexp": f"mlp.shared_mlp.{part}_proj" for part in ("gate", "up", "down")} | {
        "ffn_gate_inp": "mlp.gate.wg", "attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"},
    "minimax-m2": {"exp_probs_b": "mlp.e_score_correction_bias"},
    "ernie4_5-moe": {"exp_probs_b": "mlp.gate.moe_statics.e_score_correction_bias"},
}
OWN_NAMES |= SSM_NAMES
OWN_NAMES["lfm2moe"] = OWN_NAMES["lfm2"] | {"ffn_gate_inp": "feed_forward.gate", "ffn_down_exps": "feed_forward.experts.down_proj",
                                            "exp_probs_b": "feed_forward.expert_bias"}
OWN_NAMES["granitemoe"] = {"ffn_gate_inp": "block_sparse_moe.router", "ffn_down_exps": "block_sparse_moe.experts.down_proj"}
OWN_NAMES["deepseek2"] = {
    "attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm", "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa", "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj"}
OWN_NAMES["gpt-oss"] = {"post_attention_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.router"}
OWN_NAMES["gemma4"] = {
    "ffn_norm": "pre_feedforward_layernorm", "inp_gate": "per_layer_input_gate", "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm", "layer_output_scale": "layer_scalar", "ffn_gate_inp": "router.proj",
    "per_layer_token_embd": "model.embed_tokens_per_layer", "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm", "ffn_gate_up_exps": "experts.gate_up_proj",
    "ffn_down_exps": "experts.down_proj", "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
    "post_ffw_norm_1": "post_feedforward_layernorm_1", "post_ffw_norm_2": "post_feedforward_layernorm_2"}
OWN_NAMES["gemma3n"] = OWN_NAMES["gemma4"] | {
    "altup_correct_coef": "altup.correction_coefs", "altup_predict_coef": "altup.prediction_coefs",
    "altup_correct_scale": "altup.correct_output_scale", "altup_router": "altup.modality_router",
    "altup_router_norm": "altup.router_norm", "laurel_l": "laurel.linear_left", "laurel_r": "laurel.linear_right",
    "laurel_post_norm": "laurel.post_laurel_norm"}
SCALES = {"ffn_gate_inp": "router.scale", "ffn_down_exps": "router.per_expert_scale"}       # of gemma4, called .scale in files
_DELTA = {f"ffn_{part}_shexp": f"mlp.shared_expert.{part}_proj" for part in ("gate", "up", "down")} | {
    "attn_qkv": "linear_attn.in_proj_qkv", "attn_gate": "linear_attn.in_proj_z", "ssm_beta": "linear_attn.in_proj_b",
    "ssm_alpha": "linear_attn.in_proj_a", "ssm_conv1d": "linear_attn.conv1d", "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj", "ssm_a": "linear_attn.A_log", "ssm_ba": "linear_attn.in_proj_ba",
    "post_attention_norm": "post_attention_layernorm"}
DELTA_NETS = ("qwen35", "qwen35moe", "qwen3next")
OWN_NAMES |= dict.fromkeys(DELTA_NETS, _DELTA)
BLOCKS = {"bloom": "transformer.h", "falcon": "transformer.h", "gpt2": "transformer.h", "gptneox": "gpt_neox.layers",
          "mamba": "backbone.layers", "mamba2": "backbone.layers",
          "mpt": "transformer.blocks"}
NO_KIND = ("ffn_up_exps", "ffn_down_exps", "ffn_gate_up_exps", "exp_probs_b", "layer_output_scale",
           "altup_correct_scale")                # bare there
BARE = ("ssm_a", "ssm_d")        # without .weight
PAIRED = ("arcee", "granite", "granitemoe", "granitehybrid", "bamba", "llama", "mistral3", "olmo",
          "smollm3")             # queries and keys with pairs side by side
ONE_ADDED = ("gemma", "gemma2", "gemma3", "nemotron", *DELTA_NETS)           # to the weights of norms


def hf_name(arch: str, name: str) -> str:
    """`blk.0.attn_q.weight` -> `model.layers.0.self_attn.q_proj.weight`."""
    names = NAMES | OWN_NAMES.get(arch, {})
    if name.endswith(BARE):
        _, layer, part = name.split(".")
        return f"{BLOCKS.get(arch, 'model.layers')}.{layer}.{names[part]}"
    if name.endswith("ssm_dt.bias") and arch in DELTA_NETS:
        return f"model.layers.{name.split('.')[1]}.linear_attn.dt_bias"
    if name.endswith("ssm_dt.bias") and arch in DT_BIAS:
        return f"{BLOCKS.get(arch, 'model.layers')}.{name.split('.')[1]}.{DT_BIAS[arch]}.dt_bias"
    *block, part, kind = name.replace("shortconv.", "").split(".")
    if not block:
        return f"{names[part]}.{kind}"
    if arch == "falcon" and part.startswith("attn_norm"):
        return f"transformer.h.{block[1]}.{'ln_mlp' if part == 'attn_norm' else 'ln_attn'}.{kind}"
    name = f"{BLOCKS.get(arch, 'model.layers')}.{block[1]}.{names[part]}"
    if kind == "scale":
        return f"model.layers.{block[1]}.{SCALES[part]}"
    return name if part in NO_KIND else f"{name}.{kind}"


def hf_values(arch: str, name: str, values: np.ndarray, shape: Shape) -> torch.Tensor:
    """Undo what convert_hf_to_gguf does to the order of rows, to norms, and to GPT-2's matrices."""
    part = name.split(".")[-2]
    if part == "ffn_gate_inp_shexp" or (arch == "ernie4_5-moe" and part == "exp_probs_b"):
        values = values[None]
    if arch in PAIRED and part in ("attn_q", "attn_k"):
        heads = shape.n_heads if part == "attn_q" else shape.n_kv_heads
        values = values.reshape(heads, values.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)
    if arch in ONE_ADDED and name.endswith("norm.weight") and part != "ssm_norm":
        values = values - 1
    if arch == "gpt2" and name.startswith("blk") and values.ndim == 2:
        values = values.T
    if arch in ("bloom", "falcon", "gptneox") and part == "attn_qkv":
        values = by_kv_head(values, shape.n_heads, shape.n_kv_heads if arch == "falcon" else shape.n_heads)
    if (arch in DT_BIAS and part == "ssm_norm") or (name.endswith(("ssm_a", "ssm_d")) and values.shape[-1] == 1):
        values = values.reshape(-1)
    if name.endswith("ssm_a"):
        values = np.log(-values)
    if arch in ("qwen35", "qwen35moe"):
        values = in_groups(name.removesuffix(".weight").removesuffix(".bias").split(".")[-1], values)
    if part in ("conv", "ssm_conv1d") and name.endswith("weight"):
        values = values[:, None]
    return torch.from_numpy(np.array(values, np.float32))


def in_groups(part: str, values: np.ndarray) -> np.ndarray:
    """Heads of values 0, 2, 1, 3 -> 0, 1, 2, 3: those that share a key follow each other in transformers."""
    def sorted_heads(part: np.ndarray) -> np.ndarray:
        return part.reshape(2, 2, -1, *part.shape[1:]).swapaxes(0, 1).reshape(part.shape)

    if part in ("attn_qkv", "ssm_conv1d"):
        return np.concatenate([values[:128], sorted_heads(values[128:])])
    if part == "ssm_out":
        return sorted_heads(values.T).T
    return sorted_heads(values) if part in ("attn_gate", "ssm_alpha", "ssm_beta", "ssm_a", "ssm_dt") else values


def interleaved(qkv: np.ndarray, gate: np.ndarray) -> np.ndarray:
    """Qwen3-Next's one matrix: for each of two heads of keys its queries, keys, and two heads of values and gates."""
    parts = [*np.split(qkv, [64, 128]), gate]
    return np.concatenate([part.reshape(2, -1, part.shape[-1])[head] for head in range(2) for part in parts])


def by_kv_head(values: np.ndarray, heads: int, kv_heads: int) -> np.ndarray:
    """All queries, keys, values -> for each key head its queries, its key, its value."""
    parts = values.reshape(heads + 2 * kv_heads, -1, *values.shape[1:])
    queries, keys, vals = np.split(parts, [heads, heads + kv_heads])
    grouped = queries.reshape(kv_heads, heads // kv_heads, *parts.shape[1:])
    return np.concatenate([grouped, keys[:, None], vals[:, None]], axis=1).reshape(values.shape)


def hf_config(variant: Variant, shape: Shape) -> Any:
    """The config class of the family, filled from the shape and the variant."""
    if variant.arch == "gpt2":
        return transformers.GPT2Config(vocab_size=shape.n_vocab, n_positions=shape.context, n_embd=shape.n_embd,
                                       n_layer=shape.n_layers, n_head=shape.n_heads, n_inner=shape.n_ff,
                                       layer_norm_epsilon=shape.eps, tie_word_embeddings=shape.tied, bos_token_id=1,
                                       eos_token_id=2)
    if variant.arch == "mpt":
        return transformers.MptConfig(vocab_size=shape.n_vocab, **dict(variant.config))
    text = "TextConfig" if variant.arch in ("gemma3", "gemma3n", "gemma4", "qwen35", "qwen35moe") else "Config"
    common = {
        "vocab_size": shape.n_vocab, "hidden_size": shape.n_embd, "intermediate_size": shape.n_ff,
        "num_hidden_layers": shape.n_layers, "num_attention_heads": shape.n_heads, "rms_norm_eps": shape.eps,
        "num_key_value_heads": shape.n_kv_heads, "max_position_embeddings": shape.context, "head_dim": shape.head_dim,
        "tie_word_embeddings": shape.tied, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_base},
    }
    if variant.arch == "gemma3":
        common |= {"query_pre_attn_scalar": shape.head_dim, "use_bidirectional_attention": False}
    if variant.arch == "falcon":
        del common["head_dim"]
    if variant.family == "Dots1":                # its defaults are no numbers
        common |= {"layer_types": ["full_attention"] * shape.n_layers, "sliding_window": None}
    return getattr(transformers, variant.family + text)(**common | dict(variant.config))


def gold(variant: Variant, path: Path) -> dict[str, Any]:
    """Logits of one variant's file."""
    shape = Shape(**variant.sizes)
    if variant.arch == "rwkv7":
        return rwkv7_gold(variant, path, shape)
    config = hf_config(variant, shape)
    head = "LMHeadModel" if variant.arch == "gpt2" else "ForCausalLM"
    model = getattr(transformers, variant.family + head)(config).float().eval()
    model.set_attn_implementation("eager")
    arrays = {tensor.name: tensor.data for tensor in gguf.GGUFReader(variant.write(path)).tensors}
    computed = {name: values for name, values in arrays.items() if not name.startswith(variant.drafts)}
    state = dict(_state(variant, computed, shape))
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and {name for name in missing if "act_fn" not in name} <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    ids = tokens(shape.n_vocab)
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None]).logits[0].numpy()
    return {"logits": logits[list(ROWS)], "fingerprint": fingerprint(arrays)}


def rwkv7_gold(variant: Variant, path: Path, shape: Shape) -> dict[str, Any]:
    """By the definition in its paper."""
    arrays = {tensor.name: tensor.data for tensor in gguf.GGUFReader(variant.write(path)).tensors}
    head = variant.metadata.get("{arch}.wkv.head_size", 16)
    logits = rwkv7_definition.logits(arrays, tokens(shape.n_vocab), head, shape.eps)
    return {"logits": logits[list(ROWS)].astype(np.float32), "fingerprint": fingerprint(arrays)}


def _state(variant: Variant, arrays: dict[str, Any], shape: Shape) -> Iterator[tuple[str, torch.Tensor]]:
    """The model's tensors by transformers' names."""
    arch = "bamba" if variant.family == "Bamba" else variant.arch
    for found, values in arrays.items():
        name = f"{found}.weight" if found.endswith("ffn_norm") else found
        if variant.arch == "stablelm" and values.ndim == 2 and "_norm." in name:     # a module of its own for each head
            part = "q" if "attn_q" in name else "k"
            for head, row in enumerate(values):
                yield f"model.layers.{name.split('.')[1]}.self_attn.{part}_layernorm.norms.{head}.weight", torch.tensor(row)
        elif variant.arch == "falcon" and not variant.config["new_decoder_architecture"] and ".attn_norm." in name:
            yield f"transformer.h.{name.split('.')[1]}.input_layernorm.{name.split('.')[-1]}", torch.tensor(values)
        elif variant.arch == "gpt-oss" and ("_exps" in name or "sinks" in name):
            yield from _gpt_oss(name, values, arrays)
        elif name.endswith("attn_k_b.weight"):
            parts = [values.swapaxes(1, 2), arrays[name.replace("k_b", "v_b")]]
            both = np.concatenate(parts, axis=1).reshape(-1, values.shape[1])
            yield f"model.layers.{name.split('.')[1]}.self_attn.kv_b_proj.weight", torch.from_numpy(both)
        elif name.startswith("altup_"):          # of the model
            part = "altup_projections" if name.startswith("altup_proj") else "altup_unembed_projections"
            yield from ((f"model.{part}.{row}.weight", torch.tensor(values[row])) for row in range(len(values)))
        elif "ffn_gate_exps" in name:            # gates and products of experts are one tensor there
            both = np.concatenate([values, arrays[name.replace("gate", "up")]], axis=1)
            place = GATES_AND_PRODUCTS.get(variant.arch, "mlp")
            yield f"model.layers.{name.split('.')[1]}.{place}.experts.gate_up_proj", torch.from_numpy(both)
        elif variant.arch == "qwen3next" and name.endswith("attn_qkv.weight"):
            both = interleaved(values, arrays[name.replace("attn_qkv", "attn_gate")])
            yield f"model.layers.{name.split('.')[1]}.linear_attn.in_proj_qkvz.weight", torch.from_numpy(both)
        elif variant.arch == "qwen3next" and name.endswith("attn_gate.weight"):
            continue
        elif arch == "granitehybrid" and name.split(".")[-2] in SHARED_GRANITE:
            yield from ((key, torch.from_numpy(array)) for key, array in shared_granite(name, values, arrays))
        elif not name.startswith(("rope_factors", "rope_freqs")) and "attn_v_b" not in name and (
                "ffn_up_exps" not in name or arch == "nemotron_h_moe"):
            yield hf_name(arch, name), hf_values(arch, name, values, shape)
    for layer in range(shape.n_layers if variant.arch == "apertus" else 0):
        for part, number in (("alpha_p", [0.7]), ("alpha_n", [0.4]), ("beta", 0.5), ("eps", -1e-6)):
            yield f"model.layers.{layer}.mlp.act_fn.{part}", torch.tensor(number)


def _gpt_oss(name: str, values: np.ndarray, arrays: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Experts that multiply from the right, gates and products by turns."""
    layer, part, kind = name.split(".")[1:]
    suffix = "" if kind == "weight" else "_bias"
    if part == "attn_sinks":
        yield f"model.layers.{layer}.self_attn.sinks", torch.tensor(values)
    elif part == "ffn_down_exps":
        yield f"model.layers.{layer}.mlp.experts.down_proj{suffix}", torch.tensor(values if suffix else values.swapaxes(1, 2))
    elif part == "ffn_gate_exps":
        both = np.stack([values, arrays[name.replace("gate", "up")]], axis=2).reshape(len(values), -1, *values.shape[2:])
        yield f"model.layers.{layer}.mlp.experts.gate_up_proj{suffix}", torch.tensor(both if suffix else both.swapaxes(1, 2))


if __name__ == "__main__":
    GOLD.mkdir(exist_ok=True)
    wanted = sys.argv[1:] or list(VARIANTS)
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            np.savez_compressed(GOLD / f"{name}.npz", **gold(VARIANTS[name], Path(folder) / f"{name}.gguf"))
            print(name)
