"""Folders of checkpoints with tokenizers of a few hundred tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from hf_checkpoints import write_checkpoint
from story_text import story_text


def byte_level(cuts: str | None, *, special: tuple[str, ...], rows: int, bos: str | None = None) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cuts is None)
    made.pre_tokenizer = (
        level
        if cuts is None
        else tokenizers.pre_tokenizers.Sequence([tokenizers.pre_tokenizers.Split(tokenizers.Regex(cuts), "isolated"), level])
    )
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [story_text(40)],
        tokenizers.trainers.BpeTrainer(
            vocab_size=rows, special_tokens=list(special), show_progress=False, initial_alphabet=alphabet
        ),
    )
    if bos is not None:
        made.post_processor = tokenizers.processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, 0)])
    return made


def with_vocabulary(folder: Path, kind: str, rows: int, **config: Any) -> Path:
    rng = np.random.default_rng(0)
    tables = {"model.embed_tokens.weight": rng.standard_normal((rows, 32)).astype(np.float32)}
    return write_checkpoint(
        folder, kind, tensors=tables | {"lm_head.weight": tables["model.embed_tokens.weight"]}, vocab_size=rows, **config
    )
