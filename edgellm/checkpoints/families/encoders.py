"""Models that embed or score texts: BERT and RoBERTa, Jina's, Nomic's, ModernBERT, EuroBERT, T5's encoders, EmbeddingGemma."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgellm.checkpoints.families._family import INNER, OUTER, Family
from edgellm.checkpoints.families._pieces import GATE_AND_UP, Config, Metadata, Rows, Shape, Slice, copied
from edgellm.checkpoints.families.gemma3 import PARTS, uncapped
from edgellm.checkpoints.families.gemma3 import refuses as other_scale

RANK = 4  # pooling_type
BERT = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
BERT_ENDS = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
BERT_RANKING = {"pooler.dense": "cls", "classifier": "cls.output"}
ROBERTA_RANKING = {"classifier.dense": "cls", "classifier.out_proj": "cls.output"}
OF_MASKS = r".*\.position_ids|.*\.token_type_ids|cls\..*|lm_head\..*"  # counters, and heads that fill in masks
POOLER = r"|(?:\w+\.)?pooler\..*"
JINA = BERT | {
    "mlp.up_gated_layer": "ffn_up",
    "mlp.gated_layers": "ffn_gate_up",
    "mlp.down_layer": "ffn_down",
    "mlp.wo": "ffn_down",
    "layer_norm_1": "attn_norm_2",
    "layer_norm_2": "layer_output_norm",
    "mlp.layernorm": "layer_output_norm",
    "attention.self.layer_norm_q": "attn_q_norm",
    "attention.self.layer_norm_k": "attn_k_norm",
}
NOMIC = {
    "attn.Wqkv": "attn_qkv",
    "attn.out_proj": "attn_output",
    "norm1": "attn_output_norm",
    "norm2": "layer_output_norm",
    "mlp.fc11": "ffn_up",
    "mlp.fc12": "ffn_gate",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
    "mlp.router.layer": "ffn_gate_inp",
}
NOMIC_ENDS = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "emb_ln": "token_embd_norm",
}
NOMIC_READS = {
    "num_hidden_layers": ("n_layer", "num_hidden_layers"),
    "hidden_size": ("n_embd", "hidden_size"),
    "num_attention_heads": ("n_head", "num_attention_heads"),
    "intermediate_size": ("n_inner", "intermediate_size"),
    "max_position_embeddings": ("max_trained_positions", "n_positions", "max_position_embeddings"),
    "layer_norm_epsilon": ("layer_norm_epsilon", "layer_norm_eps"),
    "rms_norm_eps": (),
    "rope_theta": ("rotary_emb_base", "rope_theta"),
}
MODERN = {
    "attn_norm": "attn_norm",
    "mlp_norm": "ffn_norm",
    "attn.Wqkv": "attn_qkv",
    "attn.Wo": "attn_output",
    "mlp.Wi": "ffn_up",
    "mlp.Wo": "ffn_down",
}
MODERN_ENDS = {"embeddings.tok_embeddings": "token_embd", "embeddings.norm": "token_embd_norm", "final_norm": "output_norm"}
MODERN_RANKING = {"head.dense": "cls", "head.norm": "cls.norm", "classifier": "cls.output"}
MODERN_READS = {
    "layer_norm_epsilon": ("norm_eps",),
    "rms_norm_eps": (),
    "rope_theta": ("global_rope_theta",),
    "rope_local_base_freq": ("local_rope_theta",),
}
NO_BIASES = {"attention_bias": (False,), "mlp_bias": (False,), "norm_bias": (False,)}
T5 = {
    f"layer.0.SelfAttention.{theirs}": f"attn_{ours}"
    for theirs, ours in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "o"), ("relative_attention_bias", "rel_b"))
} | {
    "layer.0.layer_norm": "attn_norm",
    "layer.1.layer_norm": "ffn_norm",
    "layer.1.DenseReluDense.wi_0": "ffn_gate",
    "layer.1.DenseReluDense.wi_1": "ffn_up",
    "layer.1.DenseReluDense.wi": "ffn_up",
    "layer.1.DenseReluDense.wo": "ffn_down",
}
EPSILON: dict[str, tuple[str, ...]] = {"layer_norm_epsilon": ("layer_norm_eps",), "rms_norm_eps": ()}
ABSOLUTE = {"position_embedding_type": ("absolute",)}


def ranks(config: Config) -> bool:
    """True if a model has a head that scores texts."""
    return any("ForSequenceClassification" in name for name in config.get("architectures") or [])


def seeing(config: Config) -> Metadata:
    """Both ways, and the labels of a head."""
    found = {"attention.causal": False, "pooling_type": RANK if ranks(config) else None}
    return found | (label_keys(config) if ranks(config) else {})


def label_keys(config: Config) -> Metadata:
    """The names of a head's labels."""
    labels = config.get("id2label") or {}
    return {"classifier.output_labels": [str(labels[key]) for key in sorted(labels, key=int)]} if labels else {}


def roberta(config: Config) -> Metadata:
    """The first rows of the table of positions belong to padding."""
    return seeing(config) | {"context_length": config["max_position_embeddings"] - first_position(config)}


def first_position(config: Config) -> int:
    return int(config["pad_token_id"]) + 1


def positions(config: Config, shape: Shape) -> Rows:
    return np.arange(first_position(config), shape[0])


nomic_experts = copied(
    {"moe_every_n_layers": "moe_every_n_layers", "expert_count": "num_experts", "expert_used_count": "moe_top_k"}
)


def nomic(config: Config) -> Metadata:
    experts = nomic_experts(config)
    return (
        seeing(config)
        | (experts if config.get("num_experts") else {})
        | {"feed_forward_length": config.get("intermediate_size") or 4 * config["hidden_size"], "attention.head_count_kv": None}
    )


def by_expert(config: Config, shape: Shape) -> Shape:
    return (config["num_experts"], shape[0] // config["num_experts"], shape[1])


def modern(config: Config) -> Metadata:
    """Every n-th layer sees everything, the others slide."""
    every = config.get("global_attn_every_n_layers", 3)
    kinds = config.get("layer_types") or []
    if kinds and [kind == "full_attention" for kind in kinds] != [layer % every == 0 for layer in range(len(kinds))]:
        raise ValueError("layer_types are not every n-th")
    return seeing(config) | {
        "attention.sliding_window": config.get("local_attention"),
        "attention.sliding_window_pattern": every,
        "attention.head_count_kv": None,
    }


T5_KEYS = {
    "attention.relative_buckets_count": "relative_attention_num_buckets",
    "attention.head_count_kv": None,
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}


RANKING = Family(
    "bert",
    ("bert, ranking",),
    BERT,
    BERT_ENDS | BERT_RANKING,
    activations=("gelu",),
    reads=EPSILON,
    keys=seeing,
    only=ABSOLUTE,
    skipped=OF_MASKS,
)
MODERN_BERT_RANKING = Family(
    "modern-bert",
    ("modernbert, ranking",),
    MODERN,
    MODERN_ENDS | MODERN_RANKING,
    activations=("gelu",),
    keys=modern,
    reads=MODERN_READS,
    only=NO_BIASES | {"classifier_pooling": ("mean",)},
)

FAMILIES = (
    replace(
        RANKING,
        model_types=("bert",),
        outer=BERT_ENDS,
        skipped=OF_MASKS + POOLER,
        instead=lambda config: (
            "bert, jina" if config.get("position_embedding_type") == "alibi" else "bert, ranking" if ranks(config) else ""
        ),
    ),
    RANKING,
    replace(
        RANKING,
        model_types=("roberta", "xlm-roberta", "camembert"),
        outer=BERT_ENDS | ROBERTA_RANKING,
        keys=roberta,
        skipped=OF_MASKS + POOLER,
        pieces={"position_embd": (Slice(rows=positions),)},
        defaults={"pad_token_id": 1},
    ),
    Family(
        "jina-bert-v2",
        ("bert, jina",),
        JINA,
        BERT_ENDS | BERT_RANKING,
        activations=("gelu",),
        reads=EPSILON,
        keys=seeing,
        pieces={"ffn_gate_up": GATE_AND_UP},
        skipped=OF_MASKS + POOLER,
    ),
    Family(
        "nomic-bert",
        ("nomic_bert",),
        NOMIC,
        NOMIC_ENDS,
        activations=("silu", "swiglu"),
        reads=NOMIC_READS,
        keys=nomic,
        only={
            "prenorm": (False,),
            "rotary_emb_fraction": (1.0, 1),
            "rotary_emb_interleaved": (False,),
            "activation_function": ("swiglu",),
            "qkv_proj_bias": (False,),
            "mlp_fc1_bias": (False,),
        },
        skipped=OF_MASKS + POOLER,
        instead=lambda config: "nomic_bert, experts" if config.get("num_experts") else "",
    ),
    Family(
        "nomic-bert-moe",
        ("nomic_bert, experts",),
        NOMIC,
        NOMIC_ENDS,
        activations=("gelu",),
        reads=NOMIC_READS,
        keys=nomic,
        only={"prenorm": (False,), "rotary_emb_fraction": (1.0, 1), "rotary_emb_interleaved": (False,)},
        bare={"mlp.experts.mlp.w1": "ffn_up_exps.weight", "mlp.experts.mlp.w2": "ffn_down_exps.weight"},
        pieces={"ffn_up_exps": (Slice(shape=by_expert),), "ffn_down_exps": (Slice(shape=by_expert, turned=True),)},
        skipped=OF_MASKS + POOLER + r"|.*\.mlp\.experts\.bias",
    ),
    replace(
        MODERN_BERT_RANKING,
        model_types=("modernbert",),
        outer=MODERN_ENDS,
        only=NO_BIASES,
        skipped=OF_MASKS + r"|head\..*|decoder\..*",
        instead=lambda config: "modernbert, ranking" if ranks(config) else "",
    ),
    MODERN_BERT_RANKING,
    Family("eurobert", ("eurobert",), INNER, OUTER, keys=seeing, skipped=OF_MASKS),
    Family(
        "t5encoder",
        ("t5", "mt5", "umt5"),
        T5,
        {"shared": "token_embd", "final_layer_norm": "enc.output_norm"},
        blocks="enc.blk",
        activations=("relu", "gated-gelu"),
        keys=copied(T5_KEYS),
        skipped=r"decoder\..*|encoder\.embed_tokens\..*|lm_head\..*",
        reads={
            "hidden_size": ("d_model",),
            "intermediate_size": ("d_ff",),
            "num_hidden_layers": ("num_layers",),
            "num_attention_heads": ("num_heads",),
            "head_dim": ("d_kv",),
            "rms_norm_eps": ("layer_norm_epsilon",),
            "max_position_embeddings": ("n_positions",),
            "hidden_act": ("feed_forward_proj",),
            "num_key_value_heads": (),
        },
        defaults={"n_positions": 512},
        only={"relative_attention_max_distance": (128,)},
    ),
    Family(
        "gemma-embedding",
        ("gemma3_text, embedding",),
        PARTS,
        activations=("gelu_pytorch_tanh",),
        norms_from_zero=True,
        slides=True,
        refuses=other_scale,
        keys=uncapped,
    ),
)
