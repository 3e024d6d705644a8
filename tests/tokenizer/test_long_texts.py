"""Long texts: windows give the ids of the whole, and the trie finds the longest token at each place."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabulary_cases import bpe_metadata, slow_bpe, slow_spm, spm_metadata, wpm_metadata

from edgellm.tokenizer import build_tokenizer, spm, windows
from edgellm.tokenizer.trie import Trie, codes_of
from edgellm.tokenizer.windows import encode_in_windows

LETTERS = ("the wordlin", "l", "hellorwd", "thé中👋 ")


@pytest.fixture
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (windows, spm):
        monkeypatch.setattr(module, "WINDOW", 16)
    monkeypatch.setattr(windows, "OVERLAP", 4)


@pytest.mark.parametrize("letters", LETTERS)
def test_windows_give_the_ids_of_the_full_text(short_windows, letters: str) -> None:
    source = random.Random(letters)
    by_score, by_rank = build_tokenizer(spm_metadata(), file="spm"), build_tokenizer(bpe_metadata(), file="bpe")
    for _ in range(40):
        text = "".join(source.choices(letters, k=source.randrange(1, 200)))
        word = text.replace(" ", "")
        assert [by_score.token_text(i) for i in by_score.encode(text, add_special=False)] == slow_spm(" " + text)
        if word.isascii():
            assert [by_rank.token_text(i) for i in by_rank.encode(word)] == slow_bpe(word)
        assert by_rank.decode(by_rank.encode(word)) == word


def test_windows_without_a_shared_token_are_given_up(short_windows) -> None:
    calls: list[int] = []

    def encode(text: str) -> tuple[list[int], list[int]]:  # tokens that depend on how long the text is
        calls.append(len(text))
        return [len(text)] * len(text), list(range(1, len(text) + 1))

    assert encode_in_windows("a" * 100, encode) == [100] * 100 and len(calls) == 3


@given(st.lists(st.text("abc", min_size=1, max_size=5), max_size=12, unique=True), st.text("abcd", max_size=40))
@settings(max_examples=150, deadline=None)
def test_the_trie_finds_the_longest_token(tokens: list[str], text: str) -> None:
    ids, lengths = Trie({token: 7 + i for i, token in enumerate(tokens)}).longest(codes_of(text))
    for at in range(len(text)):
        longest = max((token for token in tokens if text.startswith(token, at)), key=len, default="")
        assert (lengths[at], ids[at]) == (len(longest), 7 + tokens.index(longest) if longest else -1)


def test_word_pieces_of_a_long_word() -> None:
    """BERT cuts words of up to 100 characters; longer ones are one unknown token each."""
    tokenizer = build_tokenizer(wpm_metadata(), file="wpm")
    ids = tokenizer.encode("un" + "aff" * 32 + " the", add_special=False)
    assert len(ids) == 34 and [tokenizer.token_text(ids[at]) for at in (0, 1, -2, -1)] == ["▁un", "aff", "aff", "▁the"]
    for times in (33, 30_000):
        ids = tokenizer.encode(("un" + "aff" * times + " ") * 2 + "the", add_special=False)
        assert [tokenizer.token_text(token) for token in ids] == ["[UNK]", "[UNK]", "▁the"]
    longer = build_tokenizer(wpm_metadata() | {"tokenizer.ggml.max_input_chars_per_word": 200_000}, file="wpm")
    assert len(longer.encode("un" + "aff" * 30_000, add_special=False)) == 30_001
