"""Shared by the two halves of block attention: the layout of scores, and sums in registers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from numba.core import cgutils

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.prefetch import KV_TO_FIRST, LINE
from edgellm.backends.cpu.simd.base import Value
from edgellm.backends.cpu.simd.generic import V8F, Generic

BLOCK, LANES, ENTRY = abi.ATTENTION_BLOCK, 8, abi.ATTENTION_ENTRY
ROW = BLOCK * 4  # bytes of a query's scores
FACTORS = abi.ATTENTION_SCORES - LANES * 4  # where the factors stand


def variables(e: Generic, n: int, kind: Any = V8F) -> list[Value]:
    return [cgutils.alloca_once(e.b, kind) for _ in range(n)]


def split(flat: Sequence[Value], n: int) -> list[Sequence[Value]]:
    return [flat[i : i + n] for i in range(0, len(flat), n)]


def multiplied(e: Generic, totals: Sequence[Sequence[Value]], left: Sequence[Value], right: Sequence[Value]) -> None:
    """totals[i][j] += left[i] * right[j]."""
    for i, j in product(range(len(left)), range(len(right))):
        e.b.store(e.fma(left[i], right[j], e.b.load(totals[i][j])), totals[i][j])


def fetch(e: Generic, address: Value, nbytes: int) -> None:
    """Into the first-level cache, or only into the second where prefetch.py finds that better."""
    for line in range(0, nbytes, LINE):
        e.prefetch(address, line, to_first=KV_TO_FIRST)
