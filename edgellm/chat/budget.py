"""The budget of one rendering: steps, processor time, bytes. A template comes with a model, so it may come from anybody.

One C call cannot be stopped once it runs, so the cost of each is bounded before it starts; between calls the clock is looked at.
"""

from __future__ import annotations

import sys
import time
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from contextvars import ContextVar

from edgellm.chat.provenance import Text
from edgellm.errors import TemplateError

# Limits of a template with a short conversation; each grows with the conversation.
MAX_TEXT = 1 << 20  # characters of one string, the result included
MAX_BYTES = 24 << 20  # bytes of all that a rendering makes
MAX_ITEMS = 10_000  # entries of one list, nested ones included
# Limits whatever the conversation, but that time and steps grow with it.
MAX_SIZE = 10_000  # widths, counts and range() ends
MAX_BITS = 256  # of an integer
MAX_STEPS = 1_000_000
MAX_SECONDS = 0.8  # of processor time
SECONDS_PER_CHARACTER = 1e-6  # more of it
# More for each pair of messages: Gemma 4's own template looks back from each message to those before it, which takes 10 us a pair.
SECONDS_PER_PAIR = 5e-5
STEPS_PER_PAIR = 4
MAX_PAIRS = 1_000_000  # of 1,000 messages
MAX_WORK = 100_000_000  # characters compared, or as long a wait, by one operation: 0.1 s
CHECK_EVERY = 16  # steps between looks at the clock, which cost 0.3 us each
CHECK_WORK = 300_000  # or after as much work
CONTAINER_BYTES = 300  # a list with its entry in the account
SPAN_BYTES = 130  # one span of a Text
CONTAINERS = (list, tuple, Mapping, KeysView, ValuesView, ItemsView)


class Budget:
    """Counts down while a template runs; raises TemplateError when something runs out."""

    def __init__(self, given: object = None, messages: int = 0) -> None:
        """`given`: the conversation, of so many messages, and whatever else the template gets; longer ones may cost more."""
        self._steps = self._unseen = 0
        self._known: dict[int, tuple[object, int, int]] = {}  # containers by id: kept alive, entries, characters
        self._bytes = sys.maxsize  # what is given costs nothing
        entries, characters = self.weigh(given)
        self.text = MAX_TEXT + 4 * characters
        self.entries = MAX_ITEMS + 4 * entries
        self._bytes = MAX_BYTES + 32 * (8 * entries + characters)
        pairs = min(messages**2, MAX_PAIRS)
        self._most_steps = MAX_STEPS + STEPS_PER_PAIR * pairs
        self._seconds = MAX_SECONDS + SECONDS_PER_CHARACTER * characters + SECONDS_PER_PAIR * pairs
        self._deadline = time.thread_time() + self._seconds

    def step(self, work: int = 0, count: int = 1) -> None:
        """Before one loop turn, call, filter or operation: `work` is a bound on the characters (about ns) that it will take."""
        if work > MAX_WORK:
            raise exceeded("it searches, cuts or compares long texts for long ones")
        before = self._steps // CHECK_EVERY
        self._steps += count
        self._unseen += work
        if self._steps > self._most_steps:
            raise exceeded(f"it does not end ({self._steps} steps)")
        if self._steps // CHECK_EVERY != before or self._unseen > CHECK_WORK:
            self._unseen = 0
            if time.thread_time() > self._deadline:
                raise exceeded(f"it takes longer than {self._seconds:.1f} s")

    def length(self, characters: int) -> None:
        """Before a text of so many characters is made."""
        if characters > self.text:
            raise exceeded(f"it makes a text of {characters} characters, and {self.text} is the limit")

    def items(self, count: int) -> None:
        """Before a list of so many entries is made."""
        if count > self.entries:
            raise exceeded(f"it makes a list of more than {self.entries} entries")

    def room(self, size: int) -> None:
        """Before an operation that needs so many bytes for itself."""
        if size > self._bytes:
            raise exceeded("it makes too many and too long texts")

    def spend(self, size: int) -> None:
        """Count bytes that the template has made."""
        self.room(size)
        self._bytes -= size

    def made(self, value: object, *parts: object) -> None:
        """Account for a value that the template made; `parts`: two lists of which it is the sum."""
        if isinstance(value, str):
            self.length(len(value))
            self.spend(sys.getsizeof(value) + SPAN_BYTES * spans(value))
        elif isinstance(value, int):
            if value.bit_length() > MAX_BITS:
                raise exceeded("it computes with numbers of a hundred digits")
        elif isinstance(value, CONTAINERS):
            self.items(len(value))
            self.step(50 * len(value), 0)
            if parts:  # a long list that grows by one is not gone through each time
                self.spend(CONTAINER_BYTES + 8 * len(value))
                weights = [self.weigh(part) for part in parts]
                self._known[id(value)] = value, sum(one for one, _ in weights) - 1, sum(two for _, two in weights)
            entries, characters = self.weigh(value)
            self.length(characters)
            self.items(entries)

    def printed(self, value: object) -> int:
        """A bound on the characters of `str(value)`, which is refused where it is out of proportion."""
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, CONTAINERS):
            return 100
        entries, characters = self.weigh(value)
        length = 10 * characters + 90 * entries  # "\U000e0001", and 78 digits
        if length > 4 * self.text:
            raise exceeded(f"it prints a list of {entries} entries with {characters} characters")
        return length

    def weigh(self, value: object) -> tuple[int, int]:
        """Entries and characters of a nested container, each as often as printing it would show it.

        A container that is new is kept alive, and counted with its entries.
        """
        if isinstance(value, str):
            return 1, len(value)
        if not isinstance(value, CONTAINERS):
            return 1, 0
        if id(value) in self._known:
            return self._known[id(value)][1:]
        self.spend(CONTAINER_BYTES + 8 * len(value))
        children = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
        entries, characters = 1, 0
        for child in children:
            more, text = self.weigh(child)
            entries, characters = entries + more, characters + text
        self._known[id(value)] = value, entries, characters
        return entries, characters


BUDGET: ContextVar[Budget] = ContextVar("budget")


def spans(text: object) -> int:
    return len(text.spans) if isinstance(text, Text) else 0


def exceeded(what: str) -> TemplateError:
    return TemplateError(f"the chat template was stopped: {what}; no model needs that, so take the file from elsewhere")


def check_size(number: object) -> None:
    """A width or a count; texts in their place are fillers."""
    if (isinstance(number, int) and abs(number) > MAX_SIZE) or (isinstance(number, str) and len(number) > 100):
        raise exceeded(f"it asks for a size beyond {MAX_SIZE}")
