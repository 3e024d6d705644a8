"""config.json, checked as it is read; it remembers which settings were asked for, so that the others can be named."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Set
from typing import Any  # of parsed JSON

from edgellm.errors import BadHParam, shown
from edgellm.hparams import MAX_LAYERS, MAX_WIDTH

IDENTITY = r"architectures|model_type|auto_map|_.*|name|transformers_version|(?:torch_)?dtype|quantization(?:_config)?|custom_\w+"
TOKENS = r".*token_(?:id|ids|index)|(?:org_)?vocab_size|vocab_size_per_layer_input|tokenizer_class|prefix|.*label.*"
SENSES = (
    r"(?:text|vision|visual|audio)_\w+|image_\w+|video_\w+|mm_tokens_per_image|.*soft_tokens_per_image|vit_\w+|anyres_\w+"
    r"|projector_\w+"
)
TRAINING = (
    r".*dropout.*|.*_pdrop|initiali[sz]er_\w+|init_\w+|.*aux_loss.*|.*z_loss.*|\w+_jitter_noise|rescale_\w+|seq_aux"
    r"|ep_size|.*_xavier_init|.*_init_scale|pretraining_tp|time_step_(?:floor|init_scheme|max|min|scale)|use_l2warp|problem_type"
    r"|mup_denominator|altup_coef_clip|gradient_\w+|moe_drop_tokens|finetuning_task|task_specific_params"
)
RUNNING = (
    r"use_cache|cache_implementation|output_\w+|return_dict|attn_implementation|attn_mode|fuse_\w+|masked_softmax_fusion"
    r"|slow_but_exact|reorder_and_upcast_attn|deterministic_flash_attn|residual_in_fp32|use_(?:mamba_kernels|mambapy)"
    r"|use_associative_scan|(?:mamba_)?chunk_size|mamba_ssm_cache_dtype|num_logits_to_keep|router_dtype|use_flash_attn\w*"
    r"|moe_shared_expert_overlap|chunk_size_feed_forward|is_decoder|is_encoder_decoder|add_cross_attention|summary_\w+"
)
# Tensors have these biases, norms and widths or have them not, and one too many or of another shape is refused.
TENSORS = (
    r"(?:\w+_)?bias|\w*qk_?(?:layer)?norm|mamba_rms_norm|(?:mamba_)?expand|d_inner|d_model|n_layer|qk_head_dim|hidden_ratio"
    r"|type_vocab_size|laurel_rank|moe_shared_expert_intermediate_size|mamba_d_ssm|tie_word_embeddings|n_shared_experts"
)
DRAFTS = r"num_nextn_predict_layers|(?:use_)?mtp\w*|num_mtp_\w+"
HARMLESS = re.compile("|".join((IDENTITY, TOKENS, SENSES, TRAINING, RUNNING, TENSORS, DRAFTS)))
"""Settings that change nothing in any family: what is computed follows from tensors, or is the same whatever they say."""

WINDOWS = {"sliding_window", "max_window_layers", "layer_types", "use_sliding_window", "decoder_sparse_step", "mlp_only_layers"}
NEXT = WINDOWS - {"sliding_window"}
HUNYUAN = {
    "add_classification_head",
    "attention_head_dim",
    "cla_share_factor",
    "class_num",
    "dense_list",
    "mask_init_id",
    "norm_type",
    "pad_id",
    "pool_type",
    "skip_cls_token",
    "use_rotary_pos_emb",
    "num_media_embeds",
}
FACTORS = {f"{part}_multiplier" for part in ("attention_in", "attention_out", "ssm_in", "ssm_out", "embedding", "lm_head")}
BY_ARCHITECTURE: dict[str, Set[str]] = {
    **dict.fromkeys(("qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "smollm3"), WINDOWS),
    **dict.fromkeys(("hunyuan-dense", "hunyuan-moe"), HUNYUAN),
    **dict.fromkeys(("qwen3next", "qwen35", "qwen35moe"), NEXT),
    "dots1": WINDOWS | {"scoring_func"},
    "phi3": {"original_max_position_embeddings"},
    "phimoe": {"original_max_position_embeddings"},
    "smollm3": WINDOWS | {"no_rope_layer_interval"},
    "falcon-h1": {"mamba_norm_before_gate", "key_multiplier", "ssm_multipliers", "mlp_multipliers", *FACTORS},
    "afmoe": {"global_attn_every_n_layers", "topk_group"},
    "bloom": {"offset_alibi"},
    "bailingmoe": {"norm_softmax"},
    "bailingmoe2": {"norm_softmax", "use_rmsnorm"},
    "cohere2": {"use_embedding_sharing", "use_parallel_embedding"},
    "ernie4_5-moe": {"moe_norm_min", "moe_capacity", "moe_gate"},
    "gpt2": {"n_ctx"},
    "deepseek2": {"mlp_layer_types"},
    "falcon": {"multi_query", "num_ln_in_parallel_attn"},
    "eurobert": {"classifier_pooling"},
    "exaone4": {"sliding_window_pattern"},
    "exaone-moe": {"sliding_window_pattern", "is_moe_layer"},
    "gemma2": {"sliding_window_size"},
    "gemma3": {"use_bidirectional_attention"},
    "gemma-embedding": {"use_bidirectional_attention"},
    "gpt-oss": {"experts_per_token", "initial_context_length"},
    "granitehybrid": {"attn_rotary_emb"},
    "kimi-linear": {"use_grouped_topk", "topk_group", "qk_head_dim"},
    "llama4": {"for_llm_compressor"},
    "muse-glimmer": {"out_hidden_size"},
    "hy_v3": {"enable_moe_fp32_combine", "mlp_layer_types"},
    "laguna": {"gating", "gating_types"},
    "jamba": {"expert_layer_offset", "expert_layer_period"},
    "mamba": {"rms_norm"},
    "lfm2": {"block_ffn_dim_multiplier", "block_multiple_of", "block_dim", "block_use_swiglu", "conv_dim", "conv_dim_out"},
    "mamba2": {"norm_before_gate"},
    "minimax-m2": {
        "attn_type_list",
        "layernorm_full_attention_beta",
        "layernorm_linear_attention_beta",
        "layernorm_mlp_beta",
        "max_model_len",
        "mlp_intermediate_size",
        "postnorm",
        "shared_intermediate_size",
        "shared_moe_mode",
        "sliding_window",
    },
    "modern-bert": {
        "classifier_activation",
        "classifier_pooling",
        "sparse_prediction",
        "sparse_pred_ignore_index",
        "layer_norm_eps",
        "position_embedding_type",
    },
    "mpt": {"embedding_fraction", "learned_pos_emb", "norm_type"},
    "rwkv7": {"norm_first", "num_heads"},
    "rwkv6": {"context_length", "model_version"},
    "mimo2": {"attention_chunk_size", "hybrid_block_size", "mlp_layer_types", "moe_layer_freq", "n_shared_experts"},
    "starcoder": {
        "attention_softmax_in_fp32",
        "scale_attention_softmax_in_fp32",
        "inference_runner",
        "max_batch_size",
        "max_sequence_length",
        "pad_key_length",
        "pre_allocate_kv_cache",
        "validate_runner_input",
    },
    "t5encoder": {"dense_act_fn", "is_gated_act", "num_decoder_layers", "scale_decoder_outputs"},
}
"""Those that change nothing in the families of one architecture: another setting says it, or none of its graphs has it."""


TEXTS = ("model_type", "hidden_activation", "hidden_act", "activation_function")
LAYERS = re.compile(r"(?:num_|n_)(?:hidden_|nextn_predict_|kv_shared_)?layers?")
SIZES = re.compile(r"(?:\w+_)?(?:dim|size|rank|heads?)|n_embd|d_model")
MAX_DEPTH, LARGEST = 32, 3.4e38  # float32 ends there


def checked(config: Mapping[str, Any], file: str) -> Mapping[str, Any]:
    """A config.json whose values have types and sizes that settings can have. Raises BadHParam."""
    ahead = [(key, key, value, 1) for key, value in config.items()]
    while ahead:
        place, key, value, depth = ahead.pop()
        listed = value if isinstance(value, list) else []
        if isinstance(value, Mapping):
            ahead += [(place, inner, each, depth + 1) for inner, each in value.items()]
        ahead += [(place, "", each, depth + 1) for each in listed]
        wrong = (
            (type(value) is int and abs(value) >= 1 << 63)
            or (type(value) is float and LARGEST < abs(value) < math.inf)
            or (type(value) is int and value > MAX_WIDTH and SIZES.fullmatch(key))
            or depth > MAX_DEPTH
            or (key in TEXTS and not isinstance(value, str | None))
            or (
                key == "architectures" and (not isinstance(value, list | None) or any(not isinstance(each, str) for each in listed))
            )
            or (LAYERS.fullmatch(key) and value is not None and (type(value) is not int or not 0 <= value <= MAX_LAYERS))
        )
        if wrong:
            raise BadHParam(
                f"{shown(value)} isn't a possible value (model type {shown(config.get('model_type'))}); download the folder again",
                file=file,
                field=place if not key or key == place else f"{place}.{key}",
            )
    return config


class CheckpointSettings(Mapping[str, Any]):
    """config.json. `given`: the keys that the file has; what is joined to it with | was not given."""

    def __init__(self, values: Mapping[str, Any], given: frozenset[str], seen: set[str] | None = None) -> None:
        self._values, self.given, self._seen = dict(values), given, set() if seen is None else seen

    def __getitem__(self, key: str) -> Any:
        self._seen.add(key)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __or__(self, other: Mapping[str, Any]) -> CheckpointSettings:
        return CheckpointSettings({**self._values, **other}, self.given, self._seen)

    def saw(self, *keys: str) -> None:
        """Count settings as asked for: other names of one that was."""
        self._seen.update(keys)

    def unread(self, architecture: str) -> dict[str, Any]:
        """Settings that were not read and may change the model's results."""
        harmless = BY_ARCHITECTURE.get(architecture, frozenset())
        return {
            key: self._values[key]
            for key in sorted(self.given - self._seen - harmless)
            if self._values[key] is not None and not HARMLESS.fullmatch(key)
        }
