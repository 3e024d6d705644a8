"""How much memory a model may take here: what the system has free, and the limits set on this process and its container."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SPARE = 0.10  # of the free memory, left to other programs
GROUPS = Path("/sys/fs/cgroup")
COMPILER = 224 << 20  # address space that Numba and LLVM take when the first model loads


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes: `available` without swapping, under every limit that holds; `address_space` that this process may still map."""

    available: int
    address_space: int | None = None  # None: no limit

    @property
    def usable(self) -> int:
        """Bytes that a model may take, its file included: a tenth stays free."""
        return int(self.available * (1 - SPARE))

    @property
    def mappable(self) -> int:
        """Bytes that a model whose file is mapped already may take beside it."""
        return self.usable if self.address_space is None else min(self.usable, int(self.address_space * (1 - SPARE)))


def memory(groups: Path = GROUPS, own: Path = Path("/proc/self/cgroup")) -> Memory:
    """The memory that is free now. Cached file pages count as free: a model's own file may be among them."""
    import psutil

    free = int(psutil.virtual_memory().available)
    if sys.platform == "linux":
        free = min([free, *(max(0, left) for left, _ in _group_limits(groups, own))])
    if (limit := _address_limit()) is None:
        return Memory(free)
    taken = int(psutil.Process().memory_info().vms) + (0 if "llvmlite" in sys.modules else COMPILER)
    return Memory(free, max(0, limit - taken))


def free_memory(groups: Path = GROUPS, own: Path = Path("/proc/self/cgroup")) -> float:
    """The share of this machine's memory that is free, from 0 to 1; of a container's, where less of its limit is left."""
    import psutil

    system = psutil.virtual_memory()
    limits = _group_limits(groups, own) if sys.platform == "linux" else ()
    return float(min([system.available / system.total, *(max(0, left) / max(1, most) for left, most in limits)]))


def _group_limits(groups: Path, own: Path) -> Iterator[tuple[int, int]]:
    """Bytes left, and the limit, of each cgroup that this process is in, up to the root, where one has a limit (version 2, then
    version 1).
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            yield from _up(groups, path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            yield from _up(groups / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes")


def _up(root: Path, path: str, limit: str, usage: str) -> Iterator[tuple[int, int]]:
    """A container may see its own group as the root, so a folder that is not there is passed over."""
    folder = root / path.strip("/") if ".." not in path else root
    for group in (folder, *folder.parents):
        with contextlib.suppress(OSError, ValueError):  # ValueError: "max"
            most, used = int((group / limit).read_text()), int((group / usage).read_text())
            yield most - used + _cached(group), most
        if group == root:
            return


def _cached(group: Path) -> int:
    """Bytes of a group that are file pages: counted as used, but given back when they are needed."""
    with contextlib.suppress(OSError, ValueError):
        numbers = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        prefix = "total_" if "total_inactive_file" in numbers else ""  # version 1 counts children under these names
        return sum(int(numbers.get(f"{prefix}{name}", 0)) for name in ("inactive_file", "active_file"))
    return 0


def _address_limit() -> int | None:
    """RLIMIT_AS in bytes, where the system has it and it is set."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else int(soft)
