"""Models whose code lies beside their checkpoints on the hub, as that code defines them, in float64, by its names of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import rwkv6_definition
import rwkv7_definition

Array = npt.NDArray[np.float64]
Arrays = Mapping[str, Array]
Config = Mapping[str, Any]


def normed(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + eps) * weight


def silu(x: Array) -> Array:
    return x / (1.0 + np.exp(-x))


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def rotated(x: Array, base: float, turned: int) -> Array:
    """x (T, heads, dim): the first `turned` values of each head, whose first half goes with the second."""
    angles = np.arange(len(x))[:, None] * base ** (-np.arange(0, turned, 2) / turned)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b, rest = np.split(x, [turned // 2, turned], axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def attended(q: Array, k: Array, v: Array) -> Array:
    """q (T, heads, dim), k and v (T, fewer, dim): (T, heads * dim), each token seeing those up to itself."""
    shared = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, shared, axis=1), np.repeat(v, shared, axis=1)
    scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hts,shd->thd", weights / weights.sum(-1, keepdims=True), v).reshape(len(q), -1)


def gated(x: Array, gate: Array, up: Array, down: Array) -> Array:
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def exaone(config: Config, w: Arrays, ids: list[int]) -> Array:
    heads, kv, eps = config["num_attention_heads"], config["num_key_value_heads"], config["layer_norm_epsilon"]
    x = w["transformer.wte.weight"][ids]
    for layer in range(config["num_layers"]):
        name = f"transformer.h.{layer}"
        y = normed(x, w[f"{name}.ln_1.weight"], eps)
        q, k, v = (
            (y @ w[f"{name}.attn.attention.{part}_proj.weight"].T).reshape(len(ids), n, -1)
            for part, n in (("q", heads), ("k", kv), ("v", kv))
        )
        q, k = (rotated(part, config["rope_theta"], part.shape[-1]) for part in (q, k))
        x = x + attended(q, k, v) @ w[f"{name}.attn.attention.out_proj.weight"].T
        y = normed(x, w[f"{name}.ln_2.weight"], eps)
        x = x + gated(y, *(w[f"{name}.mlp.{part}.weight"] for part in ("c_fc_0", "c_fc_1", "c_proj")))
    return normed(x, w["transformer.ln_f.weight"], eps) @ w["lm_head.weight"].T


def internlm2(config: Config, w: Arrays, ids: list[int]) -> Array:
    """wqkv has, for each head of keys, its heads of queries, then the key and the value."""
    kv, eps = config["num_key_value_heads"], config["rms_norm_eps"]
    shared = config["num_attention_heads"] // kv
    x = w["model.tok_embeddings.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        y = normed(x, w[f"{name}.attention_norm.weight"], eps) @ w[f"{name}.attention.wqkv.weight"].T
        y = y.reshape(len(ids), kv, shared + 2, -1)
        q, k, v = y[:, :, :shared].reshape(len(ids), kv * shared, -1), y[:, :, -2], y[:, :, -1]
        q, k = (rotated(part, config["rope_theta"], part.shape[-1]) for part in (q, k))
        x = x + attended(q, k, v) @ w[f"{name}.attention.wo.weight"].T
        y = normed(x, w[f"{name}.ffn_norm.weight"], eps)
        x = x + gated(y, *(w[f"{name}.feed_forward.{part}.weight"] for part in ("w1", "w3", "w2")))
    return normed(x, w["model.norm.weight"], eps) @ w["output.weight"].T


def minicpm(config: Config, w: Arrays, ids: list[int]) -> Array:
    """Factors on embeddings, on what each half of a layer adds, and on the width of the last row."""
    heads, kv, eps = config["num_attention_heads"], config["num_key_value_heads"], config["rms_norm_eps"]
    factor = config["scale_depth"] / np.sqrt(config["num_hidden_layers"])
    x = w["model.embed_tokens.weight"][ids] * config["scale_emb"]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        y = normed(x, w[f"{name}.input_layernorm.weight"], eps)
        q, k, v = (
            (y @ w[f"{name}.self_attn.{part}_proj.weight"].T).reshape(len(ids), n, -1)
            for part, n in (("q", heads), ("k", kv), ("v", kv))
        )
        q, k = (rotated(part, config["rope_theta"], part.shape[-1]) for part in (q, k))
        x = x + attended(q, k, v) @ w[f"{name}.self_attn.o_proj.weight"].T * factor
        y = normed(x, w[f"{name}.post_attention_layernorm.weight"], eps)
        x = x + gated(y, *(w[f"{name}.mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))) * factor
    x = normed(x, w["model.norm.weight"], eps) / (config["hidden_size"] / config["dim_model_base"])
    return x @ w["model.embed_tokens.weight"].T


def bailing_moe(config: Config, w: Arrays, ids: list[int]) -> Array:
    """Softmax routing; the weights of the chosen experts sum to 1."""
    heads, kv, eps = config["num_attention_heads"], config["num_key_value_heads"], config["rms_norm_eps"]
    dim = config["head_dim"]
    x = w["model.word_embeddings.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        y = normed(x, w[f"{name}.input_layernorm.weight"], eps) @ w[f"{name}.attention.query_key_value.weight"].T
        q, k, v = (part.reshape(len(ids), -1, dim) for part in np.split(y, [heads * dim, (heads + kv) * dim], axis=-1))
        q, k = (rotated(part, config["rope_theta"], dim) for part in (q, k))
        x = x + attended(q, k, v) @ w[f"{name}.attention.dense.weight"].T
        y = normed(x, w[f"{name}.post_attention_layernorm.weight"], eps)
        names = tuple(f"{part}_proj.weight" for part in ("gate", "up", "down"))
        if layer < config["first_k_dense_replace"]:
            x = x + gated(y, *(w[f"{name}.mlp.{part}"] for part in names))
            continue
        x = x + gated(y, *(w[f"{name}.mlp.shared_experts.{part}"] for part in names))
        for t, scores in enumerate(np.exp(y @ w[f"{name}.mlp.gate.weight"].T)):
            chosen = np.argsort(-scores)[: config["num_experts_per_tok"]]
            for e in chosen:
                x[t] += scores[e] / scores[chosen].sum() * gated(y[t], *(w[f"{name}.mlp.experts.{e}.{part}"] for part in names))
    return normed(x, w["model.norm.weight"], eps) @ w["lm_head.weight"].T


def bailing_moe_v2(config: Config, w: Arrays, ids: list[int]) -> Array:
    """Experts of the groups whose two best sum highest, by sigmoids with a bias that only chooses."""
    heads, kv, eps = config["num_attention_heads"], config["num_key_value_heads"], config["rms_norm_eps"]
    dim = config["head_dim"]
    x = w["model.word_embeddings.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        y = normed(x, w[f"{name}.input_layernorm.weight"], eps) @ w[f"{name}.attention.query_key_value.weight"].T
        q, k, v = (part.reshape(len(ids), -1, dim) for part in np.split(y, [heads * dim, (heads + kv) * dim], axis=-1))
        q, k = (
            rotated(
                normed(part, w[f"{name}.attention.{kind}_layernorm.weight"], eps),
                config["rope_theta"],
                int(dim * config["partial_rotary_factor"]),
            )
            for part, kind in ((q, "query"), (k, "key"))
        )
        x = x + attended(q, k, v) @ w[f"{name}.attention.dense.weight"].T
        y = normed(x, w[f"{name}.post_attention_layernorm.weight"], eps)
        names = tuple(f"{part}_proj.weight" for part in ("gate", "up", "down"))
        if layer < config["first_k_dense_replace"]:
            x = x + gated(y, *(w[f"{name}.mlp.{part}"] for part in names))
            continue
        x = x + gated(y, *(w[f"{name}.mlp.shared_experts.{part}"] for part in names))
        for t, scores in enumerate(sigmoid(y @ w[f"{name}.mlp.gate.weight"].T)):
            chosen = routed(scores + w[f"{name}.mlp.gate.expert_bias"], config)
            for e in chosen:
                share = scores[e] / scores[chosen].sum() * config["routed_scaling_factor"]
                x[t] += share * gated(y[t], *(w[f"{name}.mlp.experts.{e}.{part}"] for part in names))
    return normed(x, w["model.norm.weight"], eps) @ w["lm_head.weight"].T


def routed(scores: Array, config: Config) -> npt.NDArray[np.int64]:
    groups = scores.reshape(config["n_group"], -1)
    best = np.argsort(-np.sort(groups, axis=1)[:, -2:].sum(axis=1))[: config["topk_group"]]
    allowed = np.full(groups.shape, -np.inf)
    allowed[best] = groups[best]
    return np.argsort(-allowed.reshape(-1))[: config["num_experts_per_tok"]]


def rwkv7(config: Config, w: Arrays, ids: list[int]) -> Array:
    """By the paper's definition, whose names are GGUF's."""
    found = {"token_embd.weight": w["model.embeddings.weight"], "output.weight": w["lm_head.weight"]}
    norms = {"model.layers.0.pre_norm": "token_embd_norm", "model.norm": "output_norm"}
    for layer in range(config["num_hidden_layers"]):
        theirs, ours = f"model.layers.{layer}", f"blk.{layer}"
        norms |= {
            f"{theirs}.attn_norm": f"{ours}.attn_norm",
            f"{theirs}.ffn_norm": f"{ours}.attn_norm_2",
            f"{theirs}.attn.g_norm": f"{ours}.time_mix_ln",
        }
        found[f"{ours}.time_mix_lerp_fused.weight"] = np.stack([w[f"{theirs}.attn.x_{part}"] for part in "rwkvag"])
        found[f"{ours}.channel_mix_lerp_k.weight"] = w[f"{theirs}.ffn.x_k"]
        for part, name in (("r", "receptance"), ("k", "key"), ("v", "value"), ("o", "output")):
            found[f"{ours}.time_mix_{name}.weight"] = w[f"{theirs}.attn.{part}_proj.weight"]
        found |= {f"{ours}.time_mix_{part}.weight": w[f"{theirs}.attn.{part}"].reshape(-1) for part in ("k_k", "k_a", "r_k")}
        found |= {f"{ours}.channel_mix_{part}.weight": w[f"{theirs}.ffn.{part}.weight"] for part in ("key", "value")}
        for part in "wavg" if layer else "wag":
            low_rank = f"{theirs}.attn.{part}_lora.lora"
            found |= {f"{ours}.time_mix_{part}{i}.weight": w[f"{low_rank}.{n}.weight"] for i, n in ((1, 0), (2, 2))}
            if part != "g":
                found[f"{ours}.time_mix_{part}0.weight"] = w[f"{low_rank}.2.bias"]
    found |= {f"{ours}.{kind}": w[f"{theirs}.{kind}"] for theirs, ours in norms.items() for kind in ("weight", "bias")}
    return rwkv7_definition.logits(found, np.array(ids), config["head_dim"], config["norm_eps"])


def rwkv6(config: Config, w: Arrays, ids: list[int]) -> Array:
    """By the paper's definition, whose names are GGUF's. Nothing is halved."""
    found = {"token_embd.weight": w["rwkv.embeddings.weight"], "output.weight": w["head.weight"]}
    norms = {"rwkv.blocks.0.pre_ln": "token_embd_norm", "rwkv.ln_out": "output_norm"}
    for layer in range(config["num_hidden_layers"]):
        theirs, ours = f"rwkv.blocks.{layer}", f"blk.{layer}"
        mix, channels = f"{theirs}.attention", f"{theirs}.feed_forward"
        norms |= {
            f"{theirs}.ln1": f"{ours}.attn_norm",
            f"{theirs}.ln2": f"{ours}.attn_norm_2",
            f"{mix}.ln_x": f"{ours}.time_mix_ln",
        }
        found |= {f"{ours}.time_mix_lerp_{part}.weight": w[f"{mix}.time_maa_{part}"].reshape(-1) for part in "xwkvrg"}
        found |= {
            f"{ours}.time_mix_{part}.weight": w[f"{mix}.{part}.weight"] for part in ("receptance", "key", "value", "gate", "output")
        }
        found |= {
            f"{ours}.time_mix_w1.weight": w[f"{mix}.time_maa_w1"].T,
            f"{ours}.time_mix_first.weight": w[f"{mix}.time_faaaa"],
            f"{ours}.time_mix_w2.weight": w[f"{mix}.time_maa_w2"].transpose(0, 2, 1),
            f"{ours}.time_mix_decay.weight": w[f"{mix}.time_decay"].reshape(-1),
        }
        found |= {f"{ours}.time_mix_decay_w{i}.weight": w[f"{mix}.time_decay_w{i}"].T for i in (1, 2)}
        found |= {f"{ours}.channel_mix_lerp_{part}.weight": w[f"{channels}.time_maa_{part}"].reshape(-1) for part in "kr"}
        found |= {f"{ours}.channel_mix_{part}.weight": w[f"{channels}.{part}.weight"] for part in ("key", "value", "receptance")}
    found |= {f"{ours}.{kind}": w[f"{theirs}.{kind}"] for theirs, ours in norms.items() for kind in ("weight", "bias")}
    return rwkv6_definition.logits(found, np.array(ids), config["head_size"], config["layer_norm_epsilon"], 0)


LOGITS: dict[str, Callable[[Config, Arrays, list[int]], Array]] = {
    "exaone": exaone,
    "internlm2": internlm2,
    "minicpm": minicpm,
    "bailing_moe": bailing_moe,
    "bailing_moe_v2": bailing_moe_v2,
    "rwkv6": rwkv6,
    "rwkv7": rwkv7,
}
"""By model type: logits (ids, n_vocab)."""
