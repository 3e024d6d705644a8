"""Tiny vocabularies for tiny models: SPM with byte fall-back, and byte-level BPE, with merges and control tokens."""

from __future__ import annotations

from collections.abc import Sequence

import gguf

CONTROL_SPM = ("<unk>", "<s>", "</s>")
PIECES = ("▁t", "he", "▁the", "▁a", "in", "er", "▁w", "on", "re", "▁s", "ll", "▁hello", "▁he", "llo", "or", "ld", "▁wor", "▁world")
CONTROL_BPE = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("t h", "Ġ th", "h e", "i n", "e r", "l l", "ll o", "he llo", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "Ġth e")


def spm_vocabulary() -> tuple[list[str], list[float], list[gguf.TokenType]]:
    """Tokens, scores and types: controls, 256 bytes, characters, merged pieces."""
    characters = ["▁", *map(chr, range(ord("!"), ord("~") + 1))]
    tokens = [*CONTROL_SPM, *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES, *characters]
    types = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL] + [gguf.TokenType.BYTE] * 256
    types += [gguf.TokenType.NORMAL] * (len(tokens) - len(types))
    scores = [0.0] * (len(CONTROL_SPM) + 256) + [-float(rank) for rank in range(len(PIECES) + len(characters))]
    return tokens, scores, types


def byte_characters() -> list[str]:
    """GPT-2's printable stand-ins for the bytes 0..255."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def bpe_vocabulary() -> tuple[list[str], list[gguf.TokenType]]:
    """Tokens and types: 256 bytes, merged pieces, controls."""
    tokens = [*byte_characters(), *(merge.replace(" ", "") for merge in MERGES), *CONTROL_BPE]
    types = [gguf.TokenType.NORMAL] * (len(tokens) - len(CONTROL_BPE)) + [gguf.TokenType.CONTROL] * len(CONTROL_BPE)
    return tokens, types


def vocabulary_size(kind: str) -> int:
    """Tokens of a tiny vocabulary, "spm" or "bpe"."""
    return len(spm_vocabulary()[0]) if kind == "spm" else len(bpe_vocabulary()[0])


def add_tokenizer(writer: gguf.GGUFWriter, kind: str | None, controls: Sequence[str] = ()) -> None:
    """Write the tokenizer's keys; None says that the model takes ids only."""
    if kind is None:
        writer.add_tokenizer_model("none")
    elif kind == "spm":
        tokens, scores, types = spm_vocabulary()
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores(scores)
        writer.add_token_types(types)
        writer.add_unk_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_add_bos_token(True)
    elif kind == "bpe":
        tokens, types = bpe_vocabulary()
        end = tokens.index("<|endoftext|>")
        tokens, types = [*tokens, *controls], types + [gguf.TokenType.CONTROL] * len(controls)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(tokens)
        writer.add_token_types(types)
        writer.add_token_merges(MERGES)
        writer.add_bos_token_id(end)
        writer.add_eos_token_id(end)
        writer.add_add_bos_token(False)
    else:
        raise NotImplementedError(f"no tiny tokenizer {kind}")
