"""Pages of a library that will not be needed again: given back, so that they do not count as this process's memory."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path

DONT_NEED = 4  # MADV_DONTNEED
RANGE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) .*?(\S*)$")
SMAPS = Path("/proc/self/smaps")


def forget_library(name: str) -> None:
    """Unmap what is resident of a library's code and constants, Linux only; a later call reads them from the page cache.

    LLVM, which links kernels when a model is loaded, is 45 MB. Mappings that anything was written to are left alone.
    """
    if sys.platform != "linux":
        return
    try:
        found = list(clean_ranges(SMAPS.read_text(encoding="ascii", errors="replace"), name))
        madvise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return
    for start, end in found:
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), DONT_NEED)


def clean_ranges(smaps: str, name: str) -> Iterator[tuple[int, int]]:
    """Start and end of the mappings of files called `name`... that cannot be written and have no page of their own."""
    current: tuple[int, int] | None = None
    for line in smaps.splitlines():
        if match := RANGE.match(line):
            ours = Path(match[4]).name.startswith(name) and "w" not in match[3]
            current = (int(match[1], 16), int(match[2], 16)) if ours else None
        elif current is not None and line.startswith("Anonymous:") and int(line.split()[1]) == 0:
            yield current
