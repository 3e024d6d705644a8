"""Pages of memory that states are kept in, aligned for kernels, and how they lie in a file."""
from __future__ import annotations

import struct
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu.buffers import ALIGNMENT

Page = npt.NDArray[np.uint8]
NUMBER = struct.Struct("<q")


def new_page(nbytes: int) -> Page:
    """A page of zeros, which takes memory once it is written."""
    return np.zeros(nbytes + ALIGNMENT, np.uint8)


def page_bytes(page: Page) -> int:
    """How many it has, as `new_page` was told."""
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
    if file.readinto(contents(page)) != page_bytes(page):    # type: ignore[attr-defined]  # every binary file has it
        raise ValueError("the file ends within a page")
