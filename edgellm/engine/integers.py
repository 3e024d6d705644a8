"""Whole numbers as callers give them."""

from __future__ import annotations

import operator


def as_int(value: object) -> int | None:
    """`value` as an int where it is a whole number, NumPy's too; None for anything else, True and False included."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]  # which is what is asked here
    except TypeError:
        return None
