"""Batches of conversations: each row is one whole conversation from its first token, rows of a batch are of similar length."""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from tokenizer import Conversations

Ids = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]
POOL = 40                                    # batches that are sorted by length together
ABRIDGED, KEPT = 0.8, 6                      # share of rows whose answers stop after so many tokens: more questions for the work
OPENING, OPENING_WEIGHT = 4, 2.0             # the first tokens of an answer decide what it is about, and count more
CUT_SHARE, CUT_ABOVE, SINKS = 0.1, 200, 4    # of longer conversations some lose a stretch after the sinks, as a full ring does


def batches(corpus: Conversations, tokens: int, seed: int) -> Iterator[tuple[Ids, Weights]]:
    """Endless (ids, weights) of about `tokens` tokens, epoch after epoch in a new order; the same seed gives the same ones."""
    epoch = 0
    while True:
        dice = np.random.default_rng((seed, epoch))
        yield from _epoch(corpus, tokens, dice)
        epoch += 1


def _epoch(corpus: Conversations, tokens: int, dice: np.random.Generator) -> Iterator[tuple[Ids, Weights]]:
    order = dice.permutation(len(corpus))
    lengths = np.diff(corpus.starts)
    pool: list[int] = []
    held = 0
    for number in order.tolist():
        pool.append(number)
        held += int(lengths[number])
        if held >= POOL * tokens:
            yield from _pool(corpus, pool, tokens, dice)
            pool, held = [], 0
    if pool:
        yield from _pool(corpus, pool, tokens, dice)


def _pool(corpus: Conversations, pool: list[int], tokens: int, dice: np.random.Generator) -> Iterator[tuple[Ids, Weights]]:
    rows = sorted((_row(corpus, number, dice) for number in pool), key=lambda row: len(row[0]))
    groups: list[list[tuple[Ids, Weights]]] = [[]]
    for row in rows:                         # rows get longer: the newest is the longest
        if groups[-1] and (len(groups[-1]) + 1) * len(row[0]) > tokens:
            groups.append([])
        groups[-1].append(row)
    for k in dice.permutation(len(groups)).tolist():
        yield _padded(groups[k])


def _row(corpus: Conversations, number: int, dice: np.random.Generator) -> tuple[Ids, Weights]:
    part = slice(int(corpus.starts[number]), int(corpus.starts[number + 1]))
    ids, weights = corpus.ids[part].astype(np.int64), corpus.weights[part].astype(np.float32)
    if len(ids) > CUT_ABOVE and dice.random() < CUT_SHARE:
        begin = int(dice.integers(SINKS + 1, len(ids) - CUT_ABOVE // 2))
        ids, weights = np.concatenate((ids[:SINKS], ids[begin:])), np.concatenate((weights[:SINKS], weights[begin:]))
        weights[SINKS] = 0.0                 # nothing foretells the token after the cut
    place = _place_in_answer(weights)
    weights[(place >= 0) & (place < OPENING)] = OPENING_WEIGHT
    if dice.random() < ABRIDGED:
        weights[place < 0] = 0.0             # answers alone
        ids, weights = ids[place < KEPT], weights[place < KEPT]
    return ids, weights


def _place_in_answer(weights: Weights) -> npt.NDArray[np.int64]:
    """How many tokens of its answer come before each token; -1 outside of answers, which are the runs of weight 1."""
    inside = weights == 1.0
    numbers = np.arange(len(weights))
    begins = np.maximum.accumulate(np.where(inside, -1, numbers))          # the last place outside
    return np.where(inside, numbers - begins - 1, -1)


def _padded(rows: list[tuple[Ids, Weights]]) -> tuple[Ids, Weights]:
    """One array each, padded at the end to a multiple of 8; padding has no weight and, being last, is seen by nothing."""
    length = -(-max(len(ids) for ids, _ in rows) // 8) * 8
    all_ids, all_weights = np.zeros((len(rows), length), np.int64), np.zeros((len(rows), length), np.float32)
    for k, (ids, weights) in enumerate(rows):
        all_ids[k, : len(ids)] = ids
        all_weights[k, : len(weights)] = weights
    return all_ids, all_weights
