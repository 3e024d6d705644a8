"""Makes tests/data/gold/encoder-*.npz: vectors by transformers' own definitions in float32 (run by hand).

PYTHONPATH=tests/helpers:tests/models:. python tests/data/make_encoder_gold.py  # made with transformers 5.23 and torch 2.13 (CPU)
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from encoder_variants import POOLED, SHAPE, encoder_file
from hf_state import read_shapes, write_state
from tiny_models import Shape
from variants import GOLD, fingerprint, tokens

NOMIC = {  # GGUF's name of a part -> transformers', whose model has no experts: parts of it are put in
    "attn_output_norm": "post_attention_layernorm",
    "layer_output_norm": "post_mlp_layernorm",
    "attn_output": "self_attn.o_proj",
    "token_embd": "embeddings.word_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
    "token_types": "embeddings.token_type_embeddings",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}


class NomicFeedForward(torch.nn.Module):
    """As Nomic's own code has it: gelu without gates, and of experts the two likeliest, by their probabilities."""

    def __init__(self, arrays: dict[str, np.ndarray], block: str) -> None:
        super().__init__()
        self.w = {
            name.removeprefix(block + "."): torch.tensor(values)
            for name, values in arrays.items()
            if name.startswith(f"{block}.ffn")
        }

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w, gelu = self.w, torch.nn.functional.gelu
        if "ffn_gate_inp.weight" not in w:
            return gelu(x @ w["ffn_up.weight"].T + w["ffn_up.bias"]) @ w["ffn_down.weight"].T + w["ffn_down.bias"]
        weights, chosen = torch.topk(torch.softmax(x @ w["ffn_gate_inp.weight"].T, dim=-1), 2, dim=-1)
        each = [gelu(x @ up.T) @ down.T for up, down in zip(w["ffn_up_exps.weight"], w["ffn_down_exps.weight"], strict=True)]
        picked = torch.take_along_dim(torch.stack(each, dim=-2), chosen[..., None], dim=-2)
        return (weights[..., None] * picked).sum(dim=-2)


def with_nomic_parts(model: Any, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Put in what transformers' model lacks: experts, and biases of attention. What is left of the arrays."""
    for number, layer in enumerate(model.layers):
        layer.mlp = NomicFeedForward(arrays, f"blk.{number}")
        for part in "qkvo":
            old = getattr(layer.self_attn, f"{part}_proj")
            setattr(layer.self_attn, f"{part}_proj", torch.nn.Linear(old.in_features, old.out_features))
    return {name: values for name, values in arrays.items() if ".ffn_" not in name}


def hf_model(arch: str, s: Shape) -> Any:
    common = {
        "vocab_size": s.n_vocab,
        "hidden_size": s.n_embd,
        "intermediate_size": s.n_ff,
        "num_hidden_layers": s.n_layers,
        "num_attention_heads": s.n_heads,
        "max_position_embeddings": s.context,
        "pad_token_id": 0,
    }
    grouped = {"num_key_value_heads": s.n_kv_heads, "head_dim": s.head_dim, "rms_norm_eps": s.eps}
    rope = {"rope_type": "default", "rope_theta": s.rope_base}
    slides = ["sliding_attention", "full_attention"]
    two = {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}, "full_attention": rope}
    match arch:
        case "eurobert":
            return transformers.EuroBertModel(transformers.EuroBertConfig(**common, **grouped, rope_parameters=rope))
        case "neo-bert":
            own = {"num_key_value_heads": s.n_heads, "head_dim": s.n_embd // s.n_heads, "rms_norm_eps": s.eps}
            return transformers.EuroBertModel(transformers.EuroBertConfig(**common, **own, rope_parameters=rope))
        case "llama-embed":
            return transformers.LlamaModel(transformers.LlamaConfig(**common, **grouped, rope_parameters=rope))
        case "jina-bert-v3":
            return transformers.JinaEmbeddingsV3Model(
                transformers.JinaEmbeddingsV3Config(**common, layer_norm_eps=s.eps, rope_parameters=rope, type_vocab_size=2),
                add_pooling_layer=False,
            )
        case "qwen3":
            return transformers.Qwen3Model(transformers.Qwen3Config(**common, **grouped, rope_parameters=rope))
        case "gemma-embedding":
            kinds = [slides[layer % 6 == 5] for layer in range(s.n_layers)]
            return transformers.Gemma3TextModel(
                transformers.Gemma3TextConfig(
                    **common,
                    **grouped,
                    rope_parameters=two,
                    layer_types=kinds,
                    sliding_window=s.window,
                    query_pre_attn_scalar=s.head_dim,
                    use_bidirectional_attention=True,
                )
            )
        case "modern-bert":
            kinds = [slides[layer % 3 == 0] for layer in range(s.n_layers)]
            return transformers.ModernBertModel(
                transformers.ModernBertConfig(
                    **common,
                    rope_parameters=two,
                    layer_types=kinds,
                    local_attention=s.window,
                    norm_eps=s.eps,
                    eos_token_id=2,
                    bos_token_id=1,
                    cls_token_id=1,
                    sep_token_id=2,
                )
            )
        case "t5encoder":
            return transformers.T5EncoderModel(
                transformers.T5Config(
                    vocab_size=s.n_vocab,
                    d_model=s.n_embd,
                    d_kv=s.head_dim,
                    d_ff=s.n_ff,
                    num_layers=s.n_layers,
                    num_heads=s.n_heads,
                    layer_norm_epsilon=s.eps,
                    feed_forward_proj="gated-gelu",
                    relative_attention_num_buckets=32,
                )
            )
        case "nomic-bert" | "nomic-bert-moe":
            return transformers.NomicBertModel(transformers.NomicBertConfig(**common, layer_norm_eps=s.eps, rope_parameters=rope))
        case _:
            return transformers.BertModel(transformers.BertConfig(**common, layer_norm_eps=s.eps), add_pooling_layer=False)


def nomic_state(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """One tensor of three: queries, keys and values."""
    found: dict[str, torch.Tensor] = {}
    for name, values in arrays.items():
        *block, part, kind = name.split(".")
        prefix = f"layers.{block[1]}." if block else ""
        if part == "attn_qkv":
            found |= {
                f"{prefix}self_attn.{n}_proj.{kind}": torch.from_numpy(third.copy())
                for n, third in zip("qkv", np.split(values, 3), strict=True)
            }
        elif part != "output":
            found[f"{prefix}{NOMIC[part]}.{kind}"] = torch.from_numpy(np.array(values, np.float32))
    return found


def neo_state(arrays: dict[str, np.ndarray], heads: int) -> dict[str, torch.Tensor]:
    """Of EuroBERT, whose heads have halves where these have pairs side by side."""
    names = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_output": "self_attn.o_proj",
        "ffn_down": "mlp.down_proj",
    }
    found = {"embed_tokens.weight": arrays["token_embd.weight"], "norm.weight": arrays["enc.output_norm.weight"]}
    for name, values in arrays.items():
        if not name.startswith("blk."):
            continue
        _, number, part, kind = name.split(".")
        rows = {
            "attn_qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
            "ffn_up": ["mlp.gate_proj", "mlp.up_proj"],
        }.get(part) or [names[part]]
        for theirs, piece in zip(rows, np.split(values, len(rows)), strict=True):
            if theirs.endswith(("q_proj", "k_proj")):
                piece = piece.reshape(heads, -1, 2, piece.shape[-1]).swapaxes(1, 2).reshape(piece.shape)
            found[f"layers.{number}.{theirs}.{kind}"] = piece
    return {name: torch.from_numpy(np.array(values, np.float32)) for name, values in found.items()}


def with_arrays(arch: str, shape: Shape, arrays: dict[str, np.ndarray]) -> Any:
    """The model with a file's weights."""
    model = hf_model(arch, shape).float()
    if arch == "neo-bert":
        model.load_state_dict(neo_state(arrays, shape.n_heads))
        return model.eval()
    if arch in ("jina-bert-v3", "nomic-bert-moe"):
        left = arrays if arch == "jina-bert-v3" else with_nomic_parts(model, arrays)
        missing, unexpected = model.load_state_dict(nomic_state(left), strict=False)
        assert not missing and not unexpected, (missing, unexpected)
        return model.eval()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model.save_pretrained(folder)
        write_state(folder, read_shapes(folder / "model.safetensors"), arrays)
        model, info = type(model).from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert all("pooler" in name for names in info.values() for name in names), info
    return model.eval()


def gold(name: str, path: Path) -> dict[str, Any]:
    arch, pooling = name.split("+")
    shape = Shape(**SHAPE)
    arrays = {tensor.name: tensor.data for tensor in gguf.GGUFReader(encoder_file(path, name)).tensors}
    model = with_arrays(arch, shape, arrays)
    with torch.no_grad():
        ids = torch.from_numpy(tokens(shape.n_vocab))[None]
        every = {"attention_mask": torch.zeros(1, 1, ids.shape[1], ids.shape[1])} if arch == "llama-embed" else {}
        rows = model(ids, **every).last_hidden_state[0].numpy()
    vector = {"mean": rows.mean(axis=0), "cls": rows[0], "last": rows[-1]}[pooling]
    return {"vector": vector, "fingerprint": fingerprint(arrays)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or POOLED:
            np.savez_compressed(GOLD / f"encoder-{name}.npz", **gold(name, Path(folder) / "m.gguf"))
            print(name)
