"""The memory map of a model file."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from edgellm.formats.mapped import MappedFile

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(sys.platform != "linux" or not HUGE_PAGES.exists(), reason="a kernel without huge pages")
def test_huge_pages_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(5 << 20))
    file = MappedFile(path)
    maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    flags = [re.search(r"VmFlags:(.*)", each) for each in maps if str(path) in each]
    file.close()
    assert len(flags) == 1 and flags[0] and "hg" in flags[0][1].split()
