"""In which forms keys and values are kept, and how many bytes a row of a head takes."""

from __future__ import annotations

from edgellm.options.loading import KV_TYPE

KV_TYPES = KV_TYPE.values  # the usual one first
QUANTISED = ("q8_0", "q4_0")  # of these rows are rotated by Hadamard matrices before they are rounded
BLOCK = 32  # values of a quantised row that share a scale
SCALE_BYTES = 2


def kv_row_bytes(kv_type: str, dim: int) -> int:
    """Bytes of `dim` values. "q8_0": a signed byte each, then an f16 scale for every 32 of them, the last maybe for fewer. "q4_0":
    16 bytes for every 32 values, of which the last may be fewer, then the scales.
    """
    blocks = -(-dim // BLOCK)
    scales = blocks * SCALE_BYTES
    return {"f32": 4 * dim, "f16": 2 * dim, "q8_0": dim + scales, "q4_0": blocks * BLOCK // 2 + scales}[kv_type]


def check_kv_type(kv_type: str) -> None:
    """Raises OptionError for a form that does not exist."""
    KV_TYPE.check(kv_type)
