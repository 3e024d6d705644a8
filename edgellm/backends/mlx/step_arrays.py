"""What one step brings to the graph, made in NumPy: embedded rows, angles, slots and masks of each memory class."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgellm.memory.layout import MemoryClass


@dataclass(frozen=True, slots=True)
class View:
    """What the tokens of a step see of one memory class: the first `end` slots, all of them where `full` (causally)."""

    slots: npt.NDArray[np.int32]                 # (T,) where keys go
    end: int
    full: bool
    mask: npt.NDArray[np.bool_] | None           # (T, end), None where `full`


def view(spans: npt.NDArray[np.int32], positions: npt.NDArray[np.int64], memory: MemoryClass, rounding: int) -> View:
    """The view of one class; `end` is a multiple of `rounding` where the ring has that many slots (1 keeps it exact)."""
    slots, sinks, first, length = spans.T
    full = bool((sinks + length == positions + 1).all()) and bool((first[length > 0] == memory.sinks).all())
    wraps = first - memory.sinks + length > memory.ring
    end = memory.slots if wraps.any() else int(max(slots.max() + 1, (first + length)[length > 0].max(initial=0)))
    end = min(-(-end // rounding) * rounding, memory.slots)
    if full and rounding == 1:
        return View(slots, end, True, None)
    slot = np.arange(end, dtype=np.int32)
    age = (slot - first[:, None]) % memory.ring
    mask = np.where(slot < memory.sinks, slot < sinks[:, None], age < length[:, None])
    return View(slots, end, full, mask)


def table(positions: npt.NDArray[np.int64], turning: npt.NDArray[np.float64],
          magnitude: float) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """cos and sin (len(positions), n_rot/2) f32."""
    angle = positions[:, None] * turning
    return (magnitude * np.cos(angle)).astype(np.float32), (magnitude * np.sin(angle)).astype(np.float32)
