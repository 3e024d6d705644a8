"""RWKV-6, and RWKV-7 under the names of flash-linear-attention and under those of its makers."""

from __future__ import annotations

import numpy as np

from edgellm.checkpoints.families._family import Family
from edgellm.checkpoints.families._pieces import FLAT, Config, Floats, Metadata, Shape, Slice
from edgellm.checkpoints.families.mamba import CONTEXT

HEAD_EPSILON = 64e-5  # of the norm of what a head reads, which GGUF has no key for
MIXES = "rwkvag"  # rows that are mixed with those before them, in GGUF's order
RANKS = {"w": "decay", "a": "iclr", "v": "value_residual_mix", "g": "gate"}
THEIRS = {"w": "decay", "a": "a", "v": "v", "g": "gate"}  # in flash-linear-attention's settings
USUAL = {"w": 2.5, "a": 2.5, "v": 1.7, "g": 5.0}  # times the root of the width, to the next 32, where nothing is said
PLACES = ("attn", "attention", "self_attn", "attn.time_mixer")
FEEDS = ("ffn", "feed_forward")
FIRST_NORMS = ("pre_ln", "layers.0.pre_norm", "layers.0.pre_ln", "layers.0.ln0", "blocks.0.pre_ln", "blocks.0.ln0")
ENDS = dict.fromkeys(FIRST_NORMS, "token_embd_norm") | {
    "embeddings": "token_embd",
    "norm": "output_norm",
    "ln_out": "output_norm",
    "lm_head": "output",
    "head": "output",
}
VECTORS = ("k_k", "k_a", "r_k", "w0", "a0", "v0")


def names() -> dict[str, str]:
    """Of tensors with .weight or .bias: matrices and norms."""
    found = {"attn_norm": "attn_norm", "ffn_norm": "attn_norm_2", "ln1": "attn_norm", "ln2": "attn_norm_2"} | {
        f"{feed}.{part}": f"channel_mix_{part}" for feed in FEEDS for part in ("key", "value")
    }
    for place in PLACES:
        found |= {
            f"{place}.{theirs}_proj": f"time_mix_{ours}"
            for theirs, ours in zip("rkvo", ("receptance", "key", "value", "output"), strict=True)
        }
        found |= {f"{place}.{part}": f"time_mix_{part}" for part in ("receptance", "key", "value", "output")}
        found |= {f"{place}.g_norm": "time_mix_ln", f"{place}.ln_x": "time_mix_ln"}
        found |= {
            f"{place}.{part}_lora.lora.{number}": f"time_mix_{part}{index}" for part in RANKS for number, index in ((0, 1), (2, 2))
        }
    return found


def bare() -> dict[str, str]:
    """Of tensors without a suffix, and of a bias that is a tensor of its own."""
    found = {f"{feed}.x_k": "channel_mix_lerp_k.weight" for feed in FEEDS}
    for place in PLACES:
        found |= {f"{place}.{part}": f"time_mix_{part}.weight" for part in VECTORS}
        found |= {f"{place}.{part}{index}": f"turned_{part}{index}.weight" for part in RANKS for index in (1, 2)}
        found |= {f"{place}.{part}_lora.lora.2.bias": f"time_mix_{part}0.weight" for part in "wav"}
        found[f"{place}.x_x"] = "time_mix_lerp_fused.weight"
    return found


def side_by_side(config: Config, shape: Shape) -> Shape:
    return (shape[0], 1, 1, shape[-1])


def rank(config: Config, part: str) -> int:
    """Of the two matrices behind `part`."""
    named = config.get(f"{THEIRS[part]}_low_rank_dim") or config.get(f"lora_rank_{RANKS[part]}")
    factor = 1.0 if part == "g" else head(config) / 64
    usual = max(32, round(USUAL[part] * config["hidden_size"] ** 0.5 * factor / 32) * 32)
    if (found := int(named or usual)) > max(config["hidden_size"], usual):
        raise ValueError(f"a rank of {found} for rows of {config['hidden_size']}")
    return found


def head(config: Config) -> int:
    size = config.get("head_dim") or config.get("head_size")
    return int(size or config["hidden_size"] // config["num_heads"])


def rwkv7(config: Config) -> Metadata:
    width = config["hidden_size"]
    inner = config.get("intermediate_size") or -(-int(width * (config.get("hidden_ratio") or 4)) // 32) * 32
    return {f"attention.{name}_lora_rank": rank(config, part) for part, name in RANKS.items()} | {
        "context_length": CONTEXT,
        "feed_forward_length": inner,
        "wkv.head_size": head(config),
        "attention.head_count": 0,
        "attention.head_count_kv": None,
        "attention.key_length": None,
        "attention.value_length": None,
    }


def first_values(config: Config) -> dict[str, Floats]:
    """The first layer's values are mixed with none before them; llama.cpp wants these tensors all the same, whatever they hold."""
    width, short = config["hidden_size"], rank(config, "a")
    shapes = {"v0": (width,), "v1": (short, width), "v2": (width, short)}
    return {f"blk.0.time_mix_{name}.weight": np.ones(shape, np.float32) for name, shape in shapes.items()}


def other_graph(config: Config) -> str:
    """Attention among the layers, wider values, or another norm of heads."""
    width = config["hidden_size"]
    if config.get("attn"):
        return "attn"
    wide = config.get("value_dim")
    if any(value != width for value in (wide if isinstance(wide, list) else [wide or width])):
        return "value_dim"
    eps = config.get("norm_eps")
    return "norm_eps" if eps is not None and abs(eps * head(config) / HEAD_EPSILON - 1.0) > 1e-3 else ""


MIXED = {f"{place}.x_{part}": ("time_mix_lerp_fused.weight", i) for place in PLACES for i, part in enumerate(MIXES)}
PIECES = (
    {"time_mix_lerp_fused": (Slice(shape=side_by_side),), "channel_mix_lerp_k": FLAT}
    | {f"time_mix_{part}": FLAT for part in (*VECTORS, "ln")}
    | {f"turned_{part}{i}": (Slice(f"time_mix_{part}{i}", turned=True),) for part in RANKS for i in (1, 2)}
)

MIXES_6 = "wkvrg"
OUTER_6 = {"embeddings": "token_embd", "blocks.0.pre_ln": "token_embd_norm", "ln_out": "output_norm", "head": "output"}
INNER_6 = (
    {"ln1": "attn_norm", "ln2": "attn_norm_2", "attention.ln_x": "time_mix_ln"}
    | {f"attention.{part}": f"time_mix_{part}" for part in ("receptance", "key", "value", "gate", "output")}
    | {f"feed_forward.{part}": f"channel_mix_{part}" for part in ("receptance", "key", "value")}
)
BARE_6 = (
    {
        "attention.time_faaaa": "time_mix_first.weight",
        "attention.time_maa_x": "time_mix_lerp_x.weight",
        "attention.time_maa_w1": "time_mix_w1.weight",
        "attention.time_maa_w2": "time_mix_w2.weight",
    }
    | {f"attention.time_{part}": f"time_mix_{part}.weight" for part in ("decay", "decay_w1", "decay_w2")}
    | {f"feed_forward.time_maa_{part}": f"channel_mix_lerp_{part}.weight" for part in "kr"}
)
TURNED_6 = ("time_mix_w1", "time_mix_w2", "time_mix_decay_w1", "time_mix_decay_w2")
PIECES_6 = (
    {"time_mix_lerp_fused": (Slice(shape=side_by_side),)}
    | dict.fromkeys(TURNED_6, (Slice(turned=True),))
    | dict.fromkeys(("time_mix_decay", "time_mix_lerp_x", "channel_mix_lerp_k", "channel_mix_lerp_r"), FLAT)
)


def rwkv6(config: Config) -> Metadata:
    """Nothing is halved between layers, which only f16 needs; the ranks of short rows follow from the width."""
    width = config["hidden_size"]
    return {
        "context_length": CONTEXT,
        "feed_forward_length": config.get("intermediate_size") or int(width * 3.5) // 32 * 32,
        "wkv.head_size": config["head_size"],
        "rescale_every_n_layers": 0,
        "token_shift_count": 2,
        "time_mix_extra_dim": 64 if width == 4096 else 32,
        "time_decay_extra_dim": 128 if width == 4096 else 64,
        "attention.head_count": 0,
        "attention.head_count_kv": None,
        "attention.key_length": None,
        "attention.value_length": None,
    }


def other_widths(config: Config) -> str:
    """Time mixes that are not as wide as rows, or another norm of heads."""
    if config.get("attention_hidden_size") not in (None, config["hidden_size"]):
        return "attention_hidden_size"
    eps = (config.get("layer_norm_epsilon") or 1e-5) * (config.get("head_size_divisor") or 8) ** 2
    return "head_size_divisor" if abs(eps / HEAD_EPSILON - 1.0) > 1e-3 else ""


FAMILIES = (
    Family(
        "rwkv6",
        ("rwkv6",),
        INNER_6,
        OUTER_6,
        bare=BARE_6,
        pieces=PIECES_6,
        keys=rwkv6,
        refuses=other_widths,
        parts={f"attention.time_maa_{part}": ("time_mix_lerp_fused.weight", i) for i, part in enumerate(MIXES_6)},
        reads={"rms_norm_eps": (), "num_key_value_heads": ()},
    ),
    Family(
        "rwkv7",
        ("rwkv7",),
        names(),
        ENDS,
        bare=bare(),
        parts=MIXED,
        pieces=PIECES,
        activations=("sqrelu",),
        keys=rwkv7,
        made=first_values,
        refuses=other_graph,
        only={"wkv_has_gate": (True,)},
        reads={"layer_norm_epsilon": ("norm_eps", "layer_norm_epsilon"), "rms_norm_eps": (), "num_key_value_heads": ()},
    ),
)
