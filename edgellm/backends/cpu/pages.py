"""Pages of memory that states are kept in, aligned for kernels, and how they lie in a file."""

from __future__ import annotations

import contextlib
import mmap
import struct
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu.buffers import ALIGNMENT

Page = npt.NDArray[np.uint8]
NUMBER = struct.Struct("<q")
HUGE_PAGE = 1 << 21  # bytes, on x86 and mostly on ARM


def new_page(nbytes: int) -> Page:
    """A page of zeros, which takes memory once it is written; as many of the system's huge pages as fit, where it has them."""
    if nbytes < HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(nbytes + ALIGNMENT, np.uint8)
    try:
        block = mmap.mmap(-1, nbytes + HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{nbytes} bytes for keys and values") from error
    memory = np.frombuffer(block, np.uint8)
    start = -memory.ctypes.data % HUGE_PAGE
    with contextlib.suppress(OSError):  # a kernel without them
        block.madvise(mmap.MADV_HUGEPAGE, start, nbytes // HUGE_PAGE * HUGE_PAGE)
    return memory[start : start + nbytes + ALIGNMENT]


def page_bytes(page: Page) -> int:
    """Bytes of a page, as given to `new_page`."""
    return len(page) - ALIGNMENT


def address_of(page: Page) -> int:
    """Where its bytes begin."""
    return -(-int(page.ctypes.data) // ALIGNMENT) * ALIGNMENT


def contents(page: Page) -> Page:
    """Its bytes."""
    start = address_of(page) - page.ctypes.data
    return page[start : start + page_bytes(page)]


def copied(page: Page) -> Page:
    """Another page with the same contents."""
    other = new_page(page_bytes(page))
    contents(other)[:] = contents(page)
    return other


def write_number(file: BinaryIO, number: int) -> None:
    """As int64, little-endian."""
    file.write(NUMBER.pack(number))


def read_number(file: BinaryIO, most: int) -> int:
    """A number from 0 to `most`. Raises ValueError."""
    data = file.read(NUMBER.size)
    if len(data) != NUMBER.size or not 0 <= (number := NUMBER.unpack(data)[0]) <= most:
        raise ValueError("a number of pages is missing or too large")
    return int(number)


def read_page(file: BinaryIO, page: Page) -> None:
    """Its contents. Raises ValueError."""
    if file.readinto(contents(page)) != page_bytes(page):  # type: ignore[attr-defined]  # every binary file has it
        raise ValueError("the file ends within a page")
