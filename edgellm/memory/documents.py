"""Slots of the documents of one step: chosen so that a document's sums are the same whatever others are in the step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edgellm.memory.layout import RING_MULTIPLE, MemoryClass, MemoryLayout
from edgellm.memory.pages import SINK_MULTIPLE
from edgellm.memory.sequence import Placement, Spans


def first_slots(lengths: Sequence[int], layout: MemoryLayout, most: int) -> list[int]:
    """The slots at which the first of these documents begin: as many as fit into a step of `most` documents.

    Back ends add up keys in blocks of SINK_MULTIPLE slots and in chunks of RING_MULTIPLE. A document begins with a block, and lies
    in one chunk or begins with one, so that it is cut at the same places wherever it stands.
    """
    slots, starts, tokens, at = layout.classes[0].ring, list[int](), 0, 0
    for n in lengths[:most]:
        if at % RING_MULTIPLE + n > RING_MULTIPLE:
            at = -(-at // RING_MULTIPLE) * RING_MULTIPLE
        tokens += n
        if at + n > slots or tokens > layout.chunk:
            break
        starts.append(at)
        at = -(-(at + n) // SINK_MULTIPLE) * SINK_MULTIPLE
    return starts


def place(lengths: Sequence[int], starts: Sequence[int], layout: MemoryLayout) -> Placement:
    """The rows of documents that begin at these slots."""
    n = np.repeat(np.asarray(lengths, np.int64), lengths)
    start = np.repeat(np.asarray(starts, np.int64), lengths)
    position = np.concatenate([np.arange(length) for length in lengths])
    return Placement(position, position, tuple(_spans(position, start, n, memory) for memory in layout.classes))


def _spans(position: npt.NDArray[np.int64], start: npt.NDArray[np.int64], n: npt.NDArray[np.int64], memory: MemoryClass) -> Spans:
    reach = memory.window - 1 if memory.causal else memory.window // 2
    first = position - position % memory.window if memory.chunked else np.maximum(position - reach, 0)
    end = position + 1 if memory.causal else np.minimum(position + reach + 1, n)
    spans = np.zeros((len(position), 4), np.int32)
    spans[:, 0], spans[:, 2], spans[:, 3] = start + position, start + first, end - first
    return spans
