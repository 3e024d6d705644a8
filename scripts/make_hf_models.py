"""Writes tiny models of random weights with `transformers`, and the logits that it computes: what conversion is held against.

    python scripts/make_hf_models.py FOLDER [NAME ...]           (needs: pip install torch transformers sentencepiece tokenizers)

Each model is a folder as the Hugging Face hub has it, with a tokenizer trained on the stories of tests/helpers/story_text.py, and
expected.npz: `ids` (n,) and float32 `logits` (n, n_vocab), and `text` with its `text_ids` by the model's own
tokenizer, BOS included.
`scripts/check_convert.py FOLDER/*` converts them and compares.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import tokenizers
import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))
from story_text import story_text

TEXT = "Lily's dog ran 1234 miles!  Wasn't it GREAT? naïve café 😀\n\n\tThe end, 10:45."
LLAMA3_CUTS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_CUTS = LLAMA3_CUTS.replace(r"\p{N}{1,3}", r"\p{N}")
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "vocab_size": 512,
    "initializer_range": 0.15,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0 + 0.1 * i for i in range(6)],
    "long_factor": [1.5 + 0.5 * i for i in range(6)],
    "original_max_position_embeddings": 64,
}
GEMMA_ROPE = {
    "full_attention": {"rope_type": "default", "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}

ROUTED, NARROW = {"num_experts_per_tok": 2}, {"moe_intermediate_size": 48}
GRANITE = {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2, "logits_scaling": 4.0}
ROWS = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 512, "sliding_window": 16}
LAYERS = ["sliding_attention", "full_attention"]


def models() -> dict[str, tuple[Any, str]]:
    """Model configurations by name, and the tokenizer that each gets."""
    t = transformers
    gpt2 = t.GPT2Config(n_embd=64, n_layer=3, n_head=4, n_positions=256, vocab_size=512, initializer_range=0.15)
    return {
        "llama-tied": (t.LlamaConfig(**SIZES, tie_word_embeddings=True, attention_bias=True), "spm"),
        "llama-3": (t.LlamaConfig(**SIZES, rope_parameters=LLAMA3_ROPE, head_dim=24), "llama3"),
        "mistral": (t.MistralConfig(**SIZES, sliding_window=24), "spm"),
        "qwen2": (t.Qwen2Config(**SIZES), "qwen2"),
        "qwen3": (t.Qwen3Config(**SIZES, head_dim=24), "qwen2"),
        "gemma3": (
            t.Gemma3TextConfig(
                **{**SIZES, "num_hidden_layers": 7},
                head_dim=24,
                sliding_window=16,
                query_pre_attn_scalar=24,
                rope_parameters=GEMMA_ROPE,
            ),
            "spm",
        ),
        "longrope": (
            t.Phi3Config(
                **SIZES,
                partial_rotary_factor=0.75,
                sliding_window=None,
                pad_token_id=0,
                rope_parameters=LONGROPE | {"partial_rotary_factor": 0.75},
                original_max_position_embeddings=64,
            ),
            "spm",
        ),
        "gpt2": (gpt2, "gpt2"),
        "mixtral": (t.MixtralConfig(**SIZES, **ROUTED, num_local_experts=4), "spm"),
        "qwen3moe": (t.Qwen3MoeConfig(**SIZES, **ROUTED, num_experts=4, head_dim=24, norm_topk_prob=True, **NARROW), "qwen2"),
        "qwen2moe": (t.Qwen2MoeConfig(**SIZES, **ROUTED, num_experts=4, shared_expert_intermediate_size=40, **NARROW), "qwen2"),
        "olmoe": (t.OlmoeConfig(**{**SIZES, "num_key_value_heads": 4}, **ROUTED, num_experts=4), "qwen2"),
        "granite": (t.GraniteConfig(**SIZES, **GRANITE), "qwen2"),
        "granitemoe": (t.GraniteMoeConfig(**SIZES, **ROUTED, **GRANITE, num_local_experts=4), "qwen2"),
        "gemma2": (t.Gemma2Config(**SIZES, head_dim=24, query_pre_attn_scalar=24, sliding_window=16), "spm"),
        "gemma3n": (
            t.Gemma3nTextConfig(
                **{**SIZES, "num_hidden_layers": 6},
                **ROWS,
                head_dim=24,
                num_kv_shared_layers=2,
                laurel_rank=8,
                activation_sparsity_pattern=[0.9, 0.0] * 3,
                layer_types=LAYERS * 3,
                rope_parameters=GEMMA_ROPE,
            ),
            "spm",
        ),
        "gemma4": (
            t.Gemma4TextConfig(
                **{**SIZES, "num_hidden_layers": 6},
                **ROWS,
                head_dim=16,
                global_head_dim=32,
                num_kv_shared_layers=2,
                use_double_wide_mlp=True,
                layer_types=LAYERS * 3,
            ),
            "gemma4",
        ),
        "gemma4-moe": (
            t.Gemma4TextConfig(
                **{**SIZES, "num_hidden_layers": 4},
                **NARROW,
                head_dim=16,
                global_head_dim=32,
                layer_types=LAYERS * 2,
                hidden_size_per_layer_input=0,
                attention_k_eq_v=True,
                num_global_key_value_heads=1,
                enable_moe_block=True,
                num_experts=6,
                top_k_experts=2,
            ),
            "gemma4",
        ),
    }


def main() -> None:
    for name, (config, kind) in models().items():
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        torch.manual_seed(len(name))
        model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
        with torch.no_grad():
            for parameter in model.parameters():  # norms and biases of random checkpoints are all 1 or 0
                if parameter.ndim == 1:
                    parameter += 0.2 * torch.randn_like(parameter)
        folder = Path(sys.argv[1]) / name
        model.save_pretrained(folder)
        ids = np.random.default_rng(1).integers(3, config.vocab_size, 48)
        with torch.no_grad():
            logits = model(torch.tensor(ids)[None]).logits[0].numpy()
        text_ids = write_tokenizer(folder, kind)
        np.savez(folder / "expected.npz", ids=ids.astype(np.int32), logits=logits, text=np.array(TEXT), text_ids=text_ids)
        print(f"{folder}: {config.model_type}, {sum(p.numel() for p in model.parameters())} parameters", flush=True)


def write_tokenizer(folder: Path, kind: str) -> np.ndarray[Any, Any]:
    """Train one of 512 tokens, save it, and return its ids of TEXT."""
    settings: dict[str, Any] = {"chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"}
    if kind == "spm":
        proto = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(story_text(300).split("\n")),
            model_writer=proto,
            vocab_size=512,
            model_type="bpe",
            byte_fallback=True,
            character_coverage=1.0,
            normalization_rule_name="identity",
            minloglevel=2,
            split_digits=True,
            remove_extra_whitespaces=False,
            num_threads=1,
        )
        (folder / "tokenizer.model").write_bytes(proto.getvalue())
        settings |= {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        return np.array([1, *sentencepiece.SentencePieceProcessor(model_proto=proto.getvalue()).encode(TEXT)], np.int32)
    if kind == "gemma4":
        return write_visible_spaces(folder, settings)
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=kind == "llama3"))
    level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "gpt2")
    cuts = tokenizers.Regex(LLAMA3_CUTS if kind == "llama3" else QWEN2_CUTS)
    made.pre_tokenizer = (
        level if kind == "gpt2" else tokenizers.pre_tokenizers.Sequence([tokenizers.pre_tokenizers.Split(cuts, "isolated"), level])
    )
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=508,
        special_tokens=["<|begin|>", "<|end|>"],
        show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator(story_text(300).split("\n"), trainer)
    if kind == "llama3":
        made.post_processor = tokenizers.processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])
    made.save(str(folder / "tokenizer.json"))
    settings |= {"eos_token": "<|end|>"} | ({"bos_token": "<|begin|>"} if kind == "llama3" else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return np.array(made.encode(TEXT).ids, np.int32)


def write_visible_spaces(folder: Path, settings: dict[str, Any]) -> np.ndarray[Any, Any]:
    """As of Gemma 4: merges over visible spaces and letters, and bytes for the rest."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    made.normalizer = tokenizers.normalizers.Replace(" ", "\u2581")
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.Replace("\u2581", " "), tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()]
    )
    first = ["<pad>", "<eos>", "<bos>", "<unk>", "<|channel>", "<channel|>", "<turn|>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=508,
        special_tokens=[*first, *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
        max_token_length=12,
    )
    made.train_from_iterator(story_text(300).split("\n"), trainer)
    whole = json.loads(made.to_str())
    whole["added_tokens"] = [token for token in whole["added_tokens"] if token["content"] in first]  # bytes are plain tokens
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"bos_token": "<bos>", "eos_token": "<eos>"}))
    again = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return np.array([2, *again.encode(TEXT).ids], np.int32)


if __name__ == "__main__":
    main()
