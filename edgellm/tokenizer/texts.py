"""The texts of tokens and the ids of texts, in a few arrays: 150k strings and a dict of them would be 22 MB."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice, pairwise
from operator import eq
from typing import Any, overload  # Any: offsets of 32 bits, or 64

import numpy as np
import numpy.typing as npt

MANY_TEXTS = 4096                           # at a time
HASH_BITS = (1 << 32) - 1


def batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Some at a time: Python hardly gives the memory of many small objects back."""
    left = iter(texts)
    while batch := list(islice(left, MANY_TEXTS)):
        yield batch


class Texts(Sequence[str]):
    """Texts by token id, decoded when asked for, and ids by text."""

    def __init__(self, texts: Iterable[str]) -> None:
        parts, lengths, hashes = [b""], [np.zeros(1, np.int64)], [np.zeros(0, np.int64)]
        for batch in batches(texts):
            encoded = [text.encode("utf-8", "surrogatepass") for text in batch]
            parts.append(b"".join(encoded))
            lengths.append(np.fromiter(map(len, encoded), np.int64, len(batch)))
            hashes.append(np.fromiter(map(hash, batch), np.int64, len(batch)))
        self._data = b"".join(parts)
        ends = np.cumsum(np.concatenate(lengths))
        # (n + 1,) where each text begins in `_data`, then where the last one ends
        self._ends: npt.NDArray[Any] = ends.astype(np.uint32) if len(self._data) < 1 << 32 else ends
        found = np.concatenate(hashes).astype(np.uint32)
        self._ids = np.argsort(found, kind="stable").astype(np.uint32)       # (n,) in the order of hashes, those of one ascending
        self._hashes = found[self._ids]     # (n,) sorted

    def find(self, text: str) -> int | None:
        """The (last) id of a text."""
        wanted = np.uint32(hash(text) & HASH_BITS)
        at = int(self._hashes.searchsorted(wanted, side="right")) - 1
        while at >= 0 and self._hashes[at] == wanted:
            if self[found := int(self._ids[at])] == text:
                return found
            at -= 1
        return None

    @cached_property
    def shadowed(self) -> Mapping[int, int]:
        """Ids whose text a later token has too: the last id of each."""
        same = np.zeros(len(self) + 1, np.bool_)     # as the one before
        same[1:-1] = self._hashes[1:] == self._hashes[:-1]
        alike = self._ids[same[1:] | same[:-1]].tolist()         # ascending where texts are equal
        last = {self[i]: i for i in alike}
        return {i: last[text] for i in alike if last[text := self[i]] != i}

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"text {index} of {n}")
        start, end = self._ends[index % n : index % n + 2].tolist()
        return self._data[start:end].decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), MANY_TEXTS):
            spans = pairwise(self._ends[first : first + MANY_TEXTS + 1].tolist())
            yield from [self._data[start:end].decode("utf-8", "surrogatepass") for start, end in spans]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Texts) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None                         # type: ignore[assignment]  # as of a list
