"""Byte-pair merging of many words at once: one merge in each of them per round, in NumPy arrays.

Words of more than ROW symbols are merged in windows that overlap by half. Where two windows share a token, the tokens of the first
up to it and those of the second from it on are the tokens of both (`windows` says why). Where two share none, the word gets longer
windows. A few short words, and words that no windows are long enough for, take a heap each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from edgellm.tokenizer.merges import NEVER, NOTHING, Ids, Pairs
from edgellm.tokenizer.windows import in_windows

WIDTHS = (8, 16, 32, 64, 128, 512)  # of the arrays that words are merged in, symbols
ROW, LONGER = 128, 4  # symbols of a window, and how many times as many the longer ones have
AT_ONCE = 1 << 17  # symbols
ALIKE = 8  # windows of a heap each that are remembered: those of a repeated sign are of a few lengths
ROUND = 10  # symbols that a heap merges in the time of a round

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Windows:
    """The pieces that are merged by themselves: words, or long ones in parts."""

    words: Places  # of each window
    begins: Places  # its first symbol
    lengths: Places  # its symbols
    later: npt.NDArray[np.bool_]  # whether it overlaps with the one before


def merge_words(pairs: Pairs, symbols: Ids, counts: Places) -> list[tuple[int, ...]]:
    """The tokens of words: `symbols` of all, and how many each has."""
    if len(symbols) <= ROUND * min(int(counts.max(initial=0)) + 32, ROW):  # words of 8, 16 and 32 have rounds of their own
        tokens, ranks = symbols.tolist(), pairs.ranks(symbols[:-1], symbols[1:]).tolist()
        spans = pairwise([0, *np.cumsum(counts).tolist()])
        return [tuple(merge_word(pairs, tokens[at:end], ranks[at : end - 1])[0]) if at < end else () for at, end in spans]
    return _merge_in_rows(pairs, symbols, counts, ROW)


def _merge_in_rows(pairs: Pairs, symbols: Ids, counts: Places, width: int) -> list[tuple[int, ...]]:
    starts, ends = np.cumsum(counts) - counts, np.cumsum(counts)
    windows = _windows(starts, counts, width)
    rows, places, ids = _merged(pairs, symbols, windows)
    lost = list[int]()
    if len(windows.words) > len(counts):
        kept, lost = _seams(rows, places, windows, len(symbols))
        places, ids = places[kept], ids[kept]
    listed = ids.tolist()
    out = [tuple(listed[start:end]) for start, end in pairwise([0, *np.searchsorted(places, ends).tolist()])]
    if lost and width * LONGER <= WIDTHS[-1]:
        parts = [symbols[starts[word] : ends[word]] for word in lost]
        again = _merge_in_rows(pairs, np.concatenate(parts), counts[lost], width * LONGER)
    else:
        again = [tuple(_in_order(pairs, symbols[starts[word] : ends[word]])) for word in lost]
    for word, tokens in zip(lost, again, strict=True):
        out[word] = tokens
    return out


def merge_word(pairs: Pairs, tokens: list[int], ranks: list[int]) -> tuple[list[int], list[int]]:
    """The tokens of one word, and where each ends: by a heap of `ranks`, those of neighbouring symbols."""
    n, ranks = len(tokens), [*ranks, NEVER]  # of the pairs that begin at each place
    before, after = list(range(-1, n)), list(range(1, n + 1))
    rank_of, made = pairs.rank, pairs.made
    waiting = [(rank, at) for at, rank in enumerate(ranks) if rank != NEVER]
    heapify(waiting)
    while waiting:
        rank, at = heappop(waiting)
        if ranks[at] != rank:  # merged with another one meanwhile
            continue
        gone, tokens[at] = after[at], int(made[rank])
        then = after[at] = after[gone]
        before[then], ranks[gone], tokens[gone] = at, NEVER, NOTHING
        for left, right in ((before[at], at), (at, then)):
            if left >= 0:
                ranks[left] = new = rank_of(tokens[left], tokens[right]) if right < n else NEVER
                if new != NEVER:
                    heappush(waiting, (new, left))
    kept = [at for at, token in enumerate(tokens) if token != NOTHING]
    return [tokens[at] for at in kept], [after[at] for at in kept]


def _in_order(pairs: Pairs, symbols: Ids) -> list[int]:
    """The tokens of a word whose windows share none, as those of a run of one sign may; then the longer windows are alike."""

    @lru_cache(maxsize=ALIKE)
    def merged(window: bytes) -> tuple[list[int], list[int]]:
        ids = np.frombuffer(window, symbols.dtype)
        return merge_word(pairs, ids.tolist(), pairs.ranks(ids[:-1], ids[1:]).tolist())

    return in_windows(len(symbols), lambda begin, end: merged(symbols[begin:end].tobytes()))


def _windows(starts: Places, counts: Places, width: int) -> Windows:
    step = width // 2
    n_windows = np.maximum(1, -((width - counts) // step) + 1)
    words = np.repeat(np.arange(len(counts)), n_windows)
    nth = np.arange(len(words)) - np.repeat(np.cumsum(n_windows) - n_windows, n_windows)
    return Windows(words, starts[words] + nth * step, np.minimum(counts[words] - nth * step, width), nth > 0)


def _merged(pairs: Pairs, symbols: Ids, windows: Windows) -> tuple[Places, Places, Ids]:
    """Row, place in `symbols` and id of each token, a row for each window, in their order."""
    rows, places, ids = list[Places](), list[Places](), list[Ids]()
    for low, high in pairwise((0, *WIDTHS)):
        some = np.flatnonzero((low < windows.lengths) & (windows.lengths <= high))
        for first in range(0, len(some), AT_ONCE // high):
            part = some[first : first + AT_ONCE // high]
            begins, lengths = windows.begins[part], windows.lengths[part]
            if windows.later[part].any():  # those of runs and of repeated lines are alike, those of words are not
                alike = _first_alike([symbols[begin : begin + n].tobytes() for begin, n in zip(begins, lengths, strict=True)])
                new = alike == np.arange(len(alike))
                tokens = _merge_rows(pairs, symbols, begins[new], lengths[new])[(np.cumsum(new) - 1)[alike]]
            else:
                tokens = _merge_rows(pairs, symbols, begins, lengths)
            row, column = np.nonzero(tokens != NOTHING)
            rows.append(part[row])
            places.append(begins[row] + column - 1)
            ids.append(tokens[row, column])
    row, place = np.concatenate(rows), np.concatenate(places)
    order = np.argsort(row * WIDTHS[-1] + (place - windows.begins[row]))
    return row[order], place[order], np.concatenate(ids)[order]


def _first_alike(keys: list[bytes]) -> Places:
    """For each the first one that is the same."""
    first = dict[bytes, int]()
    return np.fromiter((first.setdefault(key, i) for i, key in enumerate(keys)), np.int64, len(keys))


def _merge_rows(pairs: Pairs, symbols: Ids, begins: Places, lengths: Places) -> Ids:
    """(rows, 1 + longest + 1) the tokens of each row, each at its first symbol; NOTHING elsewhere."""
    columns = np.arange(int(lengths.max()) + 2)
    stride = len(columns)
    inside = (columns > 0) & (columns <= lengths[:, None])
    tokens = np.full(inside.shape, NOTHING, np.uint32)
    tokens[inside] = symbols[(begins[:, None] + (columns - 1))[inside]]
    ranks = np.full(inside.shape, NEVER, np.uint32)  # of the pairs that begin at each place
    inside[:, :-1] &= inside[:, 1:]
    inside[:, -1] = False
    at = np.flatnonzero(inside)
    flat = tokens.ravel()
    ranks.ravel()[at] = pairs.ranks(flat[at], flat[at + 1])
    after = np.arange(1, flat.size + 1, dtype=np.int32)
    before = np.arange(-1, flat.size - 1, dtype=np.int32)
    rows = np.arange(len(lengths))
    while True:
        column = ranks.argmin(axis=1)  # the leftmost of the lowest
        rank = ranks[np.arange(len(rows)), column]
        live = rank != NEVER
        if not live.all():
            rows, ranks, column, rank = rows[live], ranks[live], column[live], rank[live]
        if not len(rows):
            return tokens
        here = rows * stride + column
        shift = (np.arange(len(rows)) - rows) * stride  # from a place to that in `ranks`
        gone, left = after[here], before[here]
        right = after[gone]
        flat[here], flat[gone] = pairs.made[rank], NOTHING
        after[here], before[right] = right, here
        news = pairs.ranks(flat[np.concatenate([left, here])], flat[np.concatenate([here, right])])
        of_pairs = ranks.ravel()
        of_pairs[gone + shift] = NEVER
        of_pairs[left + shift], of_pairs[here + shift] = news[: len(rows)], news[len(rows) :]


def _seams(rows: Places, places: Places, windows: Windows, end: int) -> tuple[npt.NDArray[np.bool_], list[int]]:
    """Which of the tokens count, given by row and place, and the words of which some window shares no token with the one before."""
    begins, later = windows.begins, windows.later
    nexts, follows = np.append(begins[1:], end), np.append(later[1:], False)
    ends = np.append(places[1:], end)
    last = np.append(rows[1:] != rows[:-1], True)
    ends[last] = (begins + windows.lengths)[rows[last]]
    heads, tails = later[rows], np.flatnonzero(follows[rows] & (places >= nexts[rows]))
    known = _spans(rows[heads], places[heads] - begins[rows[heads]], (ends - places)[heads])
    wanted = _spans(rows[tails] + 1, places[tails] - nexts[rows[tails]], (ends - places)[tails])
    shared = tails[known[np.minimum(known.searchsorted(wanted), len(known) - 1)] == wanted]
    seams = np.where(later, -1, begins)
    seams[rows[shared[::-1]] + 1] = places[shared[::-1]]  # the first one of each row is written last
    kept = (places >= seams[rows]) & (~follows[rows] | (places < np.append(seams[1:], end)[rows]))
    return kept, sorted(set(windows.words[seams < 0].tolist()))


def _spans(rows: Places, first: Places, lengths: Places) -> Places:
    """One number for the symbols of a token in a row."""
    return (rows * WIDTHS[-1] + first) * (WIDTHS[-1] + 1) + lengths
