"""What one rendering may cost: steps, processor time, bytes. A template comes with a model, so it may come from anybody."""
from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextvars import ContextVar

from edgellm.errors import TemplateError

MAX_TEXT = 4 << 20                          # characters of one string, the result included
MAX_BYTES = 24 << 20                        # bytes of all that a rendering makes, beside a share of what it was given
MAX_ITEMS = 100_000                         # entries of one list, nested ones included
MAX_SIZE = 10_000                           # widths, counts and range() ends
MAX_STEPS = 1_000_000
MAX_SECONDS = 0.8                           # of processor time
CHECK_EVERY = 16                            # steps between looks at the clock, which cost 0.3 us each


class Budget:
    """Counts down while a template runs; raises TemplateError when something runs out."""

    def __init__(self, given: object = None) -> None:
        """`given`: the conversation and whatever else the template gets; longer ones may cost more."""
        self._steps = 0
        self._known: dict[int, tuple[object, int, int]] = {}     # containers by id: kept alive, entries, characters
        entries, characters = self._weigh(given)
        self._items = MAX_ITEMS + 4 * entries
        self._bytes = MAX_BYTES + 32 * (8 * entries + characters)
        self._deadline = time.thread_time() + MAX_SECONDS

    def step(self, count: int = 1) -> None:
        """One loop turn, call, filter or operation."""
        before = self._steps // CHECK_EVERY
        self._steps += count
        if self._steps > MAX_STEPS or (self._steps // CHECK_EVERY != before and time.thread_time() > self._deadline):
            raise exceeded(f"it goes on and on ({self._steps} steps)")

    def made(self, value: object) -> None:
        """Account for a value that the template made."""
        if isinstance(value, str):
            check_length(len(value))
            self._spend(sys.getsizeof(value))
        elif isinstance(value, list | tuple | dict):
            self._spend(8 * len(value))
            entries, characters = self._weigh(value)
            check_length(characters)
            if entries > self._items:
                raise exceeded(f"it makes a list of more than {self._items} entries")

    def _spend(self, count: int) -> None:
        self._bytes -= count
        if self._bytes < 0:
            raise exceeded("it makes too many and too long texts")

    def _weigh(self, value: object) -> tuple[int, int]:
        """Entries and characters of a nested container, each as often as printing it would show it."""
        if isinstance(value, str):
            return 1, len(value)
        if not isinstance(value, list | tuple | Mapping):
            return 1, 0
        if id(value) in self._known:
            return self._known[id(value)][1:]
        children = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
        entries, characters = 1, 0
        for child in children:
            more, text = self._weigh(child)
            entries, characters = entries + more, characters + text
        self._known[id(value)] = value, entries, characters
        return entries, characters


BUDGET: ContextVar[Budget] = ContextVar("budget")


def exceeded(what: str) -> TemplateError:
    return TemplateError(f"the chat template was stopped: {what}; no model needs that, so take the file from elsewhere")


def check_length(characters: int) -> None:
    if characters > MAX_TEXT:
        raise exceeded(f"it makes a text of {characters} characters, and {MAX_TEXT} is the limit")


def check_size(number: object) -> None:
    if isinstance(number, int) and abs(number) > MAX_SIZE:
        raise exceeded(f"it asks for a size beyond {MAX_SIZE}")
