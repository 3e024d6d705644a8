"""Pages of libraries and buffers that are not needed for now: given back, so that they don't count as this process's memory."""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

DONT_NEED = 4  # MADV_DONTNEED
RANGE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) .*?(\S*)$")
SMAPS = Path("/proc/self/smaps")
_CLEAN = dict[str, list[tuple[int, int]]]()  # by library: its mappings stay, and the kernel writes smaps slowly


def forget_library(name: str) -> None:
    """Unmap what is resident of a library's code and constants, Linux only; a later call reads them from the page cache.

    LLVM, which links kernels when a model is loaded, is 45 MB. Mappings that anything was written to are left alone.
    """
    if sys.platform != "linux":
        return
    try:
        if not _CLEAN.get(name):
            _CLEAN[name] = list(clean_ranges(SMAPS.read_text(encoding="ascii", errors="replace"), name))
        madvise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return
    for start, end in _CLEAN[name]:
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), DONT_NEED)


def release_pages(block: npt.NDArray[np.uint8]) -> None:
    """Let the system have the pages of an array until they are touched again, Linux only. Its contents are gone."""
    start, end = (-(-block.ctypes.data // mmap.PAGESIZE), (block.ctypes.data + block.nbytes) // mmap.PAGESIZE)
    if sys.platform == "linux" and end > start:
        size = (end - start) * mmap.PAGESIZE
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start * mmap.PAGESIZE), ctypes.c_size_t(size), DONT_NEED)


def clean_ranges(smaps: str, name: str) -> Iterator[tuple[int, int]]:
    """Start and end of the mappings of files called `name`... that cannot be written and have no page of their own."""
    current: tuple[int, int] | None = None
    for line in smaps.splitlines():
        if match := RANGE.match(line):
            ours = Path(match[4]).name.startswith(name) and "w" not in match[3]
            current = (int(match[1], 16), int(match[2], 16)) if ours else None
        elif current is not None and line.startswith("Anonymous:") and int(line.split()[1]) == 0:
            yield current
