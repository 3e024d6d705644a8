"""Families whose code lies beside their checkpoints on the hub: EXAONE 3, InternLM 2, MiniCPM, Ling 1 and 2."""

from __future__ import annotations

import math

import numpy as np

from edgellm.checkpoints.families._family import INNER, Family
from edgellm.checkpoints.families._pieces import Config, Metadata, Order, Rows, Shape, Slice, rows_of
from edgellm.checkpoints.families.routed import SHARED, routed

EXAONE = {f"attn.attention.{part}_proj": f"attn_{part}" for part in "qkv"} | {
    "attn.attention.out_proj": "attn_output",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "mlp.c_fc_0": "ffn_gate",
    "mlp.c_fc_1": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
EXAONE_ENDS = {"wte": "token_embd", "ln_f": "output_norm", "lm_head": "output"}
INTERN = {
    "attention_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "attention.wqkv": "attn_qkv",
    "attention.wo": "attn_output",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w2": "ffn_down",
    "feed_forward.w3": "ffn_up",
}
INTERN_ENDS = {"tok_embeddings": "token_embd", "norm": "output_norm", "output": "output"}
LING = SHARED | {
    "mlp.gate.gate_proj": "ffn_gate_inp",  # of MLX's folders
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    "attention.query_layernorm": "attn_q_norm",
    "attention.key_layernorm": "attn_k_norm",
}
LING_ENDS = {"word_embeddings": "token_embd", "norm": "output_norm", "lm_head": "output"}
PLAIN = dict.fromkeys(("use_bias", "use_qkv_bias", "norm_head"), (False,))
LING_SHARE = 0.5  # of a head that is rotated, where nothing is said


def of_group(part: str) -> Order:
    """Rows of queries, keys or values of InternLM 2, which lie together for each head of keys, with pairs side by side."""

    def rows(config: Config, shape: Shape) -> Rows:
        heads, groups = config["num_attention_heads"], config.get("num_key_value_heads") or config["num_attention_heads"]
        n = heads // groups
        found = np.arange(rows_of(shape)).reshape(groups, n + 2, -1)
        if part == "attn_v":
            return found[:, n + 1].reshape(-1)
        found = found[:, :n] if part == "attn_q" else found[:, n : n + 1]
        return found.reshape(groups * found.shape[1], 2, -1).swapaxes(1, 2).reshape(-1)

    return rows


def minicpm(config: Config) -> Metadata:
    """Factors of embeddings, residuals and logits."""
    depth, base = config.get("scale_depth"), config.get("dim_model_base")
    return {
        "embedding_scale": config.get("scale_emb"),
        "residual_scale": depth / math.sqrt(config["num_hidden_layers"]) if depth else None,
        "logit_scale": config["hidden_size"] / base if base else None,
    }


def ling(config: Config) -> Metadata:
    width, n = config["moe_intermediate_size"], config.get("num_shared_experts") or 0
    return routed(config) | {
        "expert_count": config.get("num_experts"),
        "expert_shared_count": n,
        "expert_shared_feed_forward_length": width * n,
        "expert_weights_norm": bool(config.get("norm_topk_prob", True)),
    }


def first_ling(config: Config) -> str:
    """Ling 1 has the same model type as Ling 2, and another graph."""
    second = any("MoeV2" in kind for kind in config.get("architectures") or [])
    return "" if second or config.get("model_type") != "bailing_moe" else "bailing_moe, 1"


def one_share(config: Config) -> str:
    """A second setting for the part of a head that is rotated."""
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return "" if config.get("rotary_dim") in (None, int(size * config["partial_rotary_factor"])) else "rotary_dim"


def of_run(part: str) -> Order:
    """Rows of Ling's queries, keys or values, which lie in three runs, with the pairs of a rotation side by side."""

    def rows(config: Config, shape: Shape) -> Rows:
        heads, groups = config["num_attention_heads"], config.get("num_key_value_heads") or config["num_attention_heads"]
        found = np.arange(rows_of(shape)).reshape(heads + 2 * groups, -1)
        if part == "attn_v":
            return found[heads + groups :].reshape(-1)
        found = found[:heads] if part == "attn_q" else found[heads : heads + groups]
        return found.reshape(len(found), 2, -1).swapaxes(1, 2).reshape(-1)

    return rows


FAMILIES = (
    Family(
        "exaone",
        ("exaone",),
        EXAONE,
        EXAONE_ENDS,
        reads={
            "num_hidden_layers": ("num_layers", "num_hidden_layers"),
            "rms_norm_eps": ("layer_norm_epsilon",),
            "layer_norm_epsilon": (),
        },
    ),
    Family(
        "internlm2",
        ("internlm2",),
        INTERN,
        INTERN_ENDS,
        paired_rows=True,
        own_ropes={"dynamic"},
        pieces={"attn_qkv": tuple(Slice(part, of_group(part)) for part in ("attn_q", "attn_k", "attn_v"))},
    ),
    Family("minicpm", ("minicpm",), INNER, paired_rows=True, keys=minicpm),
    Family(
        "bailingmoe2",
        ("bailing_moe_v2", "bailing_moe"),
        LING,
        LING_ENDS,
        keys=ling,
        instead=first_ling,
        refuses=one_share,
        bare={"mlp.gate.expert_bias": "exp_probs_b.bias"},
        turns_part=True,
        defaults={"partial_rotary_factor": LING_SHARE},
        only=PLAIN | {"use_qk_norm": (True,), "score_function": ("sigmoid",), "moe_router_enable_expert_bias": (True,)},
    ),
    Family(
        "bailingmoe",
        ("bailing_moe, 1",),
        LING,
        LING_ENDS,
        keys=lambda config: ling(config) | {"expert_gating_func": None, "expert_shared_feed_forward_length": None},
        pieces={"attn_qkv": tuple(Slice(part, of_run(part)) for part in ("attn_q", "attn_k", "attn_v"))},
        only=PLAIN | {"use_qk_norm": (False,), "score_function": ("softmax",), "moe_router_enable_expert_bias": (False,)},
    ),
)
