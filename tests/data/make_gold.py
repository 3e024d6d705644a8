"""Makes tests/data/gold/*.npz: the variants' logits by transformers' own definitions, most in float32 (run by hand).

    PYTHONPATH=tests/helpers:tests/models:. python tests/data/make_gold.py [VARIANT ...]     (needs torch, transformers, gguf)

Each variant becomes a checkpoint, by the rules of `edgellm convert` followed backwards (hf_state.py), which transformers loads.
Made with transformers 5.23 and torch 2.13 on a CPU.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import gguf
import gold_by_name
import numpy as np
import rwkv6_definition
import rwkv7_definition
import torch
import transformers
from hf_state import read_shapes, write_state
from tiny_models import Shape
from variant import PEER
from variants import GOLD, ROWS, VARIANTS, Variant, fingerprint, tokens

XIELU = {"alpha_p": 0.7, "alpha_n": 0.4, "beta": 0.5, "eps": -1e-6}  # as tiny_families writes them into metadata
DOUBLE = {"gemma3n"}  # AltUp takes differences of large numbers: in float32 torch alone is 8e-6 of the largest logit off


def hf_config(variant: Variant, shape: Shape) -> Any:
    """The config class of the family, filled from the shape and the variant."""
    if variant.arch == "gpt2":
        return transformers.GPT2Config(
            vocab_size=shape.n_vocab,
            n_positions=shape.context,
            n_embd=shape.n_embd,
            n_layer=shape.n_layers,
            n_head=shape.n_heads,
            n_inner=shape.n_ff,
            layer_norm_epsilon=shape.eps,
            tie_word_embeddings=shape.tied,
            bos_token_id=1,
            eos_token_id=2,
        )
    if variant.arch == "mpt":
        return transformers.MptConfig(vocab_size=shape.n_vocab, **dict(variant.config))
    seeing = ("gemma3", "gemma3n", "gemma4", "llama4", "qwen35", "qwen35moe", *gold_by_name.WITHOUT_HEAD)
    text = "TextConfig" if variant.arch in seeing and variant.arch != "chameleon" else "Config"
    common = {
        "vocab_size": shape.n_vocab,
        "hidden_size": shape.n_embd,
        "intermediate_size": shape.n_ff,
        "num_hidden_layers": shape.n_layers,
        "num_attention_heads": shape.n_heads,
        "rms_norm_eps": shape.eps,
        "num_key_value_heads": shape.n_kv_heads,
        "max_position_embeddings": shape.context,
        "head_dim": shape.head_dim,
        "tie_word_embeddings": shape.tied,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_base},
    }
    if variant.arch == "gemma3":
        common |= {"query_pre_attn_scalar": shape.head_dim, "use_bidirectional_attention": False}
    if variant.arch == "falcon":
        del common["head_dim"]
    if variant.family == "Dots1":  # its defaults are not numbers
        common |= {"layer_types": ["full_attention"] * shape.n_layers, "sliding_window": None}
    return getattr(transformers, variant.family + text)(**common | dict(variant.config))


def gold(variant: Variant, path: Path) -> dict[str, Any]:
    """Logits of one variant's file."""
    shape = Shape(**variant.sizes)
    if "rwkv" in variant.arch:
        return rwkv_gold(variant, path, shape)
    arrays = {tensor.name: tensor.data for tensor in gguf.GGUFReader(variant.write(path)).tensors}
    if variant.arch in gold_by_name.BY_NAME:
        found = gold_by_name.logits(variant.arch, variant.family, hf_config(variant, shape), arrays, tokens(shape.n_vocab))
        return {"logits": found[list(ROWS)], "fingerprint": fingerprint(arrays)}
    kind = getattr(transformers, variant.family + ("LMHeadModel" if variant.arch == "gpt2" else "ForCausalLM"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        kind(hf_config(variant, shape)).save_pretrained(folder)
        computed = {name: values for name, values in arrays.items() if not name.startswith(variant.drafts)}
        write_state(folder, read_shapes(folder / "model.safetensors"), computed)
        model, info = kind.from_pretrained(folder, dtype=torch.get_default_dtype(), output_loading_info=True)
    assert not any(info.values()), info
    model.eval().set_attn_implementation("eager")
    with torch.no_grad():
        for name, parameter in [*model.named_parameters(), *model.named_buffers()]:
            if ".act_fn." in name:
                parameter.fill_(XIELU[name.rpartition(".")[2]])
        logits = model(torch.from_numpy(tokens(shape.n_vocab))[None]).logits[0].numpy()
    return {"logits": logits[list(ROWS)].astype(np.float32), "fingerprint": fingerprint(arrays)}


def double_gold(variant: Variant, path: Path) -> dict[str, Any]:
    """The same in float64, also where transformers turns to float32 for precision."""
    torch.set_default_dtype(torch.float64)
    try:
        with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
            return gold(variant, path)
    finally:
        torch.set_default_dtype(torch.float32)


def rwkv_gold(variant: Variant, path: Path, shape: Shape) -> dict[str, Any]:
    """By the definitions in its papers."""
    arrays = {tensor.name: tensor.data for tensor in gguf.GGUFReader(variant.write(path)).tensors}
    head, ids = variant.metadata.get("{arch}.wkv.head_size", 16), tokens(shape.n_vocab)
    match variant.arch:
        case "rwkv6":
            logits = rwkv6_definition.logits(arrays, ids, head, shape.eps, variant.metadata.get("{arch}.rescale_every_n_layers", 2))
        case "rwkv6qwen2":
            logits = rwkv6_definition.transformed_logits(arrays, ids, head, shape.eps)
        case "arwkv7":
            logits = rwkv7_definition.transformed_logits(arrays, ids, head, shape.eps)
        case _:
            logits = rwkv7_definition.logits(arrays, ids, head, shape.eps)
    return {"logits": logits[list(ROWS)].astype(np.float32), "fingerprint": fingerprint(arrays)}


if __name__ == "__main__":
    GOLD.mkdir(exist_ok=True)
    wanted = sys.argv[1:] or [name for name, variant in VARIANTS.items() if variant.family != PEER]  # see make_peer_gold.py
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            make = double_gold if name in DOUBLE else gold
            np.savez_compressed(GOLD / f"{name}.npz", **make(VARIANTS[name], Path(folder) / f"{name}.gguf"))
            print(name)
