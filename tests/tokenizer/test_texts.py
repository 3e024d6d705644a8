"""Packed token texts and merges against the lists and dicts that they stand for."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from edgellm.errors import BadVocab
from edgellm.tokenizer.merges import NEVER, Merges
from edgellm.tokenizer.spans import MANY_TEXTS, Spans, batches, equal
from edgellm.tokenizer.texts import Texts

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
    monkeypatch.setattr(Spans, "hashes", property(lambda spans: spans.lengths.astype(np.uint32)))
    texts = Texts(["a", "b", "cc", "a", "dd"])
    assert [texts.find(text) for text in ("a", "b", "cc", "dd", "e", "ff")] == [3, 1, 2, 4, None, None]
    assert texts.find_all(["dd", "ff", "a", "ccc", "b"]).tolist() == [4, -1, 3, -1, 1]
    assert texts.shadowed == {0: 3}


@pytest.mark.parametrize("n", [0, 1, 500, 3 * MANY_TEXTS])
def test_many_texts_are_found_at_once(n: int) -> None:
    plain = some_texts(n)
    ids, wanted = {text: i for i, text in enumerate(plain)}, [*plain[::-1], "none", "", "aaaaaaaaa", "\ud801", *plain]
    assert Texts(plain).find_all(wanted).tolist() == [ids.get(text, -1) for text in wanted]
    assert Texts([]).find_all(wanted).tolist() == [-1] * len(wanted) and not len(Texts(plain).find_all([]))


def test_hashes_are_of_a_text_alone() -> None:
    """Wherever it stands, and those of close texts differ."""
    close = ["".join(letters) for n in range(4) for letters in product("ab\0é", repeat=n)]
    alone = [int(next(batches([text])).hashes[0]) for text in close]
    together = next(batches(close))
    assert together.hashes.tolist() == alone and len(set(alone)) == len(close)
    assert [together[i] for i in range(len(close))] == close
    assert equal(together.some(np.arange(40)), together.some(np.array([*range(39), 1]))).tolist() == [True] * 39 + [False]


def test_merges_are_pairs_of_ids() -> None:
    pairs = [(left, right) for left in ("a", "\n", "#version", "中") for right in ("b", "\n\n", "\u00e9" * 5)]
    known = Texts(["a", "b", "ab", "\n\n", "a\n\n", "中", "#versionb"])
    many = [f"{left} {right}" for left, right in pairs] * MANY_TEXTS
    table = Merges(many, "x.gguf").table(known.find_spans)
    assert table.made[[table.rank(0, 1), table.rank(0, 3)]].tolist() == [2, 4]
    assert table.rank(0, 1) == 2 * MANY_TEXTS - 2 and table.rank(0, 3) == 2 * MANY_TEXTS - 1  # the last of each counts
    left, right = np.array([0, 0, 1, 5, 0]), np.array([1, 3, 0, 1, 5])
    ranks = table.ranks(left, right).tolist()
    assert ranks == list(map(table.rank, left, right)) and ranks[2:] == [NEVER] * 3
    assert Merges([], "x.gguf").table(known.find_spans).rank(0, 1) == NEVER


@pytest.mark.parametrize("wrong", ["", " ", "a", "a b c", " b", "a ", "a  b"])
@pytest.mark.parametrize("place", [0, 1, MANY_TEXTS - 1, MANY_TEXTS, MANY_TEXTS + 5])
def test_a_merge_that_is_no_pair_is_named(wrong: str, place: int) -> None:
    merges = ["a b"] * (MANY_TEXTS + 6)
    merges[place] = wrong
    with pytest.raises(BadVocab, match=rf"entry {place} is {wrong!r}, not two token texts"):
        Merges(merges, "x.gguf")
