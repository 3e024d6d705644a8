"""Slots, masks and distances of each memory class in one step, made in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgellm.memory.layout import MemoryClass


@dataclass(frozen=True, slots=True)
class View:
    """The slots of one memory class that a step's tokens attend to: the first `end` slots, all of them where `full` (causally where
    the class is).
    """

    slots: npt.NDArray[np.int32]  # (T,) where keys go
    end: int
    full: bool
    mask: npt.NDArray[np.bool_] | None  # (T, end), None where `full`
    distances: npt.NDArray[np.int32]  # (T, end) tokens from a key to the query, where it is seen; below 0 after it


def _distances(spans: npt.NDArray[np.int32], memory: MemoryClass, end: int) -> npt.NDArray[np.int32]:
    """Sinks stand right before the window."""
    own, sinks, first, length = spans.T[..., None]
    slot = np.arange(end, dtype=np.int32)
    before = np.where(slot < memory.sinks, sinks + length - 1 - slot, length - 1 - (slot - first) % memory.ring)
    distances: npt.NDArray[np.int32] = (before if memory.causal else own - slot).astype(np.int32)
    return distances


def view(
    spans: npt.NDArray[np.int32], positions: npt.NDArray[np.int64], memory: MemoryClass, rounding: int, *, measured: bool = False
) -> View:
    """The view of one class; `end` is a multiple of `rounding` where the ring has that many slots (1 keeps it exact).

    `measured`: whether distances are wanted.
    """
    slots, sinks, first, length = spans.T
    full = bool((slots == positions).all() and (sinks + length == positions + 1).all())
    full = full and bool((first[length > 0] == memory.sinks).all())
    wraps = first - memory.sinks + length > memory.ring
    end = memory.slots if wraps.any() else int(max(slots.max() + 1, (first + length)[length > 0].max(initial=0)))
    end = min(-(-end // rounding) * rounding, memory.slots)
    distances = _distances(spans, memory, end if measured else 0)
    if full and rounding == 1:
        return View(slots, end, True, None, distances)
    slot = np.arange(end, dtype=np.int32)
    age = (slot - first[:, None]) % memory.ring
    mask = np.where(slot < memory.sinks, slot < sinks[:, None], age < length[:, None])
    if not memory.causal and mask.all():
        return View(slots, end, True, None, distances)
    return View(slots, end, full, mask, distances)
