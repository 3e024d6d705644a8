"""Prompts of callers, checked and turned into token ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import never
from edgellm.errors import ContextFull, OptionError
from edgellm.memory.pictures import Pictures
from edgellm.ops._spec import Given

TokenIds = npt.NDArray[np.int32]
Stop = Callable[[], bool]
PatchProgress = Callable[[int, int], None]  # (patches that were encoded, all of them)


class Watch(NamedTuple):
    """A caller that waits for images to be encoded: whether it has given up, and a function that is called with patches."""

    stop: Stop = never
    progress: PatchProgress | None = None


UNWATCHED = Watch()


@dataclass(frozen=True, slots=True)
class PromptVectors:
    """Vectors in a prompt. Its ids are negative there, and follow from what an image shows: prefixes are compared by them.

    `ahead`: by how much coordinates are larger than positions after the prompt.
    """

    given: Given  # of all tokens of the prompt
    ahead: int = 0

    def part(self, first: int, n: int) -> Given | None:
        """Those of `n` tokens from `first` on, which may lie after the prompt; None where they are plain tokens."""
        known = len(self.given.which)
        part = self.given.part(first, min(first + n, known))
        missing = n - len(part.which)
        if not len(part.rows) and part.coordinates is None:
            return None
        none = np.full(missing, -1, np.int32)
        which = np.concatenate([part.which, none])
        if part.coordinates is None:
            return Given(which, part.rows, images=None if part.images is None else np.concatenate([part.images, none]))
        later = np.arange(first + n - missing, first + n)[:, None] + np.full(part.coordinates.shape[1], self.ahead)
        return Given(which, part.rows, np.concatenate([part.coordinates, later]))

    def uncut(self, first: int, n: int) -> int:
        """The number of tokens from `first` on nearest to `n` with which no image that is seen both ways is cut: fewer, if any."""
        images, end = self.given.images, first + n
        if images is None or end >= len(images) or images[end] < 0 or images[end - 1] != images[end]:
            return n
        start = end - 1
        while start > first and images[start - 1] == images[end]:
            start -= 1
        if start > first:
            return start - first
        while end < len(images) and images[end] == images[end - 1]:
            end += 1
        return end - first


def checked_ids(given: Sequence[int] | npt.NDArray[np.integer], n_vocab: int, *, name: str) -> TokenIds:
    """`given` as int32 (n,). Raises OptionError, naming the argument, for anything but ids of this vocabulary."""
    if isinstance(given, str | bytes | bytearray):
        raise OptionError(f"{name} is a text; give token ids here, such as model.tokenizer.encode(text).")
    try:
        ids = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise OptionError(f"{name} is not a sequence of token ids; give whole numbers.") from error
    if ids.size == 0:
        raise OptionError(f"{name} is empty; give at least one token.")
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        shape = f"shape {ids.shape}, type {ids.dtype}"
        raise OptionError(f"{name} is not a sequence of token ids ({shape}); give a flat list of whole numbers.")
    outside = np.flatnonzero((ids < 0) | (ids >= n_vocab))
    if len(outside):
        at = int(outside[0])
        raise OptionError(f"{name} has the token id {ids[at]} at place {at}; the model's ids are 0 to {n_vocab - 1}.")
    return np.ascontiguousarray(ids, np.int32)


def check_room(n: int, positions: int | None) -> None:
    """Raises ContextFull for more tokens than there are learned `positions`; None: they are computed."""
    if positions is not None and n > positions:
        raise ContextFull.of_prompt(
            f"{n} tokens are more than the context of {positions}, and this model's learned positions "
            "cannot slide; shorten the prompt, or give a larger context if it was trained for one.",
            tokens=n,
            limit=positions,
        )


def check_pictures(ids: TokenIds, room: int) -> None:
    """Raises ContextFull for a picture of more tokens than the `room` of a full context, which could never be seen as a whole."""
    most = max((extent.end - extent.start for extent in Pictures(ids).extents), default=0)
    if most > room:
        raise ContextFull.of_prompt(
            f"a picture or clip takes {most} tokens, and the context holds {room} beside its sinks; give "
            "edgellm.Image(..., tokens=N), a smaller picture or a shorter clip, or load the model with a larger context.",
            tokens=most,
            limit=room,
        )
