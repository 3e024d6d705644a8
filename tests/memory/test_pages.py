"""Pages of keys, values and states: alignment, zeros, copies, and the system's huge pages."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from edgellm.backends.cpu.buffers import ALIGNMENT
from edgellm.backends.cpu.pages import HUGE_PAGE, address_of, contents, copied, new_page, page_bytes


@pytest.mark.parametrize("nbytes", [1, 4096, HUGE_PAGE - 1, HUGE_PAGE, 2 * HUGE_PAGE + 12_345])
def test_a_page_is_zeroed_aligned_and_copied(nbytes: int) -> None:
    page = new_page(nbytes)
    assert page_bytes(page) == nbytes and len(contents(page)) == nbytes
    assert contents(page).ctypes.data == address_of(page) and address_of(page) % ALIGNMENT == 0
    assert not contents(page).any()
    contents(page)[:] = np.arange(nbytes, dtype=np.uint64).astype(np.uint8)
    other = copied(page)
    assert (contents(other) == contents(page)).all()
    contents(other)[-1] ^= 1
    assert contents(page)[-1] == (nbytes - 1) % 256


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="the system has no transparent huge pages")
def test_whole_huge_pages_and_no_more() -> None:
    """Advice is given for as many as fit, so that the rest takes no more memory than it needs."""
    page = new_page(2 * HUGE_PAGE + 12_345)
    start = address_of(page)
    assert start % HUGE_PAGE == 0
    smaps = Path("/proc/self/smaps")
    if not smaps.is_file() or "VmFlags" not in (text := smaps.read_text()):
        pytest.skip("the system does not tell the flags of memory")
    flags = {
        int(begin, 16): (int(end, 16), found.split())
        for begin, end, found in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) .*?^VmFlags:(.*?)$", text, re.MULTILINE | re.DOTALL)
    }
    end, advised = flags[start]
    assert "hg" in advised and end == start + 2 * HUGE_PAGE


def test_memory_that_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> mmap.mmap:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refused)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with pytest.raises(MemoryError, match="keys and values"):
            new_page(HUGE_PAGE)
    assert page_bytes(new_page(100)) == 100
