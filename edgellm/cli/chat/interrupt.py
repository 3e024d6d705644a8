"""Ctrl-C while a model answers: it stops the answer, not the program."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def on_ctrl_c(stop: Callable[[], None]) -> Iterator[Callable[[], int]]:
    """While the block runs, Ctrl-C calls `stop`; if the block does not end, a second one breaks it off. Gives how many."""
    pressed = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 1:
            raise KeyboardInterrupt
        stop()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: pressed
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, before)
