"""Many short texts as spans of one array of bytes: packed from strings or a file's array, hashed and compared all at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.formats.gguf_values import StringArray

MANY_TEXTS = 4096  # at a time: Python hardly gives the memory of many small objects back
BASE = 0x9E3779B97F4A7C15  # of a polynomial modulo 2^64 in the bytes of a text
INVERSE = pow(BASE, -1, 1 << 64)
MIX = np.uint64(0xC2B2AE3D27D4EB4F)

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Spans:
    """Texts of UTF-8, each some bytes of `data`."""

    data: Bytes
    starts: Places
    lengths: Places

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> str:
        start = int(self.starts[index])
        return self.data[start : start + int(self.lengths[index])].tobytes().decode("utf-8", "surrogatepass")

    @cached_property
    def hashes(self) -> npt.NDArray[np.uint32]:
        """Of the texts' bytes, wherever these are."""
        terms = self.data.astype(np.uint64) + np.uint64(1)
        terms *= _powers(BASE, len(terms))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms)])
        found = (sums[self.starts + self.lengths] - sums[self.starts]) * _powers(INVERSE, len(terms) + 1)[self.starts]
        mixed: npt.NDArray[np.uint64] = (found ^ found >> np.uint64(32)) * MIX >> np.uint64(32)
        return mixed.astype(np.uint32)

    def some(self, which: npt.NDArray[Any]) -> Spans:
        return Spans(self.data, self.starts[which], self.lengths[which])

    def joined(self) -> Bytes:
        """All bytes, one text right after the other."""
        ends = np.cumsum(self.lengths)
        places = np.arange(int(ends[-1]) if len(ends) else 0)
        places += np.repeat(self.starts - ends + self.lengths, self.lengths)
        return self.data[places]


def equal(texts: Spans, others: Spans) -> npt.NDArray[np.bool_]:
    """Which texts are the same, each compared with the one beside it."""
    same: npt.NDArray[np.bool_] = texts.lengths == others.lengths
    alike = np.flatnonzero(same)
    wrong = texts.some(alike).joined() != others.some(alike).joined()
    if wrong.any():
        same[np.repeat(alike, texts.lengths[alike])[wrong]] = False
    return same


def batches(texts: Iterable[str]) -> Iterator[Spans]:
    """Some at a time, one right after the other."""
    if isinstance(texts, StringArray):
        for data, lengths in texts.packed():
            yield Spans(data, np.cumsum(lengths) - lengths, lengths)
        return
    left = iter(texts)
    while batch := list(islice(left, MANY_TEXTS)):
        encoded = [text.encode("utf-8", "surrogatepass") for text in batch]
        lengths = np.fromiter(map(len, encoded), np.int64, len(batch))
        yield Spans(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum(lengths) - lengths, lengths)


def code_points(text: str) -> npt.NDArray[np.uint32]:
    """Of its characters."""
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def _powers(base: int, n: int) -> npt.NDArray[np.uint64]:
    """The first n, from the zeroth on, modulo 2^64."""
    powers = np.full(n, base, np.uint64)
    powers[:1] = 1
    return np.cumprod(powers)
