"""Which mappings of a library may be given back, and that a model still loads and answers afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import tiny_model

import edgellm
from edgellm.backends.cpu.page_release import clean_ranges, forget_library

SMAPS = """7f0000000000-7f0000001000 r--p 00000000 fe:00 1  /usr/lib/libllvmlite.so
Rss:                   4 kB
Anonymous:             0 kB
7f0000001000-7f0000004000 r-xp 00001000 fe:00 1  /usr/lib/libllvmlite.so
Anonymous:             0 kB
7f0000004000-7f0000005000 r--p 00004000 fe:00 1  /usr/lib/libllvmlite.so
Anonymous:             4 kB
7f0000005000-7f0000006000 rw-p 00005000 fe:00 1  /usr/lib/libllvmlite.so
Anonymous:             0 kB
7f0000006000-7f0000007000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7f0000007000-7f0000008000 r-xp 00000000 fe:00 2  /usr/lib/libother.so
Anonymous:             0 kB
"""


def test_only_clean_mappings_that_cannot_be_written() -> None:
    ranges = [(start & 0xFFFF, end & 0xFFFF) for start, end in clean_ranges(SMAPS, "libllvmlite")]
    assert ranges == [(0x0000, 0x1000), (0x1000, 0x4000)]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/smaps")
def test_a_library_that_was_given_back_still_works(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf")
    answers = []
    for _ in range(2):  # loading links kernels, and gives LLVM's pages back at the end
        with edgellm.load(path) as model:
            answers.append(model.generate([1, 2, 3], max_tokens=4, temperature=0).token_ids)
        forget_library("libllvmlite")
        forget_library("libpython")
    assert answers[0] == answers[1]


LOADED = """
import sys
from pathlib import Path
import edgellm
from edgellm.backends.cpu.page_release import RANGE, SMAPS
from edgellm.loading import weight_memory

def resident(library):
    total, ours = 0, False
    for line in SMAPS.read_text(encoding="ascii", errors="replace").splitlines():
        if match := RANGE.match(line):
            ours = Path(match[4]).name.startswith(library)
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1]) << 10
    return total

def hold(*arguments, **options):
    print("llvmlite.binding" in sys.modules, resident("libllvmlite"))

weight_memory.hold = hold
edgellm.load(sys.argv[1], mmap=False).close()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/smaps")
def test_llvm_is_loaded_and_its_pages_given_back_before_weights_are_read(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf")
    done = subprocess.run([sys.executable, "-c", LOADED, str(path)], capture_output=True, text=True, check=True)
    there, resident = done.stdout.split()
    assert there == "True" and int(resident) < 8 << 20  # of more than 35 MB right after loading
