"""What a thread notes while it walks a timed plan: the clock at its last stamp, and ticks per slot. One log per thread."""

from __future__ import annotations

from typing import Final

from edgellm.backends.cpu.words import Words

LAP: Final = Words("log slot")  # of a stamp: the thread's log, and the slot that gets the time since the last

# A log: int64 words, the clock at the last stamp, then ticks of each slot.
LAST: Final = 0
FIRST_SLOT: Final = 1

WAKING: Final = 0  # slots: until the thread has the plan,
WAITING: Final = 1  # at barriers,
RECORDS: Final = 2  # and from here on in each record
