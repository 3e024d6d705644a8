"""How threads share rows: whole rows where there are several, pieces of a single one. `barriers.Partition` relies on it."""
from __future__ import annotations

from edgellm.backends.cpu.kernels._inline import inline


@inline
def first_item(rows, pieces, ith, nth):
    """Of rows x pieces items, the first of thread `ith`; those before the first of thread `ith + 1` are its own."""
    if rows == 1:
        return pieces * ith // nth
    return rows * ith // nth * pieces
