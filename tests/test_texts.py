"""Packed token texts and merges against the lists and dicts that they stand for."""
from __future__ import annotations

import random

import pytest

from edgellm.errors import BadVocab
from edgellm.tokenizer.merges import Merges
from edgellm.tokenizer.texts import MANY_TEXTS, Texts

ODD = ["", " ", "\n", "\0", "é", "中文", "\U0001f600", "\ud800", "a\udfffb", "\ufffd"]


def some_texts(n: int) -> list[str]:
    rng = random.Random(n)
    letters = "ab\u00e9\u4e2d\U0001f600 "
    return [*ODD, *("".join(rng.choices(letters, k=rng.randrange(6))) for _ in range(n)), *ODD[:3]]


@pytest.mark.parametrize("n", [0, 1, 500, 3 * MANY_TEXTS])
def test_texts_are_those_of_a_list(n: int) -> None:
    plain = some_texts(n)
    texts, ids = Texts(iter(plain)), {text: i for i, text in enumerate(plain)}
    assert list(texts) == plain and [texts[i] for i in range(-len(plain), len(plain))] == plain + plain
    assert texts[3:7] == plain[3:7] and texts[::-2] == plain[::-2]
    assert all(texts.find(text) == i for text, i in ids.items())
    assert texts.find("none") is None and texts.find("aaaaaaaaa") is None
    assert texts.shadowed == {i: ids[text] for i, text in enumerate(plain) if ids[text] != i}
    assert texts == Texts(plain) and texts != Texts(plain[1:]) and texts != Texts([*plain[:-1], "other"]) and texts != plain


def test_texts_that_are_not_there() -> None:
    assert len(Texts([])) == 0 and Texts([]).find("") is None and not Texts([]).shadowed and list(Texts([])) == []
    for index in (2, -3):
        with pytest.raises(IndexError):
            _ = Texts(["a", "b"])[index]


def test_texts_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Texts.__init__.__globals__, "hash", lambda text: len(text))
    texts = Texts(["a", "b", "cc", "a", "dd"])
    assert [texts.find(text) for text in ("a", "b", "cc", "dd", "e", "ff")] == [3, 1, 2, 4, None, None]
    assert texts.shadowed == {0: 3}


def test_merges_are_pairs() -> None:
    pairs = [(left, right) for left in ("a", "\n", "#version", "中") for right in ("b", "\n\n", "\u00e9" * 5)] * MANY_TEXTS
    merges = Merges([f"{left} {right}" for left, right in pairs], "x.gguf")
    assert list(merges) == pairs and len(merges) == len(pairs) and merges[5] == pairs[5] and merges[2:4] == pairs[2:4]
    assert merges.longest == len("#version") + 10
    assert merges.among({"a", "b", "ab", "\n\n", "a\n\n", "中"}) == [pair for pair in pairs if pair in (("a", "b"), ("a", "\n\n"))]
    assert list(Merges([], "x.gguf")) == []


@pytest.mark.parametrize("wrong", ["", " ", "a", "a b c", " b", "a ", "a  b"])
@pytest.mark.parametrize("place", [0, 1, MANY_TEXTS - 1, MANY_TEXTS, MANY_TEXTS + 5])
def test_a_merge_that_is_no_pair_is_named(wrong: str, place: int) -> None:
    merges = ["a b"] * (MANY_TEXTS + 6)
    merges[place] = wrong
    with pytest.raises(BadVocab, match=rf"entry {place} is {wrong!r}, not two token texts"):
        Merges(merges, "x.gguf")
