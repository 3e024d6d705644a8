"""Batches of the guide's trainer: ids, weights and meanings of conversations, whole, cut, and such that are only read."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest
from places import ROOT

sys.path.append(str(ROOT / "scripts" / "guide"))

from batches import batches  # the folder of scripts is not a package
from corpus.intents import intents, meanings
from tokenizer import Conversations, GuideTokenizer, train_tokenizer
from write_corpus import as_line, conversations

TALKS = 400


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[GuideTokenizer, Conversations]:
    folder = tmp_path_factory.mktemp("guide")
    (folder / "corpus.jsonl").write_text("".join(as_line(talk) for talk in itertools.islice(conversations(3), TALKS)))
    train_tokenizer(folder / "corpus.jsonl", folder / "t.model", 500)
    tokenizer = GuideTokenizer(folder / "t.model")
    return tokenizer, tokenizer.corpus(folder / "corpus.jsonl", 1 << 14, meanings(), user_weight=0.1)


def test_all_answers_of_an_intent_mean_the_same() -> None:
    numbers = meanings()
    for intent in intents().values():
        assert len({numbers[answer] for answer in intent.answers}) == 1, intent.name
    of = {name: numbers[intent.answers[0]] for name, intent in intents().items()}
    assert len(set(of.values())) == len(of), "two intents have an answer in common"


def test_a_meaning_stands_where_its_answer_begins(made: tuple[GuideTokenizer, Conversations]) -> None:
    tokenizer, corpus = made
    texts = {number: [a for a, n in meanings().items() if n == number] for number in meanings().values()}
    assert len(corpus) == TALKS
    places = np.flatnonzero(corpus.meanings >= 0)
    assert len(places) > TALKS and (corpus.ids[places] == tokenizer.assistant).all()
    for place in places[:200]:
        end = place + 1 + int(np.argmax(corpus.ids[place + 1 :] == 2))
        assert tokenizer.decode(corpus.ids[place + 1 : end].tolist()) in texts[int(corpus.meanings[place])]


def test_rows_that_are_only_read_end_where_the_answer_would_begin(made: tuple[GuideTokenizer, Conversations]) -> None:
    tokenizer, corpus = made
    for ids, weights, means in itertools.islice(batches(corpus, 512, 1, lambda: 1.0), 20):
        read = (means >= 0).any(axis=1)
        assert not weights[read].any()
        last = means.shape[1] - 1 - (means[read] >= 0)[:, ::-1].argmax(axis=1)
        assert (ids[read, last] == tokenizer.assistant).all()
        assert all(not row[end + 1 :].any() for row, end in zip(ids[read], last, strict=True))
        assert read.mean() > 0.5


def test_other_rows_have_answers_to_learn(made: tuple[GuideTokenizer, Conversations]) -> None:
    found = list(itertools.islice(batches(made[1], 512, 1, lambda: 0.0), 20))
    assert all(
        weights.max() == 2.0 and ids.shape == weights.shape == means.shape and ids.shape[1] % 8 == 0
        for ids, weights, means in found
    )
    again = list(itertools.islice(batches(made[1], 512, 1, lambda: 0.0), 20))
    assert all(np.array_equal(a, b) for one, two in zip(found, again, strict=True) for a, b in zip(one, two, strict=True))
