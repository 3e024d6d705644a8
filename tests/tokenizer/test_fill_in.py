"""Prompts for filling in the middle, beside the orders that the families publish."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from vocabulary_cases import bpe_metadata, spm_metadata, with_tokens

from edgellm.tokenizer.build import build_tokenizer
from edgellm.tokenizer.fill_in import FillIn, encode_fill_in, format_of
from edgellm.tokenizer.tokenizer import Tokenizer

BEFORE, AFTER = "\n\ndef add(a, b):\n    ", "\n    return c\n"
FILES = (("util.py", "x = 1\n"), ("lib/one.py", "y = 2\n"))


class Family(NamedTuple):
    """A family's control tokens, and its prompt of BEFORE and AFTER, alone and within a repository "shop" as "main.py"."""

    tokens: tuple[str, ...]
    alone: str
    within: str
    bos: bool = False


STARCODER = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>")
FAMILIES = {
    "Qwen2.5-Coder": Family(
        ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
        f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{AFTER}<|fim_middle|>",
        "<|repo_name|>shop\n<|file_sep|>util.py\nx = 1\n<|file_sep|>lib/one.py\ny = 2\n<|file_sep|>main.py\n"
        f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{AFTER}<|fim_middle|>",
    ),
    "StarCoder2": Family(
        (*STARCODER, "<repo_name>", "<file_sep>"),
        f"<fim_prefix>{BEFORE}<fim_suffix>{AFTER}<fim_middle>",
        "<repo_name>shop<file_sep>util.py\nx = 1\n<file_sep>lib/one.py\ny = 2\n<file_sep>"
        f"<fim_prefix>main.py\n{BEFORE}<fim_suffix>{AFTER}<fim_middle>",
    ),
    "Granite code": Family(
        (*STARCODER, "<filename>", "<gh_stars>", "<reponame>"),
        f"<fim_prefix>{BEFORE}<fim_suffix>{AFTER}<fim_middle>",
        "<reponame>shop<filename>util.py\nx = 1\n<filename>lib/one.py\ny = 2\n<filename>main.py\n"
        f"<fim_prefix>{BEFORE}<fim_suffix>{AFTER}<fim_middle>",
    ),
    "DeepSeek-Coder": Family(
        ("<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"),
        f"<|endoftext|><｜fim▁begin｜>{BEFORE}<｜fim▁hole｜>{AFTER}<｜fim▁end｜>",
        f"<|endoftext|><｜fim▁begin｜>#util.py\nx = 1\n#lib/one.py\ny = 2\n#main.py\n{BEFORE}<｜fim▁hole｜>{AFTER}<｜fim▁end｜>",
        bos=True,
    ),
    "CodeGemma": Family(
        ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|file_separator|>"),
        f"<|endoftext|><|fim_prefix|>{BEFORE}<|fim_suffix|>{AFTER}<|fim_middle|>",
        "<|endoftext|>util.py\nx = 1\n<|file_separator|>lib/one.py\ny = 2\n<|file_separator|>main.py\n"
        f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{AFTER}<|fim_middle|>",
        bos=True,
    ),
    "Seed-Coder": Family(
        ("<[fim-suffix]>", "<[fim-prefix]>", "<[fim-middle]>"),
        f"<[fim-suffix]>{AFTER}<[fim-prefix]>{BEFORE}<[fim-middle]>",
        f"<[fim-suffix]>{AFTER}<[fim-prefix]>#util.py\nx = 1\n#lib/one.py\ny = 2\n#main.py\n{BEFORE}<[fim-middle]>",
    ),
    "Codestral": Family(
        ("[SUFFIX]", "[PREFIX]"),
        f"<|endoftext|>[SUFFIX]{AFTER}[PREFIX]{BEFORE}",
        f"<|endoftext|>[SUFFIX]{AFTER}[PREFIX]#util.py\nx = 1\n#lib/one.py\ny = 2\n#main.py\n{BEFORE}",
        bos=True,
    ),
}


def prompt(tokenizer: Tokenizer, asked: FillIn, room: int = 1 << 20) -> list[int]:
    form = format_of(tokenizer)
    assert form is not None
    return encode_fill_in(tokenizer, form, asked, room)[0]


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_are_those_of_the_published_order(name: str) -> None:
    family = FAMILIES[name]
    metadata = with_tokens(bpe_metadata(add_bos_token=family.bos), *((text, 3) for text in family.tokens))
    tokenizer = build_tokenizer(metadata, file="x")
    alone = prompt(tokenizer, FillIn(BEFORE, AFTER))
    assert alone == tokenizer.encode(family.alone, add_special=False, parse_special=True)
    within = prompt(tokenizer, FillIn(BEFORE, AFTER, FILES, "main.py", "shop"))
    assert within == tokenizer.encode(family.within, add_special=False, parse_special=True)
    # Names of control tokens in what a user has written are plain text.
    hostile = prompt(tokenizer, FillIn(family.tokens[0], family.tokens[1], [(family.tokens[0], family.tokens[1])], "a", "b"))
    assert [id for id in hostile if tokenizer.is_control(id)] == [
        id for id in prompt(tokenizer, FillIn("p", "s", [("f", "t")], "a", "b")) if tokenizer.is_control(id)
    ]


def test_code_llama_has_a_space_before_the_prefix_and_none_before_the_suffix() -> None:
    metadata = with_tokens(spm_metadata(), *((text, 3) for text in ("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>")))
    tokenizer = build_tokenizer(metadata, file="x")
    pre, suf, mid, end = (tokenizer.token_id(f"▁<{name}>") for name in ("PRE", "SUF", "MID", "EOT"))
    before, after = tokenizer.encode("hello", add_special=False), tokenizer.encode_continuation("world")
    assert tokenizer.piece(before[0]).startswith(b" ") and b"".join(map(tokenizer.piece, after)) == b"world"
    assert prompt(tokenizer, FillIn("hello", "world")) == [tokenizer.bos_id, pre, *before, suf, *after, mid]
    assert end in tokenizer.eog_ids


def test_tokens_that_only_keys_name() -> None:
    marks = {f"fim_{name}_token_id": k for k, name in ((4, "pre"), (5, "suf"), (6, "mid"), (7, "rep"), (8, "sep"))}
    tokenizer = build_tokenizer(bpe_metadata(**marks), file="x")
    ids = prompt(tokenizer, FillIn("ab", "cd", [("x", "y")], "z"))
    assert [id for id in ids if id in marks.values()] == [8, 8, 4, 5, 6]
    assert format_of(build_tokenizer(bpe_metadata(fim_pre_token_id=4, fim_suf_token_id=5), file="x")) is None
    assert format_of(build_tokenizer(bpe_metadata(), file="x")) is None


@pytest.mark.parametrize("name", ["Qwen2.5-Coder", "DeepSeek-Coder", "Codestral"])
@pytest.mark.parametrize("room", [24, 40, 80, 150])
def test_a_prompt_beyond_its_room_loses_files_then_its_far_ends(name: str, room: int) -> None:
    family = FAMILIES[name]
    tokenizer = build_tokenizer(
        with_tokens(bpe_metadata(add_bos_token=family.bos), *((text, 3) for text in family.tokens)), file="x"
    )
    before, after = "".join(f"{k}." for k in range(90)), "".join(f"{k};" for k in range(90))
    ids = prompt(tokenizer, FillIn(before, after, [("first", "1" * 30), ("last", "2" * 30)]), room)
    text = tokenizer.decode(ids, skip_special=False)
    assert len(ids) == room and "first" not in text and "last" not in text
    assert "88.89." in text and "0;1;" in text
    wide = tokenizer.decode(prompt(tokenizer, FillIn("a", "b", [("first", "1" * 30), ("last", "2" * 30)]), 60), skip_special=False)
    assert "first" not in wide and "last" in wide
