"""Waits for what other threads do, but not for ever: a hang fails the test that met it, and says what it waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

SECONDS = 300.0  # of a loaded machine; nothing waits so long that works


def until(condition: Callable[[], object]) -> None:
    """Return when `condition()` holds, asked each millisecond; fails after `SECONDS`."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.001)


async def auntil(condition: Callable[[], object]) -> None:
    """`until` on the event loop, which goes on meanwhile."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        await asyncio.sleep(0.01)
