"""Variants of the architectures whose float32 gold lies in tests/data/gold, made by tests/data/make_gold.py."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gemma_variants import VARIANTS as GEMMAS
from latent_variants import VARIANTS as LATENT
from moe_variants import VARIANTS as MOE
from places import DATA
from ssm_variants import VARIANTS as SSM
from tiny_draw import Draw
from variant import PEER, Variant

GOLD = DATA / "gold"
N_TOKENS = 80  # past the windows (8, 32) and original contexts (16, 64) below
ROWS = (3, 17, 34, 61, 79)  # of whose tokens the gold has logits
CONTEXT = 512  # configured context: past one of the original contexts (64, 1024)

YARN = {"{arch}.rope.scaling.type": "yarn", "{arch}.rope.scaling.factor": 8.0, "{arch}.rope.scaling.original_context_length": 64}
HF_YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
SHORT_FACTORS, LONG_FACTORS = [1.0 + 0.1 * i for i in range(8)], [1.5 + 0.5 * i for i in range(8)]


def _longrope(context: int, original: int, n_rot: int) -> Variant:
    scale = context / original
    magnitude = float(np.sqrt(1.0 + np.log(scale) / np.log(original)))
    short, long = SHORT_FACTORS[: n_rot // 2], LONG_FACTORS[: n_rot // 2]
    rope = {
        "rope_type": "longrope",
        "short_factor": short,
        "long_factor": long,
        "rope_theta": 10000.0,
        "factor": scale,
        "partial_rotary_factor": n_rot / 16,
        "original_max_position_embeddings": original,
    }
    return Variant(
        "phi3",
        "Phi3",
        {"context": context, "n_rot": n_rot},
        {
            "{arch}.rope.scaling.type": "longrope",
            "{arch}.rope.scaling.attn_factor": magnitude,
            "{arch}.rope.scaling.original_context_length": original,
            "{arch}.attention.sliding_window": 0,
        },
        {"rope_factors_long.weight": long, "rope_factors_short.weight": short},
        {"rope_parameters": rope, "partial_rotary_factor": n_rot / 16, "original_max_position_embeddings": original},
    )


def _gemma3(n_layers: int, layer_types: list[str], metadata: Mapping[str, Any], **config: Any) -> Variant:
    rope = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    }
    scaling = {"{arch}.rope.scaling.type": "linear", "{arch}.rope.scaling.factor": 8.0}
    return Variant(
        "gemma3",
        "Gemma3",
        {"n_layers": n_layers, "rope_base": 1e6, "tied": True},
        scaling | dict(metadata),
        config={"layer_types": layer_types, "sliding_window": 8, "rope_parameters": rope} | config,
    )


def _stablelm_12b() -> Variant:
    """Parallel blocks, and a layer norm for each head."""
    tensors: dict[str, Any] = {}
    for layer in range(2):
        block = f"blk.{layer}"
        tensors |= {f"{block}.ffn_norm.{kind}": None for kind in ("weight", "bias")}
        tensors |= {
            f"{block}.attn_{part}_norm.weight": np.cos(np.arange(16 * n) + layer).reshape(n, 16) for part, n in (("q", 4), ("k", 2))
        }
    return Variant(
        "stablelm",
        "StableLm",
        {"tied": False},
        tensors=tensors,
        config=_STABLELM | {"qk_layernorm": True, "use_parallel_residual": True},
    )


def _chatglm() -> Variant:
    """Files of the first checkpoints have one matrix for queries, keys and values."""
    draw, tensors = Draw(np.random.default_rng(6)), dict[str, Any]()
    for layer in range(2):
        block = f"blk.{layer}"
        tensors |= {f"{block}.attn_{part}.{kind}": None for part in "qkv" for kind in ("weight", "bias")}
        tensors |= {f"{block}.attn_qkv.weight": draw.matrix(128, 64), f"{block}.attn_qkv.bias": draw.vector(128, mean=0.0)}
    return Variant("chatglm", "Glm", tensors=tensors, config={"attention_bias": True} | _partly_rotated(0.5))


def _partly_rotated(share: float) -> dict[str, Any]:
    return {
        "partial_rotary_factor": share,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share},
    }


def _unused_values(n: int) -> dict[str, Any]:
    """Tensors that the converter writes for RWKV-7's first layer because llama.cpp expects them."""
    return {f"blk.0.time_mix_v{part}.weight": np.ones(size) for part, size in (("0", n), ("1", (12, n)), ("2", (n, 12)))}


def _apart() -> dict[str, Any]:
    """RWKV-6's weights of rows and those before them as older files have them."""
    draw, tensors = Draw(np.random.default_rng(9)), dict[str, Any]()
    for layer in range(2):
        name = f"blk.{layer}.time_mix_lerp"
        tensors |= {f"{name}_fused.weight": None} | {f"{name}_{part}.weight": draw.vector(64, mean=0.5) for part in "wkvrg"}
    return tensors


def _ungated() -> dict[str, Any]:
    """ARWKV-7 without gates."""
    draw, tensors = Draw(np.random.default_rng(10)), dict[str, Any]()
    for layer in range(2):
        name = f"blk.{layer}.time_mix"
        tensors |= {f"{name}_g1.weight": None, f"{name}_g2.weight": None}
        tensors[f"{name}_lerp_fused.weight"] = draw.vector(5, 1, 1, 128, mean=0.5)
    return tensors


def _slow() -> dict[str, Any]:
    """Decays that QRWKV6's makers do not hold, so that llama.cpp's are the same."""
    draw, tensors = Draw(np.random.default_rng(11)), dict[str, Any]()
    for layer in range(2):
        name = f"blk.{layer}.time_mix_decay"
        tensors |= {f"{name}.weight": draw.vector(64, mean=-2.5), f"{name}_w2.weight": 0.4 * draw.matrix(64, 12)}
    return tensors


def _head_biases() -> dict[str, Any]:
    """Of Chameleon's norms of heads."""
    draw = Draw(np.random.default_rng(12))
    return {
        f"blk.{layer}.attn_{part}_norm.bias": draw.vector(n, 16, mean=0.0) for layer in range(2) for part, n in (("q", 4), ("k", 2))
    }


def _seeing() -> dict[str, Any]:
    """CogVLM's matrices for images, which text has no use for."""
    shapes = {"attn_qkv": (192, 64), "attn_output": (64, 64), "gate": (96, 64), "up": (96, 64), "down": (64, 96)}
    return {f"blk.{layer}.vis_{name}.weight": np.ones(shape) for layer in range(2) for name, shape in shapes.items()}


def _plamo3(n_layers: int) -> dict[str, Any]:
    """Norms after the halves of a block, which real files name without .weight."""
    draw, tensors = Draw(np.random.default_rng(8)), dict[str, Any]()
    for name in (f"blk.{layer}.post_{part}_norm" for layer in range(n_layers) for part in ("attention", "ffw")):
        tensors |= {f"{name}.weight": None, name: draw.vector(64)}
    return tensors


SLIDING, FULL = "sliding_attention", "full_attention"
_CHAMELEON = {
    "vocabulary_map": {"<image>": 5},
    "vq_config": {
        "embed_dim": 4,
        "num_embeddings": 4,
        "latent_channels": 4,
        "base_channels": 32,
        "channel_multiplier": [1],
        "num_res_blocks": 1,
        "resolution": 8,
        "attn_type": "none",
    },
}
_STABLELM = {"layer_norm_eps": 1e-5} | _partly_rotated(0.25)
_MINISTRAL = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.3,
}
_OLMO3 = {"{arch}.attention.sliding_window": 8, "{arch}.attention.sliding_window_pattern": [True, True, False, True]}
_COMMAND_R = {"layer_norm_eps": 1e-5, "logit_scale": 0.3}
_FALCON = {"layer_norm_epsilon": 1e-5, "ffn_hidden_size": 256, "bias": False, "alibi": False, "parallel_attn": True}
_STARCODER2 = {"hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "use_bias": True, "sliding_window": None}
_NEOX = {"layer_norm_eps": 1e-5, "hidden_act": "gelu", "rotary_pct": 0.25} | _partly_rotated(0.25)
_DELTA = {
    "layer_types": ["full_attention", "linear_attention", "full_attention"],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0, "mrope_section": [3, 3, 2]},
}
_DELTA_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 48,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
_SECTIONS = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2]}}
_MAMBA = {
    "intermediate_size": 128,
    "state_size": 16,
    "expand": 2,
    "conv_kernel": 4,
    "time_step_rank": 32,
    "layer_norm_epsilon": 1e-5,
}

VARIANTS = {
    "apertus": Variant("apertus", "Apertus"),
    "arcee": Variant("arcee", "Arcee", {"head_dim": 24}, config={"hidden_act": "relu2"}),
    "bitnet": Variant("bitnet", "BitNet", {"tied": True}, config={"hidden_act": "relu2"}),
    "bitnet-silu": Variant("bitnet", "BitNet", {"tied": True}, {"{arch}.hidden_act": None}, config={"hidden_act": "silu"}),
    "baichuan": Variant("baichuan", "Llama", {"n_layers": 32, "n_embd": 32, "n_ff": 32, "n_heads": 2}),
    "baichuan-13b": Variant("baichuan", PEER, {"n_layers": 40, "n_embd": 32, "n_ff": 32, "n_heads": 2}),
    "bloom": Variant("bloom", "Bloom", {"tied": True}, config={"n_layer": 2, "n_head": 4, "layer_norm_epsilon": 1e-5}),
    "bloom-6-heads": Variant(
        "bloom", "Bloom", {"n_embd": 96, "n_heads": 6, "tied": True}, config={"n_layer": 2, "n_head": 6, "layer_norm_epsilon": 1e-5}
    ),
    "chatglm": Variant("chatglm", "Glm", config={"attention_bias": True} | _partly_rotated(0.5)),
    "chatglm-fused": _chatglm(),
    "codeshell": Variant("codeshell", "Starcoder2", config=_STARCODER2),
    "chameleon": Variant("chameleon", "Chameleon", tensors=_head_biases(), config=_CHAMELEON),
    "chameleon-30b": Variant(
        "chameleon", "Chameleon", {"n_layers": 3}, {"{arch}.swin_norm": True}, config=_CHAMELEON | {"swin_norm": True}
    ),
    "cogvlm": Variant("cogvlm", PEER, tensors=_seeing()),
    "cohere2": Variant("cohere2", "Cohere2", {"n_layers": 4, "tied": True}, config=_COMMAND_R | {"sliding_window": 8}),
    "command-r": Variant(
        "command-r",
        "Cohere",
        {"tied": True},
        tensors={f"blk.{layer}.attn_{part}_norm.weight": None for layer in range(2) for part in "qk"},
        config=_COMMAND_R,
    ),
    "command-r-plus": Variant("command-r", "Cohere", {"tied": True}, config=_COMMAND_R | {"use_qk_norm": True}),
    "ernie4_5": Variant("ernie4_5", "Ernie4_5"),
    "exaone4": Variant(
        "exaone4",
        "Exaone4",
        {"n_layers": 4},
        config={"sliding_window": 8, "sliding_window_pattern": 4, "layer_types": [SLIDING] * 3 + [FULL]},
    ),
    "exaone4-full": Variant(
        "exaone4",
        "Exaone4",
        metadata={"{arch}.attention.sliding_window": None},
        config={"sliding_window": None, "sliding_window_pattern": None, "layer_types": [FULL] * 2},
    ),
    "exaone": Variant("exaone", "Llama"),
    "falcon-7b": Variant(
        "falcon",
        "Falcon",
        {"n_kv_heads": 1, "tied": True},
        tensors={f"blk.{layer}.attn_norm_2.{kind}": None for layer in range(2) for kind in ("weight", "bias")},
        config=_FALCON | {"multi_query": True, "new_decoder_architecture": False},
    ),
    "falcon-40b": Variant(
        "falcon", "Falcon", {"n_kv_heads": 2, "tied": True}, config=_FALCON | {"num_kv_heads": 2, "new_decoder_architecture": True}
    ),
    "gemma": Variant("gemma", "Gemma", {"head_dim": 32, "tied": True}, config={"hidden_activation": "gelu_pytorch_tanh"}),
    "gemma2": Variant(
        "gemma2",
        "Gemma2",
        {"n_layers": 3, "tied": True},
        config={
            "query_pre_attn_scalar": 16,
            "sliding_window": 8,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
            "layer_types": [SLIDING, FULL, SLIDING],
        },
    ),
    "glm4": Variant("glm4", "Glm4", config={"attention_bias": True} | _partly_rotated(0.5)),
    "gptneox": Variant("gptneox", "GPTNeoX", config=_NEOX),
    "gptneox-sequential": Variant(
        "gptneox", "GPTNeoX", metadata={"{arch}.use_parallel_residual": False}, config=_NEOX | {"use_parallel_residual": False}
    ),
    "granite": Variant(
        "granite",
        "Granite",
        config={"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2, "logits_scaling": 4.0},
    ),
    "deci": Variant("deci", PEER, {"n_layers": 5}),
    "jais": Variant("jais", PEER, {"n_kv_heads": 4}),
    "jais2": Variant("jais2", "Jais2", config={"layer_norm_eps": 1e-5}),
    "openelm": Variant("openelm", PEER, {"tied": True}),
    "maincoder": Variant("maincoder", "HunYuanDenseV1", {"head_dim": 24}),
    "orion": Variant("orion", "StableLm", config={"layer_norm_eps": 1e-5} | _partly_rotated(1.0)),
    "pangu-embedded": Variant("pangu-embedded", "Llama", config={"attention_bias": True}),
    "plamo3": Variant("plamo3", PEER, {"n_layers": 3, "tied": True}, tensors=_plamo3(3)),
    "qwen": Variant("qwen", "Qwen2", {"n_kv_heads": 4}),
    "refact": Variant("refact", PEER, {"n_kv_heads": 1}),
    "xverse": Variant("xverse", "Llama"),
    "minicpm": Variant(
        "minicpm",
        "Granite",
        config={"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.25, "logits_scaling": 4.0},
    ),
    "minicpm-2b": Variant(
        "minicpm",
        "Granite",
        {"tied": True},
        dict.fromkeys(("{arch}.embedding_scale", "{arch}.residual_scale", "{arch}.logit_scale")),
        config={
            "embedding_multiplier": 12.0,
            "residual_multiplier": 1.4 / 2**0.5,
            "attention_multiplier": 0.25,
            "logits_scaling": 0.25,
        },
    ),
    "internlm2": Variant("internlm2", "Llama"),
    "plamo": Variant("plamo", PEER),
    "muse-glimmer": Variant("muse-glimmer", PEER, {"n_layers": 5, "head_dim": 24}),
    "talkie": Variant("talkie", PEER, {"n_layers": 3}),
    "starcoder": Variant("starcoder", "GPTBigCode", {"n_kv_heads": 1, "tied": True}, config={"n_inner": 96, "n_positions": 128}),
    "spark2_5": Variant(
        "spark2_5",
        "Step3p7",
        metadata={"{arch}.attention.sliding_window_pattern": [True, False]},
        config={
            "sliding_window": 8,
            "layer_types": [SLIDING, FULL],
            "mlp_layer_types": ["dense"] * 2,
            "rope_parameters": {
                FULL: {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
                SLIDING: {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 1.0},
            },
        },
    ),
    "nanbeige": Variant("nanbeige", PEER),
    "nanbeige-unnormed": Variant("nanbeige", PEER, {"tied": True}, {"{arch}.num_loops": 3, "{arch}.skip_loop_final_norm": True}),
    "paddleocr": Variant("paddleocr", "PaddleOCR", config=_SECTIONS),
    "hunyuan_vl": Variant(
        "hunyuan_vl",
        "HunYuanVL",
        {"tied": True},
        config={
            "rope_parameters": {
                "rope_type": "dynamic",
                "alpha": 8.0,
                "factor": 1.0,
                "rope_theta": 10000.0,
                "mrope_section": [2, 2, 2, 2],
            }
        },
    ),
    "qwen2vl": Variant("qwen2vl", "Qwen2VL", config=_SECTIONS),
    "qwen3vl": Variant("qwen3vl", "Qwen3VL", {"head_dim": 16, "tied": True}, config=_SECTIONS),
    "hunyuan-dense": Variant("hunyuan-dense", "HunYuanDenseV1", {"head_dim": 24, "tied": True}),
    "mamba": Variant("mamba", "Mamba", config=_MAMBA),
    "qwen35": Variant("qwen35", "Qwen3_5", {"n_layers": 3}, config=_DELTA),
    "qwen35moe": Variant("qwen35moe", "Qwen3_5Moe", {"n_layers": 3}, config=_DELTA | _DELTA_EXPERTS),
    "qwen3next": Variant("qwen3next", "Qwen3Next", {"n_layers": 3}, config=_DELTA | _DELTA_EXPERTS),
    "falcon-mamba": Variant(
        "mamba", "FalconMamba", metadata={"{arch}.ssm.dt_b_c_rms": True}, config=_MAMBA | {"mixer_rms_eps": 1e-5}
    ),
    "lfm2": Variant(
        "lfm2",
        "Lfm2",
        {"n_layers": 3},
        config={"norm_eps": 1e-5, "conv_L_cache": 3, "block_auto_adjust_ff_dim": False, "layer_types": [FULL, "conv", FULL]},
    ),
    "rwkv6": Variant("rwkv6", "", {"n_layers": 3}),
    "rwkv6-wide": Variant(
        "rwkv6",
        "",
        {"n_embd": 128},
        {"{arch}.wkv.head_size": 64, "{arch}.rescale_every_n_layers": 0},
        {f"blk.{layer}.time_mix_first.weight": np.cos(np.arange(128)).reshape(2, 64) for layer in range(2)},
    ),
    "rwkv6-apart": Variant("rwkv6", "", tensors=_apart()),
    "rwkv6qwen2": Variant("rwkv6qwen2", ""),
    "rwkv6qwen2-slow": Variant("rwkv6qwen2", "", tensors=_slow()),
    "arwkv7": Variant("arwkv7", "", {"n_layers": 3}, tensors=_unused_values(64)),
    "arwkv7-bare": Variant("arwkv7", "", {"n_embd": 128}, {"{arch}.wkv.head_size": 64}, _unused_values(128) | _ungated()),
    "rwkv7": Variant("rwkv7", "", {"n_layers": 3}, tensors=_unused_values(64)),
    "rwkv7-wide": Variant("rwkv7", "", {"n_embd": 128}, {"{arch}.wkv.head_size": 64}, _unused_values(128)),
    "ministral3": Variant("mistral3", "Ministral3", {"head_dim": 24}, config={"rope_parameters": _MINISTRAL}),
    "mpt": Variant(
        "mpt",
        "Mpt",
        config={
            "d_model": 64,
            "n_heads": 4,
            "n_layers": 2,
            "max_seq_len": 128,
            "layer_norm_epsilon": 1e-5,
            "no_bias": True,
            "attn_config": {"clip_qkv": 1.5, "alibi": True, "alibi_bias_max": 8},
        },
    ),
    "nemotron": Variant("nemotron", "Nemotron", config={"hidden_act": "relu2", "norm_eps": 1e-5} | _partly_rotated(0.5)),
    "olmo": Variant("olmo", "Olmo", config={"clip_qkv": 1.5}),
    "olmo2": Variant("olmo2", "Olmo2"),
    "olmo3": Variant(
        "olmo2",
        "Olmo3",
        {"n_layers": 4, "context": 512},
        YARN | _OLMO3,
        config={
            "sliding_window": 8,
            "layer_types": [SLIDING, SLIDING, FULL, SLIDING],
            "rope_parameters": {SLIDING: {"rope_type": "default", "rope_theta": 10000.0}, FULL: HF_YARN},
        },
    ),
    "phi2": Variant("phi2", "Phi", config={"hidden_act": "gelu_new", "layer_norm_eps": 1e-5} | _partly_rotated(0.5)),
    "seed-oss": Variant("seed_oss", "SeedOss", {"head_dim": 24}, config={"attention_bias": True, "attention_out_bias": False}),
    "smollm3": Variant("smollm3", "SmolLM3", {"n_layers": 4, "tied": True}, config={"no_rope_layer_interval": 4}),
    "stablelm": Variant("stablelm", "StableLm", config=_STABLELM),
    "stablelm-12b": _stablelm_12b(),
    "starcoder2": Variant("starcoder2", "Starcoder2", {"tied": True}, config=_STARCODER2),
    "llama-yarn": Variant("llama", "Llama", {"context": 512}, YARN, config={"rope_parameters": HF_YARN}),
    "llama-yarn-set": Variant(
        "llama",
        "Llama",
        {"context": 512},
        YARN
        | {
            "{arch}.rope.scaling.yarn_attn_factor": 1.3,
            "{arch}.rope.scaling.yarn_beta_fast": 16.0,
            "{arch}.rope.scaling.yarn_beta_slow": 2.0,
        },
        config={"rope_parameters": HF_YARN | {"attention_factor": 1.3, "beta_fast": 16.0, "beta_slow": 2.0}},
    ),
    "llama-linear": Variant(
        "llama",
        "Llama",
        {},
        {"{arch}.rope.scaling.type": "linear", "{arch}.rope.scaling.factor": 4.0},
        config={"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    ),
    "llama-biases-tied": Variant(
        "llama", "Llama", {"biases": True, "tied": True, "head_dim": 24}, config={"attention_bias": True, "mlp_bias": True}
    ),
    "mistral-head-dim": Variant("llama", "Mistral", {"head_dim": 32, "n_kv_heads": 1}, config={"sliding_window": None}),
    "mistral-window": Variant("llama", "Mistral", {"window": 32}, config={"sliding_window": 32}),
    "qwen2-yarn": Variant("qwen2", "Qwen2", {"context": 512}, YARN, config={"rope_parameters": HF_YARN}),
    "qwen3-yarn": Variant(
        "qwen3", "Qwen3", {"context": 512, "head_dim": 32, "tied": True}, YARN, config={"rope_parameters": HF_YARN}
    ),
    "phi3-window": Variant("phi3", "Phi3", {"window": 32}, config={"sliding_window": 32}),
    "phi3-long": _longrope(512, 64, 16),
    "phi3-long-partial": _longrope(512, 64, 8),
    "phi3-short-partial": _longrope(4096, 1024, 8),
    "gemma3-sixth": _gemma3(7, [SLIDING] * 5 + [FULL, SLIDING], {}),
    "gemma3-period": _gemma3(4, [SLIDING, FULL] * 2, {"{arch}.attention.sliding_window_pattern": 2}),
    "gemma3-listed": _gemma3(
        3,
        [FULL, SLIDING, SLIDING],
        {"{arch}.attention.sliding_window_pattern": [False, True, True], "{arch}.final_logit_softcapping": 2.0},
        final_logit_softcapping=2.0,
    ),
    "gpt2-untied": Variant("gpt2", "GPT2"),
    "gpt2-tied": Variant("gpt2", "GPT2", {"tied": True, "n_heads": 8}),
    **LATENT,
    **MOE,
    **GEMMAS,
    **SSM,
}


def tokens(n_vocab: int) -> npt.NDArray[np.int64]:
    """The ids (N_TOKENS,) that every variant is fed: a fixed walk through the vocabulary."""
    return (np.arange(N_TOKENS, dtype=np.int64) ** 2 * 7 + 3) % n_vocab


def fingerprint(arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """CRC of a model's weights: gold belongs to these, and NumPy may change its random streams one day."""
    crc = 0
    for name in sorted(arrays):
        crc = zlib.crc32(np.ascontiguousarray(arrays[name]).tobytes(), crc)
    return crc
