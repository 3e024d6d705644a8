"""The report of a conversion on the file that it wrote."""

from __future__ import annotations

from dataclasses import dataclass

PLAIN = ("F32", "F16", "BF16")
LARGEST_F16, LARGEST_F32 = 65504.0, 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class Converted:
    """The file that was written; `notes`: remarks for the user, a line each."""

    path: str
    architecture: str
    type: str
    nbytes: int
    n_tensors: int
    notes: tuple[str, ...]
