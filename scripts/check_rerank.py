"""Holds rerankers against transformers: tiny models of random weights, their folders and their files, score by score.

    python scripts/check_rerank.py FOLDER       (needs: pip install torch transformers tokenizers, and edgellm)

Writes a folder for each kind: BERT, XLM-RoBERTa (bge, jina 2), ModernBERT, Qwen3-Reranker and mxbai-rerank 2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import Regex, decoders, models, pre_tokenizers, processors, trainers

import edgellm
from edgellm.checkpoints.families._answering import MXBAI, QWEN3, Answers
from edgellm.tools.convert import convert

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))
from make_hf_models import QWEN2_CUTS
from story_text import story_text

MOST = 1e-4
QUERY = "Where did the little dog run?"
DOCUMENTS = (
    "The dog ran to the park.",
    "Lily has a red ball and a cat.",
    "Once upon a time there was a river that was very long, and it went to the sea.",
)
BODY: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 1024,
    "initializer_range": 0.15,
}
TEXTS = [story_text(40)]


def main() -> None:
    out = Path(sys.argv[1])
    torch.manual_seed(0)
    kinds = {
        "bert-reranker": bert,
        "bge-reranker": xlm_roberta,
        "modernbert-reranker": modern_bert,
        "qwen3-reranker": lambda: decoder(QWEN3, transformers.Qwen3Config, transformers.Qwen3ForCausalLM, head_dim=16),
        "mxbai-rerank-v2": lambda: decoder(MXBAI, transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    }
    worst = 0.0
    for name, make in kinds.items():
        model, tokenizer, scores, kind = make()
        folder = out / name
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        settings = folder / "tokenizer_config.json"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"tokenizer_class": kind, "do_lower_case": True}))
        convert(folder, out / f"{name}.gguf", type_name="F32")
        for path in (folder, out / f"{name}.gguf"):
            with edgellm.load(path) as loaded:
                difference = float(np.abs(loaded.rerank(QUERY, DOCUMENTS) - scores).max())
            print(f"{path.name:24} {difference:.1e}")
            worst = max(worst, difference)
    raise SystemExit(worst > MOST)


def wrapped(made: tokenizers.Tokenizer, **special: str) -> Any:
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special)


def encoder(model: Any, tokenizer: Any, kind: str) -> tuple[Any, Any, Any, str]:
    """A model with its scores of the pairs."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=0.15)
        logits = model.eval()(**tokenizer([QUERY] * len(DOCUMENTS), list(DOCUMENTS), padding=True, return_tensors="pt")).logits
    return model, tokenizer, torch.sigmoid(logits[:, 0]).numpy(), kind


def bert() -> tuple[Any, Any, Any, str]:
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=400, special_tokens=special))
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ends)
    tokenizer = wrapped(
        made, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip
    config = transformers.BertConfig(vocab_size=made.get_vocab_size(), num_labels=1, **BODY)
    return encoder(transformers.BertForSequenceClassification(config), tokenizer, "BertTokenizer")


def xlm_roberta() -> tuple[Any, Any, Any, str]:
    made = tokenizers.Tokenizer(models.Unigram())
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    made.train_from_iterator(TEXTS, trainers.UnigramTrainer(vocab_size=400, special_tokens=special, unk_token="<unk>"))
    ends = [("<s>", 0), ("</s>", 2)]
    made.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", ends)
    tokenizer = wrapped(made, bos_token="<s>", eos_token="</s>", unk_token="<unk>", sep_token="</s>", pad_token="<pad>")
    config = transformers.XLMRobertaConfig(
        vocab_size=made.get_vocab_size(), type_vocab_size=1, num_labels=1, pad_token_id=1, bos_token_id=0, eos_token_id=2, **BODY
    )
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    return encoder(transformers.XLMRobertaForSequenceClassification(config), tokenizer, "XLMRobertaTokenizer")


def modern_bert() -> tuple[Any, Any, Any, str]:
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, special_tokens=special))
    ends = [("[CLS]", 1), ("[SEP]", 2)]
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ends)
    tokenizer = wrapped(made, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", mask_token="[MASK]")
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    ids = {"pad_token_id": 3, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    config = transformers.ModernBertConfig(vocab_size=made.get_vocab_size(), num_labels=1, classifier_pooling="mean", **ids, **BODY)
    return encoder(transformers.ModernBertForSequenceClassification(config), tokenizer, "PreTrainedTokenizerFast")


def decoder(answers: Answers, config_kind: Any, kind: Any, **more: Any) -> tuple[Any, Any, Any, str]:
    """A causal model, whose score is the probability of the first of both answers."""
    made = tokenizers.Tokenizer(models.BPE())
    cuts = pre_tokenizers.Split(Regex(QWEN2_CUTS), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.normalizer, made.decoder = tokenizers.normalizers.NFC(), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([*TEXTS, "\n".join(answers.texts * 50)], trainer)
    made.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    made.add_tokens(["<think>", "</think>"])
    tokenizer = wrapped(made, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    config = config_kind(vocab_size=made.get_vocab_size(), num_key_value_heads=2, tie_word_embeddings=True, **BODY, **more)
    model = kind(config).eval()
    return model, tokenizer, np.array(list(answered(model, made, answers, DOCUMENTS))), "Qwen2Tokenizer"


def answered(model: Any, made: tokenizers.Tokenizer, answers: Answers, documents: Sequence[str]) -> Any:
    yes, no = map(made.token_to_id, answers.texts)
    for document in documents:
        prompt = answers.template.replace("{query}", QUERY).replace("{document}", document)
        with torch.no_grad():
            logits = model(torch.tensor([made.encode(prompt, add_special_tokens=False).ids])).logits[0, -1]
        yield torch.sigmoid(logits[yes] - logits[no]).item()


if __name__ == "__main__":
    main()
