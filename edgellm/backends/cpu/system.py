"""The operating system and the processor: cores, features, system calls."""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from edgellm.backends.cpu import arm
from edgellm.backends.cpu.levels import ladder

FUTEX_CALL = {"x86_64": 202, "aarch64": 98}.get(platform.machine()) if sys.platform == "linux" else None  # system call number
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA = 158, 0x1023, 18  # from Linux 5.16 on
YIELD_SYMBOL = "SwitchToThread" if sys.platform == "win32" else "sched_yield"


@functools.cache
def host_features() -> frozenset[str]:
    """LLVM's names of the features that this processor has and the operating system has switched on."""
    if is_arm():
        return arm.features()
    import llvmlite.binding as llvm

    return frozenset(name for name, there in llvm.get_host_cpu_features().items() if there)


def host_cpu() -> str:
    """LLVM's name of this processor; part of cache keys, so kernels may depend on it."""
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_name())


def is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")


def zen() -> int:
    """The generation of an AMD Zen processor, 0 for others: streams of memory want other prefetching than Intel's."""
    generation = host_cpu().partition("znver")[2] if is_x86() else ""
    return int(generation) if generation.isdecimal() else 0


def is_arm() -> bool:
    """A processor of 64 bits; those of 32 have the generic ISA level only."""
    return platform.machine().lower() in ("aarch64", "arm64")


def usable_isas() -> tuple[str, ...]:
    """The ISA levels of the ladder that this machine can run, lowest first."""
    lowest, *others = ladder("x86" if is_x86() else "arm" if is_arm() else "")
    usable = (
        level.name
        for level in others
        if any(needs <= host_features() for needs in level.needs) and (not level.tried or amx_permitted())
    )
    return lowest.name, *usable


@functools.cache
def amx_permitted() -> bool:
    """Ask Linux for the tile registers, which it gives to a process once. False where it refuses, or is not Linux."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    import ctypes

    return bool(ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0)


def usable_cores() -> int:
    """Physical cores that this process may use: affinity and cgroup quota respected, SMT siblings not counted."""
    if sys.platform != "linux":
        allowed = os.cpu_count() or 1
        return max(1, min(allowed, _performance_cores() or _physical_cores() or allowed))
    usable = os.sched_getaffinity(0)
    cores = _distinct_cores(usable) or min(len(usable), _physical_cores() or len(usable))
    return max(1, min([cores, *_quotas()]))


def _distinct_cores(cpus: Iterable[int], root: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """Number of physical cores behind these logical ones; None if Linux lacks the topology of any."""
    try:
        return len(
            {
                tuple((root / f"cpu{cpu}/topology/{name}").read_text().strip() for name in ("physical_package_id", "core_id"))
                for cpu in cpus
            }
        )
    except OSError:
        return None


def core_classes(devices: Path = Path("/sys/devices")) -> dict[str, int]:
    """Logical cores of each class, the fastest first, from Linux; empty if it lists no classes.

    `cpu_capacity` is of 1024 for the fastest (ARM, and x86 from Linux 6.12 on); Intel's two kinds are devices of their own.
    """
    capacities = [int(text) for file in devices.glob("system/cpu/cpu[0-9]*/cpu_capacity") if (text := _first_line(file)).isdigit()]
    if capacities:
        return {f"capacity {capacity}": capacities.count(capacity) for capacity in sorted(set(capacities), reverse=True)}
    kinds = {kind: _listed(_first_line(devices / f"cpu_{kind}" / "cpus")) for kind in ("core", "atom")}
    return {f"Intel's {kind}": count for kind, count in kinds.items() if count}


@functools.cache
def cores_differ() -> bool:
    """True if some cores are of a slower kind. Windows has no simple query for it, so there it is always true."""
    return sys.platform == "win32" or len(core_classes()) > 1


def _first_line(file: Path) -> str:
    try:
        return file.read_text().partition("\n")[0].strip()
    except OSError:
        return ""


def _listed(text: str) -> int:
    """Count the numbers of a list like "0-3,8"."""
    spans = [[int(end) for end in span.split("-")] for span in text.split(",") if re.fullmatch(r"\d+(-\d+)?", span)]
    return sum(span[-1] - span[0] + 1 for span in spans)


def _quotas(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Iterator[int]:
    """Whole cores of every CPU quota that holds for this process: of its cgroup and of all above it."""
    try:
        paths = [line.split(":", 2)[-1] for line in own.read_text().splitlines()]
    except OSError:
        paths = []
    for base in (root, root / "cpu"):
        folders = {base}
        for path in paths:
            folder = base / path.strip("/") if ".." not in path else base  # a container may see its own group as the root
            folders.update(group for group in (folder, *folder.parents) if base in group.parents)
        yield from (quota for folder in folders if (quota := _cgroup_quota(folder)) is not None)


def _physical_cores() -> int | None:
    import psutil

    cores: int | None = psutil.cpu_count(logical=False)
    return cores


def _performance_cores() -> int | None:
    """Apple Silicon: efficiency cores slow a barrier down, so only the fast cluster counts."""
    if sys.platform != "darwin":
        return None
    import ctypes

    libc, value = ctypes.CDLL(None), ctypes.c_int(0)
    size = ctypes.c_size_t(ctypes.sizeof(value))
    failed = libc.sysctlbyname(b"hw.perflevel0.physicalcpu", ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return value.value if not failed and value.value > 0 else None


def _cgroup_quota(root: Path) -> int | None:
    """Whole cores of a cgroup v2 or v1 CPU quota, rounded up; None where there is none."""
    for quota_file, period_file in ((root / "cpu.max", None), (root / "cpu.cfs_quota_us", root / "cpu.cfs_period_us")):
        try:
            words = quota_file.read_text().split() + (period_file.read_text().split() if period_file else [])
            quota, period = words[0], int(words[1])
        except (OSError, IndexError, ValueError):
            continue
        if quota == "max" or int(quota) <= 0 or period <= 0:
            return None
        return max(1, -(-int(quota) // period))
    return None
