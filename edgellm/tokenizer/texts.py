"""The texts of tokens and the ids of texts, in a few arrays: 150k strings and a dict of them would be 22 MB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from operator import eq
from typing import overload

import numpy as np
import numpy.typing as npt

from edgellm.tokenizer.spans import MANY_TEXTS, Spans, batches, equal


class Texts(Sequence[str]):
    """Texts by token id, decoded when asked for, and ids by text."""

    def __init__(self, texts: Iterable[str]) -> None:
        parts, lengths, hashes = [b""], [np.zeros(0, np.int64)], [np.zeros(0, np.uint32)]
        for batch in batches(texts):
            parts.append(batch.data.tobytes())
            lengths.append(batch.lengths)
            hashes.append(batch.hashes)
        self._data = b"".join(parts)
        ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))
        # (n + 1,) where each text begins in `_data`, then where the last one ends
        self._ends = ends.astype(np.uint32) if len(self._data) < 1 << 32 else ends
        found = np.concatenate(hashes)
        self._ids = np.argsort(found, kind="stable").astype(np.uint32)  # (n,) in the order of hashes, those of one ascending
        self._hashes = found[self._ids]  # (n,) sorted

    def find(self, text: str) -> int | None:
        """The (last) id of a text."""
        token = int(self.find_all([text])[0])
        return None if token < 0 else token

    def find_all(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """The (last) id of each of several texts, -1 where none has it."""
        return np.concatenate([np.zeros(0, np.int64), *map(self.find_spans, batches(texts))])

    def find_spans(self, texts: Spans) -> npt.NDArray[np.int64]:
        """The same, of packed texts."""
        if not len(self):
            return np.full(len(texts), -1)
        at = self._hashes.searchsorted(texts.hashes, side="right") - 1
        ids = np.where(self._hashes[at] == texts.hashes, self._ids[at].astype(np.int64), -1)
        found = np.flatnonzero(ids >= 0)
        same = equal(self.spans(ids[found]), texts.some(found))
        for i in found[~same].tolist():
            ids[i] = self._of_one_hash.get(texts[i], -1)
        return ids

    def spans(self, ids: npt.NDArray[np.int64]) -> Spans:
        """The texts of several ids, packed."""
        starts = self._ends[ids].astype(np.int64)
        return Spans(np.frombuffer(self._data, np.uint8), starts, self._ends[ids + 1] - starts)

    @cached_property
    def shadowed(self) -> Mapping[int, int]:
        """Ids whose text a later token has too: the last id of each."""
        last = self._of_one_hash
        return {i: last[text] for i in self._alike if last[text := self[i]] != i}

    @cached_property
    def _of_one_hash(self) -> Mapping[str, int]:
        """The last ids of texts whose hash others have."""
        return {self[i]: i for i in self._alike}

    @cached_property
    def _alike(self) -> Sequence[int]:
        """Ids of texts whose hash others have."""
        same = np.zeros(len(self) + 1, np.bool_)  # as the one before
        same[1:-1] = self._hashes[1:] == self._hashes[:-1]
        alike: list[int] = self._ids[same[1:] | same[:-1]].tolist()  # ascending where texts are equal
        return alike

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        n = len(self._ids)
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

    __hash__ = None  # type: ignore[assignment]  # as of a list
