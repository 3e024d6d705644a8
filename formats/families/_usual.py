"""What transformers 5.23.0 takes where a configuration says nothing; written by scripts/hf_defaults.py."""
from __future__ import annotations

USUAL: dict[str, dict[str, object]] = {
    "afmoe": {
        "global_attn_every_n_layers": 4, "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144,
        "max_position_embeddings": 16384, "moe_intermediate_size": 1408, "mup_enabled": False, "num_attention_heads": 16,
        "num_dense_layers": 1, "num_experts": 64, "num_experts_per_tok": 6, "num_hidden_layers": 32, "num_shared_experts": 2,
        "rms_norm_eps": 1e-05, "route_scale": 1.0, "sliding_window": 1024},
    "apertus": {
        "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 65536, "num_attention_heads": 32,
        "num_hidden_layers": 32, "rms_norm_eps": 1e-05, "rope_theta": 12000000.0},
    "arcee": {
        "hidden_size": 2560, "intermediate_size": 18432, "max_position_embeddings": 4096, "num_attention_heads": 32,
        "num_hidden_layers": 32, "rms_norm_eps": 1e-05},
    "bamba": {
        "hidden_size": 4096, "intermediate_size": 14336, "mamba_d_conv": 4, "mamba_d_head": "auto", "mamba_d_state": 256,
        "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128, "max_position_embeddings": 262144,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05},
    "bert": {
        "hidden_size": 768, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
        "num_attention_heads": 12, "num_hidden_layers": 12},
    "bitnet": {
        "hidden_size": 2560, "intermediate_size": 6912, "max_position_embeddings": 2048, "num_attention_heads": 20,
        "num_hidden_layers": 30, "num_key_value_heads": 5, "rms_norm_eps": 1e-05, "rope_theta": 500000.0},
    "bloom": {
        "apply_residual_connection_post_layernorm": False, "hidden_size": 64, "layer_norm_epsilon": 1e-05, "n_head": 8,
        "n_layer": 2},
    "camembert": {
        "hidden_size": 768, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
        "num_attention_heads": 12, "num_hidden_layers": 12},
    "cohere": {
        "hidden_size": 8192, "intermediate_size": 22528, "layer_norm_eps": 1e-05, "logit_scale": 0.0625,
        "max_position_embeddings": 8192, "num_attention_heads": 64, "num_hidden_layers": 40, "rope_theta": 500000.0,
        "use_qk_norm": False},
    "cohere2": {
        "hidden_size": 8192, "intermediate_size": 22528, "layer_norm_eps": 1e-05, "logit_scale": 0.0625,
        "max_position_embeddings": 8192, "num_attention_heads": 64, "num_hidden_layers": 40, "sliding_window": 4096},
    "cohere2_moe": {
        "expert_selection_fn": "softmax", "head_dim": 128, "hidden_size": 8192, "intermediate_size": 22528,
        "layer_norm_eps": 1e-05, "logit_scale": 0.0625, "max_position_embeddings": 8192, "norm_topk_prob": True,
        "num_attention_heads": 64, "num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 40, "num_shared_experts": 0,
        "prefix_dense_sliding_window_pattern": 1, "rope_theta": 10000.0, "shared_expert_combination_strategy": "average",
        "sliding_window": 4096, "sliding_window_pattern": 4},
    "deepseek_v2": {
        "first_k_dense_replace": 0, "hidden_size": 4096, "intermediate_size": 11008, "kv_lora_rank": 512,
        "max_position_embeddings": 2048, "moe_intermediate_size": 1407, "n_routed_experts": 64, "n_shared_experts": 2,
        "norm_topk_prob": False, "num_attention_heads": 32, "num_hidden_layers": 32, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "routed_scaling_factor": 1.0, "topk_method": "greedy", "v_head_dim": 128},
    "deepseek_v3": {
        "first_k_dense_replace": 3, "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
        "max_position_embeddings": 4096, "moe_intermediate_size": 2048, "n_group": 8, "n_routed_experts": 256,
        "n_shared_experts": 1, "norm_topk_prob": True, "num_attention_heads": 128, "num_experts_per_tok": 8,
        "num_hidden_layers": 61, "num_key_value_heads": 128, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "rms_norm_eps": 1e-06, "rope_interleave": True, "routed_scaling_factor": 2.5, "topk_group": 4, "v_head_dim": 128},
    "dots1": {
        "first_k_dense_replace": 0, "hidden_size": 4608, "intermediate_size": 10944, "max_position_embeddings": 2048,
        "max_window_layers": 62, "moe_intermediate_size": 1408, "n_group": 1, "norm_topk_prob": False, "num_attention_heads": 32,
        "num_hidden_layers": 62, "num_key_value_heads": 32, "rms_norm_eps": 1e-06, "routed_scaling_factor": 1.0,
        "sliding_window": 4096, "topk_group": 1},
    "ernie4_5": {
        "head_dim": 128, "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 131072,
        "num_attention_heads": 16, "num_hidden_layers": 18, "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
        "rope_theta": 500000.0},
    "ernie4_5_moe": {
        "hidden_size": 2560, "intermediate_size": 12288, "max_position_embeddings": 131072, "moe_intermediate_size": 1536,
        "moe_k": 6, "moe_layer_end_index": -1, "moe_layer_interval": 1, "moe_layer_start_index": 1, "moe_num_experts": 64,
        "moe_num_shared_experts": 2, "num_attention_heads": 20, "num_hidden_layers": 28, "num_key_value_heads": 4,
        "rms_norm_eps": 1e-05, "rope_theta": 500000.0},
    "eurobert": {
        "classifier_pooling": "late", "hidden_size": 768, "intermediate_size": 3072, "max_position_embeddings": 8192,
        "num_attention_heads": 12, "num_hidden_layers": 12, "rms_norm_eps": 1e-05},
    "exaone4": {
        "hidden_size": 4096, "intermediate_size": 16384, "max_position_embeddings": 2048, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-05, "sliding_window": 4096,
        "sliding_window_pattern": 4},
    "exaone_moe": {
        "first_k_dense_replace": 1, "hidden_size": 4096, "intermediate_size": 16384, "max_position_embeddings": 2048,
        "moe_intermediate_size": 1024, "n_group": 1, "norm_topk_prob": True, "num_attention_heads": 32, "num_experts": 64,
        "num_experts_per_tok": 8, "num_hidden_layers": 32, "num_key_value_heads": 32, "num_shared_experts": 1,
        "rms_norm_eps": 1e-05, "routed_scaling_factor": 2.5, "sliding_window": 4096, "sliding_window_pattern": 4, "topk_group": 1},
    "falcon": {
        "alibi": False, "hidden_size": 4544, "layer_norm_epsilon": 1e-05, "max_position_embeddings": 2048, "multi_query": True,
        "new_decoder_architecture": False, "num_attention_heads": 71, "num_hidden_layers": 32, "parallel_attn": True},
    "falcon_h1": {
        "attention_in_multiplier": 1.0, "attention_out_multiplier": 1.0, "embedding_multiplier": 1.0, "hidden_size": 4096,
        "intermediate_size": 14336, "key_multiplier": 1.0, "lm_head_multiplier": 1.0, "mamba_d_conv": 4, "mamba_d_head": "auto",
        "mamba_d_ssm": 1024, "mamba_d_state": 256, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128,
        "mamba_norm_before_gate": True, "mamba_rms_norm": False, "max_position_embeddings": 8192, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "ssm_in_multiplier": 1.0,
        "ssm_out_multiplier": 1.0},
    "falcon_mamba": {
        "conv_kernel": 4, "expand": 2, "hidden_size": 768, "layer_norm_epsilon": 1e-05, "mixer_rms_eps": 1e-06,
        "num_hidden_layers": 32, "state_size": 16, "time_step_rank": "auto"},
    "gemma": {
        "head_dim": 256, "hidden_size": 3072, "intermediate_size": 24576, "max_position_embeddings": 8192,
        "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 16, "rms_norm_eps": 1e-06},
    "gemma2": {
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_size": 2304,
        "intermediate_size": 9216, "max_position_embeddings": 8192, "num_attention_heads": 8, "num_hidden_layers": 26,
        "num_key_value_heads": 4, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "sliding_window": 4096},
    "gemma3": {
        "head_dim": 256, "hidden_size": 2304, "intermediate_size": 9216, "max_position_embeddings": 131072,
        "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0, "rope_theta": 1000000.0, "sliding_window": 4096,
        "use_bidirectional_attention": False},
    "gemma3_text": {
        "head_dim": 256, "hidden_size": 2304, "intermediate_size": 9216, "max_position_embeddings": 131072,
        "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0, "rope_theta": 1000000.0, "sliding_window": 4096,
        "use_bidirectional_attention": False},
    "gemma3n": {
        "altup_correct_scale": True, "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_size": 2048,
        "hidden_size_per_layer_input": 256, "intermediate_size": 16384, "max_position_embeddings": 32768,
        "num_attention_heads": 8, "num_hidden_layers": 35, "num_key_value_heads": 2, "num_kv_shared_layers": 15,
        "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0, "rope_theta": 1000000.0, "sliding_window": 512},
    "gemma3n_text": {
        "altup_correct_scale": True, "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_size": 2048,
        "hidden_size_per_layer_input": 256, "intermediate_size": 16384, "max_position_embeddings": 32768,
        "num_attention_heads": 8, "num_hidden_layers": 35, "num_key_value_heads": 2, "num_kv_shared_layers": 15,
        "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0, "rope_theta": 1000000.0, "sliding_window": 512},
    "gemma4": {
        "attention_k_eq_v": False, "enable_moe_block": False, "head_dim": 256, "hidden_size": 2304,
        "hidden_size_per_layer_input": 256, "intermediate_size": 9216, "max_position_embeddings": 131072,
        "num_attention_heads": 8, "num_hidden_layers": 30, "num_key_value_heads": 4, "num_kv_shared_layers": 0,
        "rms_norm_eps": 1e-06, "sliding_window": 512, "use_double_wide_mlp": False},
    "gemma4_text": {
        "attention_k_eq_v": False, "enable_moe_block": False, "head_dim": 256, "hidden_size": 2304,
        "hidden_size_per_layer_input": 256, "intermediate_size": 9216, "max_position_embeddings": 131072,
        "num_attention_heads": 8, "num_hidden_layers": 30, "num_key_value_heads": 4, "num_kv_shared_layers": 0,
        "rms_norm_eps": 1e-06, "sliding_window": 512, "use_double_wide_mlp": False},
    "glm": {
        "head_dim": 128, "hidden_size": 4096, "intermediate_size": 13696, "max_position_embeddings": 131072,
        "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 2, "rms_norm_eps": 1.5625e-07},
    "glm4": {
        "head_dim": 128, "hidden_size": 4096, "intermediate_size": 13696, "max_position_embeddings": 131072,
        "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 2, "rms_norm_eps": 1.5625e-07},
    "glm4_moe": {
        "first_k_dense_replace": 1, "hidden_size": 4096, "intermediate_size": 10944, "max_position_embeddings": 131072,
        "moe_intermediate_size": 1408, "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": True,
        "num_attention_heads": 96, "num_experts_per_tok": 8, "num_hidden_layers": 46, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-05, "routed_scaling_factor": 1.0, "topk_group": 1, "use_qk_norm": False},
    "glm4_moe_lite": {
        "hidden_size": 2048, "intermediate_size": 10240, "kv_lora_rank": 512, "max_position_embeddings": 202752,
        "moe_intermediate_size": 1536, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 1, "norm_topk_prob": True,
        "num_attention_heads": 20, "num_experts_per_tok": 4, "num_hidden_layers": 47, "num_key_value_heads": 20,
        "q_lora_rank": 768, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-05, "rope_interleave": True,
        "routed_scaling_factor": 1.8, "topk_group": 1, "v_head_dim": 256},
    "gpt2": {
        "layer_norm_epsilon": 1e-05, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
        "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True},
    "gpt_bigcode": {
        "layer_norm_epsilon": 1e-05, "multi_query": True, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
        "scale_attn_weights": True},
    "gpt_neox": {
        "hidden_size": 6144, "intermediate_size": 24576, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
        "num_attention_heads": 64, "num_hidden_layers": 44, "use_parallel_residual": True},
    "gpt_oss": {
        "head_dim": 64, "hidden_size": 2880, "intermediate_size": 2880, "max_position_embeddings": 131072,
        "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 36, "num_key_value_heads": 8,
        "num_local_experts": 128, "rms_norm_eps": 1e-05, "rope_theta": 150000.0, "sliding_window": 128, "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0},
    "granite": {
        "attention_multiplier": 1.0, "embedding_multiplier": 1.0, "hidden_size": 4096, "intermediate_size": 11008,
        "logits_scaling": 1.0, "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 32,
        "residual_multiplier": 1.0, "rms_norm_eps": 1e-06},
    "granite_swa": {
        "attention_multiplier": 1.0, "embedding_multiplier": 1.0, "hidden_size": 2560, "intermediate_size": 8192,
        "logits_scaling": 1.0, "max_position_embeddings": 8192, "num_attention_heads": 20, "num_hidden_layers": 24,
        "num_key_value_heads": 4, "residual_multiplier": 1.0, "rms_norm_eps": 1e-05, "sliding_window": 128},
    "granitemoe": {
        "attention_multiplier": 1.0, "embedding_multiplier": 1.0, "hidden_size": 4096, "intermediate_size": 11008,
        "logits_scaling": 1.0, "max_position_embeddings": 2048, "num_attention_heads": 32, "num_experts_per_tok": 2,
        "num_hidden_layers": 32, "num_local_experts": 8, "residual_multiplier": 1.0, "rms_norm_eps": 1e-06},
    "granitemoe_swa": {
        "attention_multiplier": 1.0, "embedding_multiplier": 1.0, "hidden_size": 4096, "intermediate_size": 11008,
        "logits_scaling": 1.0, "max_position_embeddings": 2048, "num_attention_heads": 32, "num_experts_per_tok": 2,
        "num_hidden_layers": 32, "num_local_experts": 8, "residual_multiplier": 1.0, "rms_norm_eps": 1e-06,
        "shared_intermediate_size": 0, "sliding_window": 128},
    "granitemoehybrid": {
        "attention_multiplier": 1.0, "embedding_multiplier": 1.0, "hidden_size": 4096, "intermediate_size": 11008,
        "logits_scaling": 1.0, "mamba_d_conv": 4, "mamba_d_head": "auto", "mamba_d_state": 256, "mamba_expand": 2,
        "mamba_n_groups": 1, "mamba_n_heads": 128, "max_position_embeddings": 2048, "num_attention_heads": 32,
        "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_local_experts": 8, "residual_multiplier": 1.0,
        "rms_norm_eps": 1e-06, "shared_intermediate_size": 1024},
    "granitemoeshared": {
        "attention_multiplier": 1.0, "embedding_multiplier": 1.0, "hidden_size": 4096, "intermediate_size": 11008,
        "logits_scaling": 1.0, "max_position_embeddings": 2048, "num_attention_heads": 32, "num_experts_per_tok": 2,
        "num_hidden_layers": 32, "num_local_experts": 8, "residual_multiplier": 1.0, "rms_norm_eps": 1e-06,
        "shared_intermediate_size": 0},
    "hunyuan_v1_dense": {
        "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 2048, "num_attention_heads": 32,
        "num_hidden_layers": 32, "rms_norm_eps": 1e-05},
    "hunyuan_v1_moe": {
        "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 2048, "moe_topk": 1,
        "num_attention_heads": 32, "num_experts": 1, "num_hidden_layers": 32, "rms_norm_eps": 1e-05},
    "hy_v3": {
        "head_dim": 128, "hidden_size": 4096, "intermediate_size": 13312, "max_position_embeddings": 131072,
        "moe_intermediate_size": 1536, "num_attention_heads": 64, "num_experts": 192, "num_experts_per_tok": 8,
        "num_hidden_layers": 80, "num_key_value_heads": 8, "num_shared_experts": 1, "rms_norm_eps": 1e-05,
        "rope_theta": 11158840.0, "router_scaling_factor": 2.826},
    "internlm3": {
        "head_dim": 128, "hidden_size": 4096, "intermediate_size": 10240, "max_position_embeddings": 32768,
        "num_attention_heads": 32, "num_hidden_layers": 48, "num_key_value_heads": 2, "rms_norm_eps": 1e-05},
    "jais2": {
        "hidden_size": 3328, "intermediate_size": 26624, "layer_norm_eps": 1e-05, "max_position_embeddings": 8192,
        "num_attention_heads": 26, "num_hidden_layers": 32},
    "jamba": {
        "attn_layer_offset": 4, "attn_layer_period": 8, "hidden_size": 4096, "intermediate_size": 14336, "mamba_d_conv": 4,
        "mamba_d_state": 16, "mamba_dt_rank": "auto", "mamba_expand": 2, "max_position_embeddings": 262144,
        "num_attention_heads": 32, "num_experts": 16, "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06},
    "kimi_linear": {
        "hidden_size": 2304, "intermediate_size": 9216, "kv_lora_rank": 512, "linear_conv_kernel_dim": 4, "linear_head_dim": 128,
        "linear_num_heads": 32, "max_position_embeddings": 1048576, "moe_intermediate_size": 1024, "n_group": 1,
        "n_shared_experts": 1, "norm_topk_prob": True, "num_attention_heads": 32, "num_experts_per_tok": 8,
        "num_hidden_layers": 27, "num_key_value_heads": 32, "num_local_experts": 256, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "rms_norm_eps": 1e-05, "routed_scaling_factor": 2.446, "topk_group": 1, "v_head_dim": 128},
    "laguna": {
        "head_dim": 128, "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072,
        "moe_apply_router_weight_on_input": False, "moe_intermediate_size": 512, "moe_routed_scaling_factor": 1.0,
        "moe_router_logit_softcapping": 0.0, "num_attention_heads": 48, "num_experts": 256, "num_experts_per_tok": 8,
        "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "shared_expert_intermediate_size": 512,
        "sliding_window": 512},
    "lfm2": {
        "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256, "conv_L_cache": 3,
        "hidden_size": 2560, "intermediate_size": 12288, "max_position_embeddings": 128000, "norm_eps": 1e-05,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rope_theta": 1000000.0},
    "lfm2_moe": {
        "conv_L_cache": 3, "hidden_size": 2048, "intermediate_size": 7168, "max_position_embeddings": 128000,
        "moe_intermediate_size": 1792, "norm_eps": 1e-05, "norm_topk_prob": True, "num_attention_heads": 32,
        "num_dense_layers": 2, "num_experts": 32, "num_experts_per_tok": 4, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "rope_theta": 1000000.0, "routed_scaling_factor": 1.0},
    "llama": {
        "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 2048, "num_attention_heads": 32,
        "num_hidden_layers": 32, "rms_norm_eps": 1e-06},
    "llama4_text": {
        "attention_chunk_size": 8192, "attn_scale": 0.1, "attn_temperature_tuning": True, "floor_scale": 8192, "head_dim": 128,
        "hidden_size": 5120, "interleave_moe_layer_step": 1, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "max_position_embeddings": 131072, "no_rope_layer_interval": 4, "num_attention_heads": 40, "num_experts_per_tok": 1,
        "num_hidden_layers": 48, "num_key_value_heads": 8, "num_local_experts": 16, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
        "use_qk_norm": True},
    "mamba": {
        "conv_kernel": 4, "expand": 2, "hidden_size": 768, "layer_norm_epsilon": 1e-05, "num_hidden_layers": 32, "state_size": 16,
        "time_step_rank": "auto"},
    "mamba2": {
        "conv_kernel": 4, "expand": 2, "head_dim": 64, "hidden_size": 4096, "layer_norm_epsilon": 1e-05, "n_groups": 8,
        "num_heads": 128, "num_hidden_layers": 64, "state_size": 128, "time_step_rank": "auto"},
    "mellum": {
        "head_dim": 128, "hidden_size": 2304, "intermediate_size": 7168, "max_position_embeddings": 131072,
        "moe_intermediate_size": 896, "norm_topk_prob": True, "num_attention_heads": 32, "num_experts": 64,
        "num_experts_per_tok": 8, "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "sliding_window": 1024},
    "mimo_v2_flash": {
        "attention_value_scale": 0.707, "head_dim": 192, "hidden_size": 4096, "intermediate_size": 16384,
        "max_position_embeddings": 131072, "moe_intermediate_size": 2048, "n_group": 1, "n_routed_experts": 256,
        "norm_topk_prob": True, "num_attention_heads": 64, "num_experts_per_tok": 8, "num_hidden_layers": 48,
        "num_key_value_heads": 4, "rms_norm_eps": 1e-05, "routed_scaling_factor": 1.0, "sliding_window": 129, "topk_group": 1,
        "v_head_dim": 128},
    "minicpm3": {
        "dim_model_base": 256, "hidden_size": 2560, "intermediate_size": 6400, "kv_lora_rank": 256,
        "max_position_embeddings": 32768, "num_attention_heads": 40, "num_hidden_layers": 62, "num_key_value_heads": 40,
        "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "rms_norm_eps": 1e-05, "scale_depth": 1.4,
        "scale_emb": 12},
    "minimax_m2": {
        "head_dim": 128, "hidden_size": 3072, "intermediate_size": 1536, "max_position_embeddings": 196608,
        "num_attention_heads": 48, "num_experts_per_tok": 8, "num_hidden_layers": 62, "num_key_value_heads": 8,
        "num_local_experts": 256, "rms_norm_eps": 1e-06, "rope_theta": 5000000.0},
    "ministral3": {
        "head_dim": 128, "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 262144,
        "num_attention_heads": 32, "num_hidden_layers": 34, "num_key_value_heads": 8, "rms_norm_eps": 1e-05},
    "mistral": {
        "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 131072, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "sliding_window": 4096},
    "mistral4": {
        "first_k_dense_replace": 0, "hidden_size": 4096, "intermediate_size": 12288, "kv_lora_rank": 256,
        "max_position_embeddings": 1048576, "moe_intermediate_size": 2048, "n_group": 1, "n_routed_experts": 128,
        "n_shared_experts": 1, "norm_topk_prob": True, "num_attention_heads": 32, "num_experts_per_tok": 4,
        "num_hidden_layers": 36, "num_key_value_heads": 32, "q_lora_rank": 1024, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64,
        "rms_norm_eps": 1e-06, "rope_interleave": True, "routed_scaling_factor": 1.0, "topk_group": 1, "v_head_dim": 128},
    "mixtral": {
        "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 131072, "num_attention_heads": 32,
        "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
        "rms_norm_eps": 1e-05, "rope_theta": 1000000.0},
    "modernbert": {
        "classifier_pooling": "cls", "hidden_size": 768, "intermediate_size": 1152, "local_attention": 128,
        "max_position_embeddings": 8192, "norm_eps": 1e-05, "num_attention_heads": 12, "num_hidden_layers": 22,
        "rope_local_base_freq": 10000.0, "rope_theta": 160000.0},
    "mpt": {
        "d_model": 2048, "expansion_ratio": 4, "layer_norm_epsilon": 1e-05, "max_seq_len": 2048, "n_heads": 16, "n_layers": 24},
    "mt5": {
        "d_ff": 1024, "d_kv": 64, "d_model": 512, "feed_forward_proj": "gated-gelu", "layer_norm_epsilon": 1e-06, "num_heads": 6,
        "num_layers": 8, "relative_attention_max_distance": 128, "relative_attention_num_buckets": 32},
    "muse_glimmer": {
        "final_logit_softcapping": 20.0, "head_dim": 128, "hidden_size": 6656, "intermediate_size": 19968,
        "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 52, "num_key_value_heads": 2,
        "output_multiplier": 0.19611613513818404, "post_norm_eps": 1e-08, "qk_scale_factor": 3.87, "rms_norm_eps": 1e-05,
        "sliding_window": 2048},
    "muse_glimmer_text": {
        "final_logit_softcapping": 20.0, "head_dim": 128, "hidden_size": 6656, "intermediate_size": 19968,
        "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 52, "num_key_value_heads": 2,
        "output_multiplier": 0.19611613513818404, "post_norm_eps": 1e-08, "qk_scale_factor": 3.87, "rms_norm_eps": 1e-05,
        "sliding_window": 2048},
    "nemotron": {
        "hidden_size": 6144, "intermediate_size": 24576, "max_position_embeddings": 4096, "norm_eps": 1e-05,
        "num_attention_heads": 48, "num_hidden_layers": 32},
    "nemotron_h": {
        "conv_kernel": 4, "expand": 2, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 21504,
        "layer_norm_epsilon": 1e-05, "mamba_head_dim": 64, "mamba_num_heads": 128, "max_position_embeddings": 4096,
        "mlp_hidden_act": "relu2", "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688, "n_group": 1,
        "n_groups": 8, "n_routed_experts": 8, "n_shared_experts": 1, "norm_topk_prob": True, "num_attention_heads": 32,
        "num_experts_per_tok": 2, "num_key_value_heads": 8, "routed_scaling_factor": 1.0, "ssm_state_size": 128, "topk_group": 1},
    "nomic_bert": {
        "hidden_size": 768, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 2048,
        "num_attention_heads": 12, "num_hidden_layers": 12, "rope_theta": 1000.0},
    "olmo": {
        "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 2048, "num_attention_heads": 32,
        "num_hidden_layers": 32},
    "olmo2": {
        "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 2048, "num_attention_heads": 32,
        "num_hidden_layers": 32, "rms_norm_eps": 1e-05},
    "olmo3": {
        "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 2048, "num_attention_heads": 32,
        "num_hidden_layers": 32, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "sliding_window": 4096},
    "olmoe": {
        "hidden_size": 2048, "intermediate_size": 2048, "max_position_embeddings": 4096, "norm_topk_prob": False,
        "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16, "rms_norm_eps": 1e-05},
    "phi": {
        "hidden_size": 2048, "intermediate_size": 8192, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
        "num_attention_heads": 32, "num_hidden_layers": 24, "qk_layernorm": False},
    "phi3": {
        "hidden_size": 3072, "intermediate_size": 8192, "max_position_embeddings": 4096, "num_attention_heads": 32,
        "num_hidden_layers": 32, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-05},
    "phimoe": {
        "hidden_size": 4096, "intermediate_size": 6400, "max_position_embeddings": 131072, "num_attention_heads": 32,
        "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 16,
        "rms_norm_eps": 1e-05, "rope_theta": 1000000.0},
    "qwen2": {
        "hidden_size": 4096, "intermediate_size": 22016, "max_position_embeddings": 32768, "max_window_layers": 28,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-06,
        "sliding_window": 4096, "use_sliding_window": False},
    "qwen2_5_vl": {
        "hidden_size": 8192, "intermediate_size": 29568, "max_position_embeddings": 32768, "max_window_layers": 80,
        "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0, "sliding_window": 4096, "use_sliding_window": False},
    "qwen2_5_vl_text": {
        "hidden_size": 8192, "intermediate_size": 29568, "max_position_embeddings": 32768, "max_window_layers": 80,
        "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0, "sliding_window": 4096, "use_sliding_window": False},
    "qwen2_moe": {
        "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 32768, "max_window_layers": 28,
        "moe_intermediate_size": 1408, "norm_topk_prob": False, "num_attention_heads": 16, "num_experts": 60,
        "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16, "rms_norm_eps": 1e-06,
        "shared_expert_intermediate_size": 5632, "sliding_window": 4096, "use_sliding_window": False},
    "qwen2_vl": {
        "hidden_size": 8192, "intermediate_size": 29568, "max_position_embeddings": 32768, "max_window_layers": 80,
        "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0, "sliding_window": 4096, "use_sliding_window": False},
    "qwen2_vl_text": {
        "hidden_size": 8192, "intermediate_size": 29568, "max_position_embeddings": 32768, "max_window_layers": 80,
        "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0, "sliding_window": 4096, "use_sliding_window": False},
    "qwen3": {
        "head_dim": 128, "hidden_size": 4096, "intermediate_size": 22016, "max_position_embeddings": 32768,
        "max_window_layers": 28, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
        "rms_norm_eps": 1e-06, "sliding_window": 4096, "use_sliding_window": False},
    "qwen3_5": {
        "head_dim": 256, "hidden_size": 4096, "intermediate_size": 12288, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 32768,
        "num_attention_heads": 16, "num_hidden_layers": 32, "num_key_value_heads": 4, "rms_norm_eps": 1e-06},
    "qwen3_5_moe": {
        "head_dim": 256, "hidden_size": 2048, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 32768,
        "moe_intermediate_size": 512, "num_attention_heads": 16, "num_experts": 256, "num_experts_per_tok": 8,
        "num_hidden_layers": 40, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "shared_expert_intermediate_size": 512},
    "qwen3_5_moe_text": {
        "head_dim": 256, "hidden_size": 2048, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 32768,
        "moe_intermediate_size": 512, "num_attention_heads": 16, "num_experts": 256, "num_experts_per_tok": 8,
        "num_hidden_layers": 40, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "shared_expert_intermediate_size": 512},
    "qwen3_5_text": {
        "head_dim": 256, "hidden_size": 4096, "intermediate_size": 12288, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 32768,
        "num_attention_heads": 16, "num_hidden_layers": 32, "num_key_value_heads": 4, "rms_norm_eps": 1e-06},
    "qwen3_moe": {
        "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 32768, "moe_intermediate_size": 768,
        "norm_topk_prob": False, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 24,
        "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "sliding_window": 4096, "use_sliding_window": False},
    "qwen3_next": {
        "head_dim": 256, "hidden_size": 2048, "intermediate_size": 5632, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 32768,
        "moe_intermediate_size": 512, "norm_topk_prob": True, "num_attention_heads": 16, "num_experts": 512,
        "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "shared_expert_intermediate_size": 512},
    "qwen3_vl": {
        "head_dim": 128, "hidden_size": 4096, "intermediate_size": 22016, "max_position_embeddings": 128000,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-06,
        "rope_theta": 500000.0},
    "qwen3_vl_moe": {
        "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 128000, "moe_intermediate_size": 1408,
        "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "num_hidden_layers": 24,
        "num_key_value_heads": 16, "rms_norm_eps": 1e-06, "rope_theta": 500000.0},
    "qwen3_vl_moe_text": {
        "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 128000, "moe_intermediate_size": 1408,
        "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "num_hidden_layers": 24,
        "num_key_value_heads": 16, "rms_norm_eps": 1e-06, "rope_theta": 500000.0},
    "qwen3_vl_text": {
        "head_dim": 128, "hidden_size": 4096, "intermediate_size": 22016, "max_position_embeddings": 128000,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-06,
        "rope_theta": 500000.0},
    "roberta": {
        "hidden_size": 768, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
        "num_attention_heads": 12, "num_hidden_layers": 12},
    "seed_oss": {
        "head_dim": 128, "hidden_size": 4096, "intermediate_size": 27648, "max_position_embeddings": 524288,
        "num_attention_heads": 80, "num_hidden_layers": 64, "num_key_value_heads": 8, "rms_norm_eps": 1e-06},
    "smollm3": {
        "hidden_size": 2048, "intermediate_size": 11008, "max_position_embeddings": 32768, "no_rope_layer_interval": 4,
        "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
        "rope_theta": 2000000.0, "use_sliding_window": False},
    "stablelm": {
        "hidden_size": 2560, "intermediate_size": 6912, "layer_norm_eps": 1e-05, "max_position_embeddings": 4096,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "qk_layernorm": False,
        "use_parallel_residual": False},
    "starcoder2": {
        "hidden_size": 3072, "intermediate_size": 12288, "max_position_embeddings": 4096, "norm_epsilon": 1e-05,
        "num_attention_heads": 24, "num_hidden_layers": 30, "num_key_value_heads": 2},
    "t5": {
        "d_ff": 2048, "d_kv": 64, "d_model": 512, "feed_forward_proj": "relu", "layer_norm_epsilon": 1e-06, "num_heads": 8,
        "num_layers": 6, "relative_attention_max_distance": 128, "relative_attention_num_buckets": 32},
    "umt5": {
        "d_ff": 1024, "d_kv": 64, "d_model": 512, "feed_forward_proj": "gated-gelu", "layer_norm_epsilon": 1e-06, "num_heads": 6,
        "num_layers": 8, "relative_attention_max_distance": 128, "relative_attention_num_buckets": 32},
    "xlm-roberta": {
        "hidden_size": 768, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
        "num_attention_heads": 12, "num_hidden_layers": 12},
}
