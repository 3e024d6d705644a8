"""What a conversion says about the file that it wrote."""

from __future__ import annotations

from dataclasses import dataclass

PLAIN = ("F32", "F16", "BF16")
LARGEST_F16, LARGEST_F32 = 65504.0, 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class Converted:
    """What was written; `notes`: what a user should know, a line each."""

    path: str
    architecture: str
    type: str
    nbytes: int
    n_tensors: int
    notes: tuple[str, ...]
