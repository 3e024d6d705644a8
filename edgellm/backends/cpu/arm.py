"""Features of an AArch64 processor, as the operating system reports them; nothing is tried by executing it.

LLVM's own detection goes by the processor's name and lists no dotprod or i8mm for one that it does not know.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

# LLVM's name -> (word of the auxiliary vector: 16 = AT_HWCAP, 26 = AT_HWCAP2; bit), from Linux' asm/hwcap.h
HWCAPS: dict[str, tuple[int, int]] = {
    "neon": (16, 1),
    "lse": (16, 8),
    "fullfp16": (16, 10),
    "dotprod": (16, 20),
    "i8mm": (26, 13),
    "bf16": (26, 14),
}
CPUINFO = {"asimd": "neon", "atomics": "lse", "asimdhp": "fullfp16", "asimddp": "dotprod", "i8mm": "i8mm", "bf16": "bf16"}
SYSCTLS: dict[str, tuple[bytes, ...]] = {  # macOS: the second name is that of releases before 12
    "lse": (b"hw.optional.arm.FEAT_LSE", b"hw.optional.armv8_1_atomics"),
    "fullfp16": (b"hw.optional.arm.FEAT_FP16", b"hw.optional.neon_fp16"),
    "dotprod": (b"hw.optional.arm.FEAT_DotProd",),
    "i8mm": (b"hw.optional.arm.FEAT_I8MM",),
    "bf16": (b"hw.optional.arm.FEAT_BF16",),
}
# Windows: PF_ARM_* of winnt.h; the last two are of its 2024 releases, older systems answer no to them
WINDOWS = {"neon": 19, "lse": 34, "dotprod": 43, "i8mm": 66, "bf16": 68}


def features() -> frozenset[str]:
    """LLVM's names of the features above that this processor has and its operating system allows; NEON always."""
    found = {"linux": _linux, "darwin": _mac, "win32": _windows}.get(sys.platform, lambda: frozenset[str]())()
    return found | {"neon"}


def _linux() -> frozenset[str]:
    try:
        getauxval = ctypes.CDLL(None).getauxval
    except (AttributeError, OSError):  # a C library without it
        return from_cpuinfo(Path("/proc/cpuinfo"))
    getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    return from_hwcaps({word: getauxval(word) for word in (16, 26)})


def from_hwcaps(words: Mapping[int, int]) -> frozenset[str]:
    """From the words of the auxiliary vector, by their number. Of unequal cores they hold what all have."""
    return frozenset(name for name, (word, bit) in HWCAPS.items() if words[word] >> bit & 1)


def from_cpuinfo(path: Path) -> frozenset[str]:
    """From /proc/cpuinfo: what every core lists; nothing where it cannot be read."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return frozenset()
    cores = [frozenset(line.partition(":")[2].split()) for line in lines if line.startswith("Features")]
    common = frozenset.intersection(*cores) if cores else frozenset()
    return frozenset(name for flag, name in CPUINFO.items() if flag in common)


def _mac() -> frozenset[str]:
    libc = ctypes.CDLL(None)

    def ask(name: bytes) -> bool:
        value = ctypes.c_int64(0)
        size = ctypes.c_size_t(ctypes.sizeof(value))
        failed = libc.sysctlbyname(name, ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
        return not failed and value.value == 1

    return from_sysctl(ask)


def from_sysctl(ask: Callable[[bytes], bool]) -> frozenset[str]:
    """`ask(name)`: whether that sysctl exists and is 1."""
    return frozenset(name for name, keys in SYSCTLS.items() if any(ask(key) for key in keys))


def _windows() -> frozenset[str]:
    kernel32 = getattr(ctypes, "windll").kernel32  # noqa: B009  # mypy knows it on Windows only
    return from_processor_features(lambda number: bool(kernel32.IsProcessorFeaturePresent(number)))


def from_processor_features(ask: Callable[[int], bool]) -> frozenset[str]:
    """`ask(number)`: what Windows' IsProcessorFeaturePresent says."""
    return frozenset(name for name, number in WINDOWS.items() if ask(number))
