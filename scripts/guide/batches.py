"""Batches of conversations: each row is one whole conversation from its first token, rows of a batch are of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from tokenizer import Conversations

Ids = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]
Row = tuple[Ids, Weights, Ids]  # ids, weights, meanings (-1 where there is none)
POOL = 40  # batches that are sorted by length together
ABRIDGED, KEPT = 0.8, 6  # share of rows whose answers stop after so many tokens: more questions for the work
ABRIDGED_TALKS = 0.3  # the same of conversations of several questions, which refer to whole answers
OPENING, OPENING_WEIGHT = 4, 2.0  # the first tokens of an answer decide what it is about, and count more
CUT_SHARE, CUT_ABOVE, SINKS = 0.1, 200, 4  # of longer conversations some lose a stretch after the sinks, as a full ring does


def batches(corpus: Conversations, tokens: int, seed: int, reading: Callable[[], float]) -> Iterator[Row]:
    """Endless batches of about `tokens` tokens, epoch after epoch in a new order; the same seed gives the same ones.

    `reading`: the share of rows that end where some answer would begin, asked before each pool of rows.
    """
    epoch = 0
    while True:
        dice = np.random.default_rng((seed, epoch))
        yield from _epoch(corpus, tokens, dice, reading)
        epoch += 1


def _epoch(corpus: Conversations, tokens: int, dice: np.random.Generator, reading: Callable[[], float]) -> Iterator[Row]:
    order = dice.permutation(len(corpus))
    pool: list[Row] = []
    held, share = 0, reading()
    for number in order.tolist():
        pool.append(_row(corpus, number, dice, share))
        held += len(pool[-1][0])
        if held >= POOL * tokens:
            yield from _pool(pool, tokens, dice)
            pool, held, share = [], 0, reading()
    if pool:
        yield from _pool(pool, tokens, dice)


def _pool(rows: list[Row], tokens: int, dice: np.random.Generator) -> Iterator[Row]:
    rows.sort(key=lambda row: len(row[0]))
    groups: list[list[Row]] = [[]]
    for row in rows:  # rows get longer: the newest is the longest
        if groups[-1] and (len(groups[-1]) + 1) * len(row[0]) > tokens:
            groups.append([])
        groups[-1].append(row)
    for k in dice.permutation(len(groups)).tolist():
        yield _padded(groups[k])


def _row(corpus: Conversations, number: int, dice: np.random.Generator, reading: float) -> Row:
    part = slice(int(corpus.starts[number]), int(corpus.starts[number + 1]))
    ids, weights = corpus.ids[part].astype(np.int64), corpus.weights[part].astype(np.float32)
    means = corpus.meanings[part].astype(np.int64)
    answered = np.flatnonzero(means >= 0)
    if dice.random() < reading and len(answered):
        end = int(dice.choice(answered)) + 1
        return ids[:end], np.zeros(end, np.float32), means[:end]
    if len(ids) > CUT_ABOVE and dice.random() < CUT_SHARE:
        begin = int(dice.integers(SINKS + 1, len(ids) - CUT_ABOVE // 2))
        ids, weights, means = (np.concatenate((array[:SINKS], array[begin:])) for array in (ids, weights, means))
        weights[SINKS] = 0.0  # nothing foretells the token after the cut
    place = _place_in_answer(weights)
    weights[(place >= 0) & (place < OPENING)] = OPENING_WEIGHT
    if dice.random() < (ABRIDGED if len(answered) < 2 else ABRIDGED_TALKS):
        weights[place < 0] = 0.0  # answers alone
        ids, weights, means = (array[place < KEPT] for array in (ids, weights, means))
    return ids, weights, means


def _place_in_answer(weights: Weights) -> npt.NDArray[np.int64]:
    """How many tokens of its answer come before each token; -1 outside of answers, which are the runs of weight 1."""
    inside = weights == 1.0
    numbers = np.arange(len(weights))
    begins = np.maximum.accumulate(np.where(inside, -1, numbers))  # the last place outside
    return np.where(inside, numbers - begins - 1, -1)


def _padded(rows: list[Row]) -> Row:
    """One array each, padded at the end to a multiple of 8; padding has no weight and, being last, is seen by nothing."""
    length = -(-max(len(ids) for ids, _, _ in rows) // 8) * 8
    all_ids, all_weights = np.zeros((len(rows), length), np.int64), np.zeros((len(rows), length), np.float32)
    all_means = np.full((len(rows), length), -1, np.int64)
    for k, (ids, weights, means) in enumerate(rows):
        all_ids[k, : len(ids)] = ids
        all_weights[k, : len(weights)] = weights
        all_means[k, : len(means)] = means
    return all_ids, all_weights, all_means
