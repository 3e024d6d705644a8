"""Asking for the cache lines of a stream ahead of their use."""

from __future__ import annotations

from typing import Any

from edgellm.backends.cpu import system
from edgellm.backends.cpu.simd.generic import Generic

LINE = 64
# How many bytes ahead of their use lines are asked for, into the second-level cache and from there into the first (0: not at all).
# On Zen 4 asking for the first level as well, or nearer, is up to a third less, most of all beside rows of activations that fill
# that cache. An Emerald Rapids decodes 15 to 20 % faster with both than with either: the first level has few line fill buffers.
TO_SECOND, TO_FIRST = (1 << 13, 0) if system.zen() else (1 << 13, 1 << 11) if system.is_x86() else (0, 1 << 11)
AHEAD = TO_SECOND or TO_FIRST
# The same for interleaved rows by one or two columns, into the first level. A Zen 5 reads them 1.1 to 1.5 times as fast with it;
# Zen 4 prefetches them by itself, and with it takes up to twice as long.
INTERLEAVED = 1 << 13 if system.zen() >= 5 else 0
# Whether attention fetches keys and values into the first level, and from how many bytes of a block on (0: never) only one block
# ahead. After 16,384 tokens with one thread, a Zen 5 decodes about 1.17 times as fast as with the second level where a block of
# keys has 8 KiB (Qwen3 0.6B), and as fast where it has 4 KiB (llama 1B). A second block ahead took 1.09 times as long with 8 KiB.
KV_TO_FIRST, KV_NEAR = (True, 1 << 13) if system.zen() >= 5 else (TO_FIRST > 0, 0)


def prefetch(e: Generic, address: Any, nbytes: int) -> None:
    """For what comes ahead of these bytes, which a stream has come to."""
    for first in range(0, nbytes, LINE):
        if TO_SECOND:
            e.prefetch(address, TO_SECOND + first, to_first=False)
        if TO_FIRST:
            e.prefetch(address, TO_FIRST + first)
