"""GPT-2 and its fine-tunes; PyTorch's checkpoints store its matrices as (inputs, outputs), and masks beside them. StarCoder 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # of parsed JSON

from edgellm.checkpoints.families._family import Family
from edgellm.checkpoints.families._pieces import Metadata

OUTER = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "lm_head": "output"}
PARTS = {
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}

READS = {
    "num_hidden_layers": ("n_layer",),
    "max_position_embeddings": ("n_positions",),
    "hidden_size": ("n_embd",),
    "num_attention_heads": ("n_head",),
    "intermediate_size": ("n_inner",),
    "num_key_value_heads": (),
    "head_dim": (),
}


def keys(config: Mapping[str, Any]) -> Metadata:
    """The feed-forward has four times the width where nothing is said."""
    width = config.get("hidden_size")
    return {
        "feed_forward_length": config.get("intermediate_size") or (4 * width if isinstance(width, int) else None),
        "hidden_act": config.get("hidden_act") or config.get("activation_function"),
    }


def one_key_head(config: Mapping[str, Any]) -> Metadata:
    return keys(config) | {"attention.head_count_kv": 1}


MASKS = r".*\.attn\.(?:masked_)?bias"
GELUS = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu")  # the last one has no tanh
FAMILIES = (
    Family(
        "gpt2",
        ("gpt2",),
        PARTS,
        OUTER,
        reads=READS,
        keys=keys,
        activations=GELUS,
        skipped=MASKS,
        only={"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,)},
        transposed={"attn_qkv", "attn_output", "ffn_up", "ffn_down"},
    ),
    Family(
        "starcoder",
        ("gpt_bigcode",),
        PARTS,
        OUTER,
        reads=READS,
        keys=one_key_head,
        activations=GELUS,
        skipped=MASKS,
        only={"scale_attn_weights": (True,), "multi_query": (True,)},
    ),
)
