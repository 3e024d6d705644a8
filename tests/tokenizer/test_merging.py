"""Merging by our own tables against the BPE of the `tokenizers` package, on vocabularies and merges made at random."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any
from unittest.mock import Mock

import pytest
import tiny_tokenizers
from pace import Clock
from tokenizers import models
from vocabulary_cases import PREFIX, bpe_metadata

from edgellm.tokenizer import Tokenizer, bpe, build_tokenizer, joints, merging, windows
from edgellm.tokenizer.spm import BYTE_TEXTS

BYTE_LETTERS = tiny_tokenizers.byte_characters()
NORMAL, CONTROL, BYTE = 1, 3, 6


@pytest.fixture(params=["heap", "rows", "windows"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the three ways that words are merged in, for all words."""
    if request.param != "heap":
        monkeypatch.setattr(merging, "ROUND", 0)
    if request.param == "windows":
        for name, value in {"WIDTHS": (2, 4, 8, 16), "ROW": 8, "LONGER": 2, "AT_ONCE": 32}.items():
            monkeypatch.setattr(merging, name, value)


def random_merges(source: random.Random, letters: str) -> tuple[list[str], list[str]]:
    """Texts of more than one letter, and merges: in no order, some twice, some of texts that are no tokens."""
    texts, merges = list(letters), list[str]()
    for _ in range(source.randrange(40)):
        left, right = source.choice(texts), source.choice(texts)
        if len(left + right) <= 12:
            merges.append(f"{left} {right}")
            texts.append(left + right)
    source.shuffle(merges)
    merges += source.choices(merges, k=len(merges) // 5)
    return [text for text in texts[len(letters) :] if source.random() < 0.9], merges


def metadata_of(tokens: list[str], types: list[int], merges: list[str], **more: Any) -> dict[str, Any]:
    keys = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": types,
        "merges": merges,
        "eos_token_id": len(tokens) - 1,
        "add_bos_token": False,
    }
    return {PREFIX + key: value for key, value in {**keys, **more}.items()}


def reference(tokens: list[str], types: list[int], merges: list[str], **options: Any) -> Any:
    """The package's model, of texts that are not control tokens and merges of what it knows."""
    last = {text: token for token, text in enumerate(tokens)}
    vocab = {text: token for text, token in last.items() if types[token] != CONTROL or text == options.get("unk_token")}
    pairs = [(left, right) for left, right in map(str.split, merges) if {left, right, left + right} <= vocab.keys()]
    return models.BPE(vocab, pairs, **options)


def assert_same(tokenizer: Tokenizer, model: Any, words: list[str], spelled: list[str], parting: str) -> None:
    """Each word alone, and all in one text with what parts them."""
    ids = [[token.id for token in model.tokenize(word)] for word in spelled]
    assert [tokenizer.encode(word) for word in words] == ids
    together = [token for some in ids for token in [*([token.id for token in model.tokenize(parting)]), *some]]
    assert tokenizer.encode("".join("\n" + word for word in words)) == together


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe"])  # the second one keeps words whole that are tokens
@pytest.mark.parametrize("seed", range(12))
def test_words_of_bytes(way: None, seed: int, pre: str) -> None:
    source = random.Random(seed)
    letters = source.choice(("a", "ab", "abcd", "abé"))
    spelled = "".join(BYTE_LETTERS[byte] for byte in letters.encode())
    texts, merges = random_merges(source, spelled)
    tokens = [*BYTE_LETTERS, *texts, "<end>"]
    types = [NORMAL] * 256 + source.choices([NORMAL, CONTROL], [9, 1], k=len(texts)) + [CONTROL]
    tokenizer = build_tokenizer(metadata_of(tokens, types, merges, pre=pre), file="x")
    words = ["".join(source.choices(letters, k=n)) for n in (1, 2, 3, 5, 8, 9, 13, 21, 40, 150, 300)]
    model = reference(tokens, types, merges, ignore_merges=pre == "llama-bpe")
    spelled_words = ["".join(BYTE_LETTERS[byte] for byte in word.encode()) for word in words]
    assert_same(tokenizer, model, words, spelled_words, BYTE_LETTERS[10])


@pytest.mark.parametrize("seed", range(12))
def test_lines_of_letters_with_bytes_for_the_rest(way: None, seed: int) -> None:
    source = random.Random(seed)
    texts, merges = random_merges(source, "▁ab中")
    tokens = [*BYTE_TEXTS, "▁", "a", "b", "中", "\n", *texts, "<end>"]
    types = [BYTE] * 256 + [NORMAL] * (5 + len(texts)) + [CONTROL]
    tokenizer = build_tokenizer(metadata_of(tokens, types, merges, pre="sarvam-moe"), file="x")
    lines = ["".join(source.choices(" ab中é👋", k=n)) for n in (1, 2, 3, 5, 8, 9, 13, 21, 40, 150)]
    model = reference(tokens, types, merges, byte_fallback=True)
    assert_same(tokenizer, model, lines, [line.replace(" ", "▁") for line in lines], "\n")


@pytest.mark.parametrize("seed", range(24))
def test_lines_are_cut_where_no_merge_joins(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts of some characters, with tables in which few or many pairs share a hash, and words that are remembered or not."""
    source = random.Random(seed)
    monkeypatch.setattr(joints, "AT_ONCE", source.choice((1, 2, 7, 1 << 17)))
    monkeypatch.setattr(joints, "PARTS", source.choice((1, 3, 8192)))
    monkeypatch.setattr(joints, "BITS", source.choice((3, 5, 22)))
    monkeypatch.setattr(bpe, "REMEMBERED", source.choice((0, 3000, 1 << 20)))
    letters = "▁abcdé中𝄞"
    texts, merges = random_merges(source, letters)
    byte_merges = ["<0xC3> <0xA9>", "a <0xE5>"] if seed % 4 == 3 else []  # letters without a token may be merged too
    merges += byte_merges
    more = [merge.replace(" ", "") for merge in byte_merges]
    tokens = [*BYTE_TEXTS, *letters.replace("é", "" if byte_merges else "é"), "\n", *texts, *more, "<end>"]
    types = [BYTE] * 256 + [NORMAL] * (len(tokens) - 257) + [CONTROL]
    tokenizer = build_tokenizer(metadata_of(tokens, types, merges, pre="sarvam-moe"), file="x")
    model = reference(tokens, types, merges, byte_fallback=True)
    for _ in range(3):
        lines = ["".join(source.choices(" abcdé中𝄞国👋<0xA9>", k=n)) for n in (1, 2, 3, 8, 9, 21, 40, 150, 700)]
        assert_same(tokenizer, model, lines, [line.replace(" ", "▁") for line in lines], "\n")


def test_runs_of_newlines_stay_whole() -> None:
    tokens = [*BYTE_TEXTS, "a", "\n", "\n\n", "\n\n\n", "<end>"]
    types = [BYTE] * 256 + [NORMAL] * 4 + [CONTROL]
    tokenizer = build_tokenizer(metadata_of(tokens, types, ["a a"], pre="sarvam-moe"), file="x")
    assert tokenizer.encode("\n\n\na\n\na\n\n\n\n") == [259, 256, 258, 256, 257, 257, 257, 257]


@pytest.mark.parametrize("pre", ["gpt-2", "sarvam-moe"])
def test_words_that_are_remembered_take_a_bounded_amount_of_memory(pre: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe, "REMEMBERED", 100_000)
    tokens = [*BYTE_TEXTS, *BYTE_LETTERS, "<end>"]
    types = [BYTE] * 256 + [NORMAL] * 256 + [CONTROL]
    tokenizer = build_tokenizer(metadata_of(tokens, types, [], pre=pre), file="x")
    tokenizer.encode("a")
    tracemalloc.start()
    try:
        for i in range(3000):
            assert len(tokenizer.encode(f"w{i:05}")) == 6
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("seed", range(6))
def test_words_between_white_space_with_an_unknown_token(way: None, seed: int) -> None:
    source = random.Random(seed)
    texts, merges = random_merges(source, "ab中")
    tokens = ["<unk>", *BYTE_LETTERS, "中", *texts, "<end>"]
    types = [2] + [NORMAL] * (257 + len(texts)) + [CONTROL]
    more = {"model": "whitespace", "unknown_token_id": 0}
    tokenizer = build_tokenizer(metadata_of(tokens, types, merges, **more), file="x")
    words = ["".join(source.choices("ab中👋国", k=n)) for n in (1, 2, 3, 5, 8, 9, 13, 21, 150)]
    model = reference(tokens, types, merges, unk_token="<unk>")
    assert [tokenizer.encode(word) for word in words] == [[token.id for token in model.tokenize(word)] for word in words]


@pytest.mark.parametrize("unit", ["a", "ab", "abc", "hello", "x"])
def test_long_words_take_time_in_proportion_to_their_length(unit: str) -> None:
    """Of a text that repeats itself no two windows may share a token; none takes quadratic time."""
    tokens, types = list(BYTE_LETTERS), [NORMAL] * 256
    merges = ["a a", "aa a", "a b", "ab ab", "abab ab", "ab c", "abc abc", "abcabc abc", "l l", "h e", "he ll"]
    tokens += [merge.replace(" ", "") for merge in merges]
    types += [NORMAL] * len(merges)
    tokenizer = build_tokenizer(metadata_of([*tokens, "<end>"], [*types, CONTROL], merges), file="x")
    word = unit * (100_000 // len(unit))
    clock = Clock()
    ids = tokenizer.encode(word)
    assert clock.seconds() < 3
    assert ids == [token.id for token in reference(tokens, types, merges).tokenize(word)]


def test_no_words_and_no_merges(way: None) -> None:
    tokenizer = build_tokenizer(bpe_metadata(merges=[]), file="x")
    assert tokenizer.encode("") == [] and [tokenizer.token_text(i) for i in tokenizer.encode("the")] == ["t", "h", "e"]


@pytest.mark.parametrize("unit", ["abc", "abcbb"])
def test_a_repeated_unit_is_merged_a_few_times_only(monkeypatch: pytest.MonkeyPatch, unit: str) -> None:
    """A run whose tokens begin at another place in each window of rows: a heap would take it symbol by symbol."""
    monkeypatch.setattr(windows, "WINDOW", 1 << 10)
    parts = [unit[:n] for n in range(2, len(unit) + 1)] + [unit * 2, unit * 4]
    merges = [f"{part[:-1]} {part[-1]}" for part in parts[:-2]] + [f"{unit} {unit}", f"{unit * 2} {unit * 2}"]
    tokens = [*BYTE_LETTERS, *parts, "<end>"]
    tokenizer = build_tokenizer(metadata_of(tokens, [NORMAL] * (len(tokens) - 1) + [CONTROL], merges), file="x")
    merged = Mock(side_effect=merging.merge_word)
    monkeypatch.setattr(merging, "merge_word", merged)
    assert tokenizer.encode(unit * 4 * 4000) == [tokens.index(unit * 4)] * 4000
    assert 0 < merged.call_count <= merging.ALIKE < len(unit) * 4 * 4000 / windows.WINDOW / 4
