"""Gemma 3: four norms a layer, all stored less 1; of models that see images, the language model."""

from __future__ import annotations

from collections.abc import Callable

from edgellm.checkpoints.families._family import INNER, Family
from edgellm.checkpoints.families._pieces import Config, Metadata

PARTS = INNER | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}

LAYERS_27B = 62  # the one size whose query scale is not 1/sqrt(head_dim)


def other_scale(layers_27b: int) -> Callable[[Config], str]:
    """Refuses what GGUF has no key for, the scale of queries: it follows from the size. `layers_27b`: of the size with its own."""

    def refuses(config: Config) -> str:
        heads, width = config.get("num_attention_heads"), config.get("hidden_size")
        usual = config.get("head_dim")
        if config.get("num_hidden_layers") == layers_27b and isinstance(heads, int) and isinstance(width, int) and heads:
            usual = width // heads
        return "" if config.get("query_pre_attn_scalar") in (None, usual) else "query_pre_attn_scalar"

    return refuses


refuses = other_scale(LAYERS_27B)


def uncapped(config: Config) -> Metadata:
    """The limit of scores does nothing in its definition, though configurations may have one, as Gemma 2's do."""
    return {"attn_logit_softcapping": None}


# What transformers takes where a text part says nothing, as those of 4B to 27B do.
USUAL = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "sliding_window": 4096,
    "query_pre_attn_scalar": 256,
}

FAMILIES = (
    Family(
        "gemma3",
        ("gemma3_text", "gemma3"),
        PARTS,
        activations=("gelu_pytorch_tanh",),
        norms_from_zero=True,
        slides=True,
        refuses=refuses,
        defaults=USUAL,
        keys=uncapped,
        instead=lambda config: "gemma3_text, embedding" if config.get("use_bidirectional_attention") else "",
    ),
)
