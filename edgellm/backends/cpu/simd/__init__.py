"""SIMD for kernels: `load_isa(name)` gives one ISA level of the ladder, its operations as Numba functions. Imports numba.

Vectors are Numba values of fixed width (`base.py`); what an ISA level lacks, LLVM splits into narrower instructions. Each level of
../levels.py has a class that emits IR: `generic.py` is portable and complete, the others override what their instructions do
better. `table.py` lists what kernels can call. Compile for a level only where the processor has its features: LLVM aborts the
process otherwise.
"""

from __future__ import annotations

import importlib

from edgellm.backends.cpu.levels import LEVELS
from edgellm.backends.cpu.simd.base import F32X8, I8X32, I32X8, Vec
from edgellm.backends.cpu.simd.table import Isa, KernelFunction

__all__ = ["F32X8", "I8X32", "I32X8", "Isa", "KernelFunction", "Vec", "load_isa"]

_LOADED: dict[str, Isa] = {}


def load_isa(name: str) -> Isa:
    """The ISA level `name`; made once. Raises KeyError for an unknown name."""
    if name not in _LOADED:
        module, _, kind = LEVELS[name].instructions.partition(".")
        instructions = getattr(importlib.import_module(f"{__name__}.{module}"), kind)
        if instructions.level.name != name:  # a level by the instructions of another
            instructions = type(kind, (instructions,), {"level": LEVELS[name]})
        _LOADED[name] = Isa(instructions)
    return _LOADED[name]
