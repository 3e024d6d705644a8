"""Asking for the cache lines of a stream ahead of their use."""
from __future__ import annotations

from typing import Any

from edgellm.backends.cpu import system
from edgellm.backends.cpu.simd.generic import Generic

LINE = 64
# Bytes, and whether to the first-level cache or only to the second. On Zen 4 nearer or to the first level is up to a third less,
# most of all beside rows of activations that fill that cache. On an Intel server with AMX, where only the first level was tried,
# 4096 is a quarter less than 2048.
AHEAD, TO_FIRST = (1 << 13, False) if system.is_zen() else (1 << 11, True)


def prefetch(e: Generic, address: Any, nbytes: int) -> None:
    """For what comes AHEAD of these bytes, which a stream has come to."""
    for first in range(0, nbytes, LINE):
        e.prefetch(address, AHEAD + first, to_first=TO_FIRST)
