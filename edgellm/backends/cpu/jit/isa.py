"""Which instruction set kernels are compiled for."""

from __future__ import annotations

import os

from edgellm.backends.base import Progress
from edgellm.backends.cpu import system
from edgellm.backends.cpu.jit import selftest
from edgellm.backends.cpu.levels import LEVELS
from edgellm.errors import OptionError


def choose_isa(progress: Progress | None = None) -> str:
    """The best ISA level this machine can run, or the one that EDGELLM_ISA forces. AMX has to pass its self-test first."""
    usable = system.usable_isas()
    forced = os.environ.get("EDGELLM_ISA")
    if not forced:
        if LEVELS[usable[-1]].tried and progress is not None and not selftest.made():
            progress("testing this processor's AMX, once", 0, 1)
        return usable[-2] if LEVELS[usable[-1]].tried and not selftest.passed() else usable[-1]
    if forced not in usable:
        raise OptionError(f"EDGELLM_ISA={forced} is not an instruction set of this machine; choose one of {', '.join(usable)}.")
    return forced
