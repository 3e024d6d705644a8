"""The places of pictures and clips among tokens: their ids say where each ends, so that one is evicted as a whole."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
MORE = 1  # the bit of a row's number that says that the picture goes on after it, in the next row of an image
CLIP = 2  # the bit that says that it is of an audio clip


class Extent(NamedTuple):
    """The tokens from a picture's first row to its last, texts between its tiles or lines included."""

    start: int
    end: int
    clip: bool = False


class Pictures:
    """The extents of the pictures in a sequence that grows and is cut back. A row of an image has the id `-1 - number`."""

    __slots__ = ("extents", "open")

    def __init__(self, ids: Ids | None = None) -> None:
        self.extents: list[Extent] = []
        self.open: int | None = None  # where a picture begins whose last row is not there yet
        if ids is not None:
            self.extend(ids, 0)

    def copy(self) -> Pictures:
        other = Pictures()
        other.extents, other.open = self.extents[:], self.open
        return other

    def extend(self, ids: Ids, at: int) -> None:
        """Add tokens (n,), of which the first is number `at`."""
        rows = np.flatnonzero(ids < 0)
        numbers = -1 - ids[rows]
        last, clips = numbers & MORE == 0, numbers & CLIP != 0
        for row, ends, clip in zip((rows + at).tolist(), last.tolist(), clips.tolist(), strict=True):
            start = row if self.open is None else self.open
            self.open = None if ends else start
            if ends:
                self.extents.append(Extent(start, row + 1, clip))

    def truncate(self, length: int) -> None:
        """Forget the tokens from `length` on."""
        if self.open is not None and self.open >= length:
            self.open = None
        while self.extents and self.extents[-1].end > length:
            start = self.extents.pop().start
            self.open = start if start < length else None

    def after(self, first: int, kept: int, newest: int) -> tuple[int, int]:
        """The oldest token after the `kept` first ones that the token `newest` sees, and how many of those it sees, where without
        pictures these were `first` and `kept`. A picture that is not complete by then is seen in parts.
        """
        for start, end, _ in self.extents:
            if start >= first or end > newest:
                break
            if start < kept < end and first > kept:
                kept, first = start, max(first, end)
            elif end > first:
                first = end
        return first, kept

    def gone(self, first: int, kept: int) -> tuple[int, int]:
        """The numbers of pictures and of clips that lie outside the `kept` first tokens and those from `first` on."""
        clips = [extent.clip for extent in self.extents if extent.end > kept and extent.start < first]
        return len(clips) - sum(clips), sum(clips)
