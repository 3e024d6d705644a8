"""The argument words of kernels of image encoders."""

from __future__ import annotations

from edgellm.backends.cpu.words import Words

MERGE = Words(
    "x x_stride out out_stride first rows n"
)  # `first`: i32, the first of the `rows` rows that become one; n: their length
