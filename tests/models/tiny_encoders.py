"""Tensors and keys of tiny embedding models: what `convert_hf_to_gguf` writes for encoders."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.arch import names

Array = npt.NDArray[np.float32]

ENCODERS = (
    "bert",
    "eurobert",
    "gemma-embedding",
    "jina-bert-v2",
    "jina-bert-v3",
    "llama-embed",
    "modern-bert",
    "neo-bert",
    "nomic-bert",
    "nomic-bert-moe",
    "t5encoder",
)
LLAMAS = ("eurobert", "gemma-embedding", "llama-embed")
NORMS = {  # of a block; those of the two ends
    "bert": (("attn_output_norm", "layer_output_norm"), ("token_embd_norm",)),
    "nomic-bert": (("attn_output_norm", "layer_output_norm"), ("token_embd_norm",)),
    "nomic-bert-moe": (("attn_output_norm", "layer_output_norm"), ("token_embd_norm",)),
    "jina-bert-v3": (("attn_output_norm", "layer_output_norm"), ("token_embd_norm",)),
    "llama-embed": (("attn_norm", "ffn_norm"), ("output_norm",)),
    "jina-bert-v2": (("attn_output_norm", "layer_output_norm"), ("token_embd_norm",)),
    "neo-bert": (("attn_norm", "ffn_norm"), ("enc.output_norm",)),
    "modern-bert": (("attn_norm", "ffn_norm"), ("token_embd_norm", "output_norm")),
    "eurobert": (("attn_norm", "ffn_norm"), ("output_norm",)),
    "gemma-embedding": (("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"), ("output_norm",)),
}
TYPED = ("bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3")


def writers() -> list[str]:
    """The architectures whose models write text."""
    return [name for name in names() if name not in ENCODERS]


def t5_keys(s: Any) -> dict[str, Any]:
    """As the converter writes them: neither what is seen nor a pooling."""
    return {
        "block_count": s.n_layers,
        "context_length": s.context,
        "embedding_length": s.n_embd,
        "feed_forward_length": s.n_ff,
        "attention.head_count": s.n_heads,
        "attention.key_length": s.head_dim,
        "attention.value_length": s.head_dim,
        "attention.layer_norm_epsilon": s.eps,
        "attention.layer_norm_rms_epsilon": s.eps,
        "attention.relative_buckets_count": 32,
        "pooling_type": 1,
    }


def t5_tensors(s: Any, rng: np.random.Generator) -> dict[str, Array]:
    """A gated feed-forward as of version 1.1; only the first layer has biases by distance."""

    def matrix(rows: int, columns: int) -> Array:
        return rng.standard_normal((rows, columns)).astype(np.float32) * np.float32(0.7 / columns**0.5)

    n, inner = s.n_embd, s.n_heads * s.head_dim
    sizes = {
        "attn_q": (inner, n),
        "attn_k": (inner, n),
        "attn_v": (inner, n),
        "attn_o": (n, inner),
        "ffn_gate": (s.n_ff, n),
        "ffn_up": (s.n_ff, n),
        "ffn_down": (n, s.n_ff),
    }
    norms = ["enc.output_norm", *(f"enc.blk.{layer}.{name}" for layer in range(s.n_layers) for name in ("attn_norm", "ffn_norm"))]
    return {
        "token_embd.weight": 2 * matrix(s.n_vocab, n),
        "enc.blk.0.attn_rel_b.weight": 20 * matrix(32, s.n_heads),
        **{f"enc.blk.{layer}.{name}.weight": matrix(*size) for layer in range(s.n_layers) for name, size in sizes.items()},
        **{f"{name}.weight": (1.0 + 0.2 * rng.standard_normal(n)).astype(np.float32) for name in norms},
    }


def encoder_keys(arch: str, s: Any) -> dict[str, Any]:  # Any: tiny_models.Shape, which imports this file
    if arch == "t5encoder":
        return {f"{arch}.{key}": value for key, value in t5_keys(s).items()} | {"general.name": f"tiny {arch}"}
    rms = arch in (*LLAMAS, "neo-bert")
    keys: dict[str, Any] = {
        "block_count": s.n_layers,
        "context_length": s.context,
        "embedding_length": s.n_embd,
        "feed_forward_length": s.n_ff,
        "attention.head_count": s.n_heads,
        f"attention.layer_norm_{'rms_' if rms else ''}epsilon": s.eps,
        "pooling_type": 1,
    }
    if arch not in ("gemma-embedding", "llama-embed"):
        keys["attention.causal"] = False
    if arch in LLAMAS:
        keys |= {"attention.head_count_kv": s.n_kv_heads, "attention.key_length": s.head_dim, "attention.value_length": s.head_dim}
    if arch in ("gemma-embedding", "modern-bert"):
        keys["attention.sliding_window"] = s.window or 8
    if arch not in ("bert", "jina-bert-v2"):
        keys["rope.freq_base"] = s.rope_base
    if arch == "nomic-bert-moe":
        keys |= {"moe_every_n_layers": 2, "expert_count": 4, "expert_used_count": 2}
    return {f"{arch}.{key}": value for key, value in keys.items()} | {"general.name": f"tiny {arch}"}


def encoder_tensors(arch: str, s: Any, rng: np.random.Generator) -> dict[str, Array]:
    if arch == "t5encoder":
        return t5_tensors(s, rng)

    def matrix(rows: int, columns: int) -> Array:
        return rng.standard_normal((rows, columns)).astype(np.float32) * np.float32(1.5 / columns**0.5)

    def vector(n: int, mean: float) -> Array:
        return (mean + 0.2 * rng.standard_normal(n)).astype(np.float32)

    biased = arch in TYPED
    grouped = arch in LLAMAS
    n_q = s.n_heads * s.head_dim if grouped else s.n_embd
    n_kv = s.n_kv_heads * s.head_dim if grouped else s.n_embd
    matrices = {"attn_q": (n_q, s.n_embd), "attn_k": (n_kv, s.n_embd), "attn_v": (n_kv, s.n_embd)}
    if arch in ("jina-bert-v3", "nomic-bert", "nomic-bert-moe", "modern-bert", "neo-bert"):
        matrices = {"attn_qkv": (n_q + 2 * n_kv, s.n_embd)}
    matrices |= {
        "attn_output": (s.n_embd, n_q),
        "ffn_up": ((2 if arch in ("modern-bert", "neo-bert") else 1) * s.n_ff, s.n_embd),
        "ffn_down": (s.n_embd, s.n_ff),
    }
    if arch not in ("bert", "jina-bert-v3", "modern-bert", "neo-bert", "nomic-bert-moe"):
        matrices["ffn_gate"] = (s.n_ff, s.n_embd)
    with_bias = {
        "bert": tuple(matrices),
        "nomic-bert-moe": tuple(matrices),
        "jina-bert-v3": tuple(matrices),
        "jina-bert-v2": ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_down"),
    }.get(arch, ())
    of_block, of_ends = NORMS[arch]
    found = {"token_embd.weight": matrix(s.n_vocab, s.n_embd)}
    if biased:
        found["token_types.weight"] = matrix(2, s.n_embd)
    if arch == "bert":
        found["position_embd.weight"] = 0.3 * matrix(s.context, s.n_embd)
    norms = dict.fromkeys(of_ends, s.n_embd)
    for layer in range(s.n_layers):
        block = f"blk.{layer}"
        routed = arch == "nomic-bert-moe" and layer % 2 == 1
        own = {name: size for name, size in matrices.items() if not (routed and name.startswith("ffn"))}
        found |= {f"{block}.{name}.weight": matrix(*size) for name, size in own.items()}
        found |= {f"{block}.{name}.bias": vector(own[name][0], 0.0) for name in with_bias if name in own}
        if routed:
            found[f"{block}.ffn_gate_inp.weight"] = matrix(4, s.n_embd)
            found |= {
                f"{block}.ffn_{part}_exps.weight": np.stack([matrix(*matrices[f"ffn_{part}"]) for _ in range(4)])
                for part in ("up", "down")
            }
        norms |= {f"{block}.{name}": s.n_embd for name in of_block if (arch, layer, name) != ("modern-bert", 0, "attn_norm")}
        if arch == "gemma-embedding":
            norms |= {f"{block}.attn_q_norm": s.head_dim, f"{block}.attn_k_norm": s.head_dim}
    found |= {f"{name}.weight": vector(n, 1.0) for name, n in norms.items()}
    if biased:
        found |= {f"{name}.bias": vector(n, 0.0) for name, n in norms.items()}
    return found
