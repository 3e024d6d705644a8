"""Findings of `edgellm doctor` about the processor and the kernels for it."""

from __future__ import annotations

import os
import platform

from edgellm.backends.base import Finding
from edgellm.backends.cpu import jit, system
from edgellm.backends.cpu.jit import selftest
from edgellm.backends.cpu.jit.cache import ObjectCache


def _processor() -> Finding:
    python = f"Python {platform.python_version()}"
    return Finding("processor", f"{system.host_cpu()} ({platform.machine()}), {platform.system()}, {python}")


def _cores() -> Finding:
    """By class, where the system reports classes."""
    classes = system.core_classes()
    kinds = " + ".join(f"{count} of {name}" for name, count in classes.items()) if len(classes) > 1 else ""
    usable, there = system.usable_cores(), os.cpu_count() or 1
    advice = "" if usable > 1 else "one core is slow; give this process or container more"
    return Finding("cores", f"{usable} used of {there} logical ones{f' ({kinds})' if kinds else ''}", advice)


def _instructions() -> Finding:
    best, used = system.usable_isas()[-1], jit.choose_isa()
    if used != best and not os.environ.get("EDGELLM_ISA"):
        return Finding("instructions", f"{used}; {best} is there, but a trial of it was {selftest.verdict()}")
    if used == "amx" and not os.environ.get("EDGELLM_ISA"):
        return Finding("instructions", f"{used}; a trial of it was {selftest.verdict()}")
    if used != best:
        return Finding("instructions", f"{used}, forced by EDGELLM_ISA", f"unset EDGELLM_ISA: {best} is faster")
    slow = best == "generic" and system.is_x86()
    return Finding("instructions", best, "this processor has no AVX2, so models run slowly; take small ones" if slow else "")


def _kernel_cache() -> Finding:
    cache = ObjectCache(jit.choose_isa())
    try:
        kernels = sum(1 for file in cache.folder.iterdir() if file.is_file())
        return Finding("kernel cache", f"{cache.folder}, {kernels} files", cache.note and f"{cache.note}; set EDGELLM_CACHE")
    finally:
        cache.close()


LOOKS = {"processor": _processor, "cores": _cores, "instructions": _instructions, "kernel cache": _kernel_cache}
