"""The merges of a BPE vocabulary: checked texts, then a sorted table of pairs of token ids."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.errors import BadVocab
from edgellm.tokenizer.spans import Spans, batches

NOTHING = (1 << 32) - 1  # the id of no token
NEVER = (1 << 32) - 1  # the rank of pairs that are not merged

Ids = npt.NDArray[np.uint32]
Find = Callable[[Spans], npt.NDArray[np.int64]]  # ids of texts, -1 for those of no token
BLANK = ord(" ")
AT_ONCE = 1 << 17  # pairs
REMEMBERED = 4096  # ranks that were asked for one by one: 1 MB


class Merges:
    """Pairs of token texts, the first merged first."""

    def __init__(self, merges: Sequence[str], file: str) -> None:
        """`merges`: each written "left right". Raises BadVocab for one without a blank."""
        self._parts = list[tuple[bytes, npt.NDArray[np.uint32]]]()  # lefts and rights in turn, and the bytes of each
        for batch in batches(merges):
            blanks, ends = np.flatnonzero(batch.data == BLANK), batch.starts + batch.lengths
            if len(blanks) != len(batch) or not ((batch.starts < blanks) & (blanks < ends - 1)).all():
                _refuse(merges, file)
            lefts = blanks - batch.starts
            sizes = np.stack([lefts, batch.lengths - lefts - 1], axis=1).ravel()
            self._parts.append((batch.data[batch.data != BLANK].tobytes(), sizes.astype(np.uint32)))

    def table(self, find: Find) -> Pairs:
        """Those of known tokens that make a known one."""
        found = [np.zeros((3, 0), np.int64)]
        for data, sizes in self._parts:
            lengths = sizes.astype(np.int64)
            starts, lefts, rights = np.cumsum(lengths) - lengths, lengths[::2], lengths[1::2]
            texts = Spans(
                np.frombuffer(data, np.uint8),
                np.concatenate([starts[::2], starts[1::2], starts[::2]]),
                np.concatenate([lefts, rights, lefts + rights]),
            )
            ids = find(texts).reshape(3, -1)
            found.append(ids[:, (ids >= 0).all(axis=0)])
        left, right, made = np.concatenate(found, axis=1)
        return Pairs(left, right, made)


class Pairs:
    """Pairs of ids with the id that they merge into, and its rank: the lowest is merged first."""

    def __init__(self, left: npt.NDArray[Any], right: npt.NDArray[Any], made: npt.NDArray[Any]) -> None:
        """In the order of ranks. Of a pair that comes twice the last one counts, as in the `tokenizers` package."""
        pairs = _keys(left, right)
        order = np.argsort(pairs, kind="stable")
        last = np.ones(len(order), np.bool_)
        last[:-1] = pairs[order[1:]] != pairs[order[:-1]]
        ranks = order[last]
        self.made: Ids = made.astype(np.uint32)  # by rank
        self._keys = np.append(pairs[ranks], np.uint64((1 << 64) - 1))  # sorted; no search ends behind the last one
        self._ranks: Ids = np.append(ranks, NEVER).astype(np.uint32)  # of each key
        self._view = self._keys.data
        self._known = dict[int, int]()

    def ranks(self, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> Ids:
        """Of pairs, NEVER where there is no merge of them."""
        wanted = _keys(left, right)
        at = self._keys.searchsorted(wanted)
        found = self._ranks[at]
        found[self._keys[at] != wanted] = NEVER
        return found

    def have_any(self, ids: Ids) -> bool:
        """True if one of `ids` is merged with another."""
        known = np.sort(ids)
        return any(
            (known[np.minimum(known.searchsorted(part), len(known) - 1)] == part).any()
            for parts in self.neighbours()
            for part in parts
        )

    def neighbours(self) -> Iterator[tuple[Ids, Ids]]:
        """Left and right ids of all pairs, some at a time."""
        for first in range(0, len(self._keys) - 1, AT_ONCE):
            keys = self._keys[first : min(first + AT_ONCE, len(self._keys) - 1)]
            yield (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)

    def rank(self, left: int, right: int) -> int:
        """Of one pair."""
        wanted = left << 32 | right
        rank = self._known.get(wanted)
        if rank is None:
            at = bisect_left(self._view, wanted)
            rank = int(self._ranks[at]) if self._view[at] == wanted else NEVER
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[wanted] = rank
        return rank


def _keys(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    return left.astype(np.uint64) << np.uint64(32) | right.astype(np.uint64)


def _refuse(merges: Sequence[str], file: str) -> None:
    i, merge = next((i, merge) for i, merge in enumerate(merges) if merge.count(" ") != 1 or "" in merge.split(" "))
    raise BadVocab(
        f"entry {i} is {merge[:40]!r}, not two token texts with a blank between; convert the model again",
        file=file,
        field="tokenizer.ggml.merges",
    )
