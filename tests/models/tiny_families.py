"""Names of each architecture's tensors and keys in its files, as convert_hf_to_gguf writes them: a row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FIRST = ("gemma3", "gpt2", "llama", "phi3", "qwen2", "qwen3")  # for tests that would take too long for all
QKV = ("attn_q", "attn_k", "attn_v")
PRE = ("attn_norm", "ffn_norm")
POST = ("post_attention_norm", "post_ffw_norm")
MATRICES = ("attn_qkv", *QKV, "attn_output", "ffn_gate", "ffn_up", "ffn_down")


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture.

    norms: of a block, over the whole row. qk_norm: of queries and keys; "head" has one weight for all heads, "row" covers the row,
    "own" has one per head. ffn: whether gate and up are two tensors, one, or there is no gate; ffn_factor: its width in rows, where
    that is fixed. biased: names of a block that have a bias. keys: more hyperparameters. bare: those without the family's name.
    """

    norms: tuple[str, ...] = PRE
    qk_norm: Literal["", "head", "row", "own"] = ""
    fused_qkv: bool = False
    ffn: Literal["gated", "fused", "plain"] = "gated"
    ffn_factor: int = 0
    biased: tuple[str, ...] = ()
    layer_norm: bool = False  # else RMS
    norm_bias: bool = False
    rotates: bool = True
    one_kv_per_head: bool = False
    own_head_dim: bool = True  # whether the length of heads is a key
    tied: bool = False  # always
    keys: Mapping[str, Any] = field(default_factory=dict)
    bare: Mapping[str, Any] = field(default_factory=dict)
    learned_positions: bool = False
    embedding_norm: bool = False
    output_norm: bool = True
    output_bias: bool = False
    sub_norms: bool = False  # before the two output matrices
    gated_attention: bool = False  # by a matrix of its own
    head_gates: bool = False  # one for each head
    told_widths: int = 1  # what a file says of the feed-forward's width, in true ones


_PLAIN_LN: dict[str, Any] = {"layer_norm": True, "norm_bias": True, "ffn": "plain", "own_head_dim": False}
_GEMMA2 = {"attention.sliding_window": 8, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
_GRANITE = {"embedding_scale": 3.0, "residual_scale": 0.5, "attention.scale": 0.2, "logit_scale": 4.0}
_MINICPM = {"embedding_scale": 3.0, "residual_scale": 0.5, "logit_scale": 4.0}
_YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 8.0,
    "rope.scaling.original_context_length": 16,
    "rope.scaling.yarn_log_multiplier": 1.0,
    "attention.temperature_scale": 0.3,
}
_SECTIONS = {"rope.dimension_sections": [3, 3, 2, 0]}
_XIELU = {"xielu.alpha_p": 0.7, "xielu.alpha_n": 0.4, "xielu.beta": 0.5, "xielu.eps": -1e-6}

FAMILIES: dict[str, Family] = {
    "afmoe": Family(norms=(*PRE, *POST), qk_norm="head", gated_attention=True, keys={"attention.sliding_window": 8}),
    "apertus": Family(qk_norm="head", ffn="plain", bare=_XIELU),
    "arcee": Family(ffn="plain"),
    "baichuan": Family(),
    "bitnet": Family(sub_norms=True, own_head_dim=False, tied=True, keys={"hidden_act": "relu2"}),
    "bloom": Family(
        fused_qkv=True,
        ffn_factor=4,
        biased=("attn_qkv", "attn_output", "ffn_up", "ffn_down"),
        rotates=False,
        one_kv_per_head=True,
        embedding_norm=True,
        **_PLAIN_LN,
    ),
    "chatglm": Family(ffn="fused", biased=QKV, keys={"rope.dimension_count": 8}),
    "codeshell": Family(fused_qkv=True, biased=("attn_qkv", "attn_output", "ffn_up", "ffn_down"), **_PLAIN_LN),
    "chameleon": Family(qk_norm="own", own_head_dim=False),
    "cogvlm": Family(fused_qkv=True, one_kv_per_head=True, own_head_dim=False),
    "cohere2": Family(norms=("attn_norm",), layer_norm=True, tied=True, keys={"attention.sliding_window": 8, "logit_scale": 0.3}),
    "command-r": Family(
        norms=("attn_norm",), layer_norm=True, tied=True, qk_norm="own", own_head_dim=False, keys={"logit_scale": 0.3}
    ),
    "deepseek": Family(),
    "ernie4_5": Family(),
    "exaone": Family(),
    "exaone4": Family(norms=POST, qk_norm="head", keys={"attention.sliding_window": 8}),
    "exaone-moe": Family(qk_norm="head", keys={"attention.sliding_window": 8}),
    "falcon": Family(norms=("attn_norm", "attn_norm_2"), fused_qkv=True, ffn_factor=4, **_PLAIN_LN),
    "gemma": Family(tied=True),
    "gemma2": Family(norms=(*PRE, *POST), tied=True, keys=_GEMMA2),
    "gemma3": Family(norms=(*PRE, *POST), qk_norm="head", keys={"attention.sliding_window": 8}),
    "glm4": Family(norms=(*PRE, *POST), ffn="fused", biased=QKV, keys={"rope.dimension_count": 8}),
    "gpt2": Family(
        fused_qkv=True,
        biased=("attn_qkv", "attn_output", "ffn_up", "ffn_down"),
        rotates=False,
        one_kv_per_head=True,
        learned_positions=True,
        **_PLAIN_LN,
    ),
    "gpt-oss": Family(
        norms=("attn_norm", "post_attention_norm"),
        biased=(*QKV, "attn_output"),
        keys={
            "attention.sliding_window": 8,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 8.0,
            "rope.scaling.original_context_length": 16,
        },
    ),
    "gptneox": Family(
        fused_qkv=True,
        biased=("attn_qkv", "attn_output", "ffn_up", "ffn_down"),
        one_kv_per_head=True,
        keys={"rope.dimension_count": 4, "use_parallel_residual": True},
        **_PLAIN_LN,
    ),
    "granite": Family(keys=_GRANITE),
    "granitemoe": Family(keys=_GRANITE),
    "hunyuan-dense": Family(qk_norm="head"),
    "internlm2": Family(),
    "jais": Family(
        fused_qkv=True,
        biased=("attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down"),
        rotates=False,
        one_kv_per_head=True,
        layer_norm=True,
        norm_bias=True,
        own_head_dim=False,
        keys={"attention.max_alibi_bias": 8.0},
    ),
    "jais2": Family(biased=(*QKV, "attn_output", "ffn_up", "ffn_down"), **_PLAIN_LN),
    "llama": Family(),
    "llama4": Family(keys={"attention.sliding_window": 8, "interleave_moe_layer_step": 1, "attention.temperature_length": 16}),
    "maincoder": Family(qk_norm="head"),
    "minicpm": Family(keys=_MINICPM),
    "mistral3": Family(keys=_YARN),
    "mpt": Family(
        fused_qkv=True,
        ffn="plain",
        ffn_factor=4,
        layer_norm=True,
        rotates=False,
        one_kv_per_head=True,
        own_head_dim=False,
        tied=True,
        keys={"attention.max_alibi_bias": 8.0, "attention.clamp_kqv": 1.5},
    ),
    "nemotron": Family(keys={"rope.dimension_count": 8}, **_PLAIN_LN),
    "olmo": Family(norms=(), layer_norm=True, output_norm=False, own_head_dim=False, keys={"attention.clamp_kqv": 1.5}),
    "olmo2": Family(norms=POST, qk_norm="row", own_head_dim=False),
    "orion": Family(layer_norm=True, norm_bias=True),
    "pangu-embedded": Family(biased=(*QKV, "attn_output")),
    "phi2": Family(
        norms=("attn_norm",),
        biased=(*QKV, "attn_output", "ffn_up", "ffn_down"),
        output_bias=True,
        keys={"rope.dimension_count": 8},
        **_PLAIN_LN,
    ),
    "phi3": Family(fused_qkv=True, ffn="fused"),
    "phimoe": Family(
        layer_norm=True,
        norm_bias=True,
        biased=(*QKV, "attn_output"),
        output_bias=True,
        keys={"attention.layer_norm_rms_epsilon": 1e-5, "attention.layer_norm_epsilon": None},
    ),
    "plamo3": Family(
        norms=(*PRE, *POST),
        qk_norm="head",
        fused_qkv=True,
        ffn="fused",
        keys={"attention.sliding_window": 8, "attention.sliding_window_pattern": 2, "rope.freq_base_swa": 5000.0},
    ),
    "qwen": Family(fused_qkv=True, biased=("attn_qkv",), one_kv_per_head=True, own_head_dim=False, told_widths=2),
    "qwen2": Family(biased=QKV),
    "qwen2vl": Family(biased=QKV, keys=_SECTIONS),
    "qwen3": Family(qk_norm="head"),
    "qwen3vl": Family(qk_norm="head", keys=_SECTIONS),
    "refact": Family(rotates=False),
    "seed_oss": Family(norms=("attn_norm", "post_attention_norm"), biased=QKV),
    "smallthinker": Family(keys={"attention.sliding_window": 8}),
    "smollm3": Family(),
    "stablelm": Family(layer_norm=True, norm_bias=True, own_head_dim=False, keys={"rope.dimension_count": 4}),
    "bailingmoe2": Family(qk_norm="head", fused_qkv=True),
    "bailingmoe": Family(),
    "deepseek2-ocr": Family(one_kv_per_head=True, own_head_dim=False),
    "dbrx": Family(
        norms=("attn_norm", "attn_output_norm"),
        layer_norm=True,
        fused_qkv=True,
        own_head_dim=False,
        keys={"attention.clamp_kqv": 1.5},
    ),
    "maple": Family(qk_norm="head", keys={"attention.sliding_window": 8, "rope.freq_base_swa": 5000.0}),
    "muse-glimmer": Family(
        norms=(*PRE, *POST),
        qk_norm="head",
        gated_attention=True,
        keys={"attention.sliding_window": 8, "rope.freq_base_swa": 5000.0, "logit_scale": 0.3, "final_logit_softcapping": 3.0},
    ),
    "plamo": Family(norms=("attn_norm",), own_head_dim=False),
    "spark2_5": Family(
        fused_qkv=True,
        head_gates=True,
        keys={
            "attention.sliding_window": 8,
            "attention.sliding_window_pattern": 2,
            "rope.freq_base_swa": 5000.0,
            "rope.dimension_count": 8,
            "rope.dimension_count_swa": 16,
        },
    ),
    "starcoder": Family(
        fused_qkv=True, biased=("attn_qkv", "attn_output", "ffn_up", "ffn_down"), rotates=False, learned_positions=True, **_PLAIN_LN
    ),
    "cohere2moe": Family(
        norms=("attn_norm",), layer_norm=True, tied=True, keys={"attention.sliding_window": 8, "logit_scale": 0.3}
    ),
    "hunyuan_vl": Family(qk_norm="head", keys={"rope.scaling.alpha": 8.0, "rope.dimension_sections": [2, 2, 2, 2]}),
    "hy_v3": Family(qk_norm="head"),
    "mellum": Family(qk_norm="head", keys={"attention.sliding_window": 8}),
    "nanbeige": Family(keys={"num_loops": 2}),
    "paddleocr": Family(keys=_SECTIONS),
    "dots1": Family(qk_norm="head"),
    "ernie4_5-moe": Family(),
    "glm4moe": Family(norms=("attn_norm", "post_attention_norm"), biased=QKV),
    "hunyuan-moe": Family(qk_norm="head"),
    "minimax-m2": Family(qk_norm="row"),
    "olmoe": Family(qk_norm="row"),
    "qwen2moe": Family(biased=QKV),
    "qwen3moe": Family(qk_norm="head"),
    "qwen3vlmoe": Family(qk_norm="head", keys=_SECTIONS),
    "xverse": Family(),
    "starcoder2": Family(biased=(*QKV, "attn_output", "ffn_up", "ffn_down"), **_PLAIN_LN),
}
