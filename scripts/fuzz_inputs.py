"""Folders of checkpoints, catalogues and settings for scripts/fuzz.py, and injuries to them."""

from __future__ import annotations

import contextlib
import copy
import json
import random
import struct
from typing import Any

from tiny_models import CONFIG, GPT2_CONFIG

NASTY: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3,
    7,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63,
    10**400,
    0.5,
    -0.5,
    1e308,
    -1e308,
    1e-320,
    "",
    "\0",
    " ",
    "\ud800",
    "\u202e",
    "x" * 100_000,
    "1",
    "nan",
    "../../x",
    "<0x00>",
    "{{ 1 / 0 }}",
    "{% for %}",
    [],
    {},
    [[]],
    [None],
    {"": {}},
    ["a", None],
    [["th", None]],
    [1, "x"],
    [1e308] * 8,
    list(range(96)),
)


SPLIT = ("q_proj", "k_proj", "v_proj", "mlp.gate_proj", "mlp.up_proj")  # what phi3 keeps together


DEEP = "lists in lists"


BASE = {
    "model_type": "llama",
    **CONFIG,
    **GPT2_CONFIG,
    "partial_rotary_factor": 1.0,
    "sliding_window": 8,
    "sliding_window_pattern": 6,
    "rope_local_base_freq": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": [2],
    "tie_word_embeddings": False,
    "quantization": {"group_size": 32, "bits": 4},
    "text_config": {},
    "layer_types": ["full_attention", "sliding_attention"],
    "original_max_position_embeddings": 64,
    "attn_logit_softcapping": 30.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "type": "llama3",
        "original_max_position_embeddings": 64,
        "long_factor": [1.0] * 8,
        "short_factor": [1.0] * 8,
    },
}


KINDS = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gpt2", "gemma3", "gemma3_text")


SCALINGS = ("default", "llama3", "linear", "yarn", "longrope", "su")


CATALOGUE = (
    '''schema = 1
folders = ["/nonexistent"]
[[model]]
name = "mine"
repository = "o/r"
architecture = "llama"
parameters = "1B"
active = "0.5B"
context = 4096
kind = "chat"
tags = ["a"]
licence = "mit"
memory_gb = 1.5
default = "Q8_0"
sampling = { temperature = 0.5, top_k = 3 }
[[model.file]]
type = "Q8_0"
path = "m.gguf"
size = 4
sha256 = "'''
    + "a" * 64
    + """"
[[model.file]]
type = "Q4_0"
parts = [{ path = "p-00001-of-00002.gguf", size = 1 }, { path = "p-00002-of-00002.gguf", size = 1 }]
"""
)


TOML_VALUES = (
    "1",
    "-1",
    "true",
    '""',
    '"\\u0000"',
    '"\\u001b[2J"',
    "[]",
    "{}",
    "[[]]",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "9" * 30,
    "1979-05-27",
    "[1]",
    '["\\u0000"]',
    '["~nobody/x"]',
    "[{}]",
    "{ a = 1 }",
    "[" * 20_000,
    "{a=" * 5000,
    '"' + "x" * 9999 + '"',
    "1" + "_0" * 3000,
    '"../x.gguf"',
    "0x" + "f" * 9000,
)


def injured(value: Any, source: random.Random) -> Any:
    """A JSON value with one to three wrong places: replaced, dropped, repeated, or taken from elsewhere."""
    value = copy.deepcopy(value)
    for _ in range(source.randint(1, 3)):
        places = list(_places(value))
        holder, key = source.choice(places)
        kind = source.random()
        if kind < 0.7:
            holder[key] = copy.deepcopy(source.choice(NASTY))
        elif kind < 0.85:
            other, name = source.choice(places)
            with contextlib.suppress(KeyError, IndexError, TypeError):
                holder[key] = copy.deepcopy(other[name])
        elif kind < 0.95:
            del holder[key]
        else:
            holder[key] = DEEP
    return value


def written(value: Any) -> bytes:
    """A value as JSON; DEEP becomes lists in lists that Python could not write itself."""
    return json.dumps(value).replace(f'"{DEEP}"', "[" * 3000 + "]" * 3000).encode()


def _places(value: Any) -> Any:
    """Every (container, key) of a value: a few of long lists, and not into what an injury nested deeply."""
    waiting, found = [value], []
    while waiting and len(found) < 500:
        holder = waiting.pop()
        for place in list(holder) if isinstance(holder, dict) else list(range(len(holder)))[:40]:
            found.append((holder, place))
            if isinstance(holder[place], dict | list) and holder[place]:
                waiting.append(holder[place])
    return found or [({"": 0}, "")]


def safetensors(tensors: dict[str, tuple[int, ...]], source: random.Random, header: Any = None) -> bytes:
    """A file of zeros in F16."""
    entries, at = {}, 0
    for name, shape in tensors.items():
        size = 2
        for length in shape:
            size *= length
        entries[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = written(injured(entries, source) if header else entries)
    return struct.pack("<Q", len(text)) + text + bytes(at)


def tensors_of(kind: str) -> dict[str, tuple[int, ...]]:
    shapes = {"model.embed_tokens.weight": (96, 64), "model.norm.weight": (64,), "lm_head.weight": (96, 64)}
    layer = {
        "input_layernorm": (64,),
        "post_attention_layernorm": (64,),
        "self_attn.q_proj": (64, 64),
        "self_attn.k_proj": (32, 64),
        "self_attn.v_proj": (32, 64),
        "self_attn.o_proj": (64, 64),
        "mlp.gate_proj": (96, 64),
        "mlp.up_proj": (96, 64),
        "mlp.down_proj": (64, 96),
    }
    if kind == "phi3":
        layer |= {"self_attn.qkv_proj": (128, 64), "mlp.gate_up_proj": (192, 64)}
        layer = {name: shape for name, shape in layer.items() if not name.endswith(SPLIT) or "qkv" in name}
    if kind.startswith("gemma"):
        layer |= {"pre_feedforward_layernorm": (64,), "post_feedforward_layernorm": (64,)}
    if kind == "qwen3" or kind.startswith("gemma"):
        layer |= {"self_attn.q_norm": (16,), "self_attn.k_norm": (16,)}
    for index in range(2):
        shapes |= {f"model.layers.{index}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


def tokenizer_json() -> dict[str, Any]:
    texts = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{i:02X}>" for i in range(20)),
        *"abcdefghijklmnopqrstuvwxyz \u0120\u2581",
        "th",
        "the",
        "he",
    ]
    return {
        "model": {
            "type": "BPE",
            "vocab": {text: i for i, text in enumerate(texts)},
            "merges": ["t h", ["th", "e"]],
            "byte_fallback": False,
        },
        "added_tokens": [{"id": 1, "content": "<s>", "special": True}],
        "normalizer": {"type": "Prepend"},
        "pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first"},
    }
