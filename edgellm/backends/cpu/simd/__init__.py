"""SIMD for kernels: `load_isa(name)` gives one ISA level of the ladder, its operations as Numba functions. Imports numba.

Vectors are Numba values of fixed width (`base.py`); what an ISA level lacks, LLVM splits into narrower instructions. Each ISA level
is a class that emits IR: `generic.py` is portable and complete, the others override what their instructions do better.
`table.py` lists what kernels can call. Compile for an ISA level only where the processor has its features (`system.ISA_NEEDS`):
LLVM aborts the process otherwise.
"""

from __future__ import annotations

from edgellm.backends.cpu.simd.amx import Amx
from edgellm.backends.cpu.simd.avx2 import Avx2
from edgellm.backends.cpu.simd.avx512vnni import Avx512Vnni
from edgellm.backends.cpu.simd.avxvnni import AvxVnni
from edgellm.backends.cpu.simd.base import F32X8, I8X32, I32X8, Vec
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.simd.neon import DotProd, I8mm, Neon
from edgellm.backends.cpu.simd.table import Isa

__all__ = ["F32X8", "I8X32", "I32X8", "ISA_LEVELS", "Isa", "Vec", "load_isa"]

ISA_LEVELS: dict[str, type[Generic]] = {
    isa_level.name: isa_level for isa_level in (Generic, Avx2, AvxVnni, Avx512Vnni, Amx, Neon, DotProd, I8mm)
}
_LOADED: dict[str, Isa] = {}


def load_isa(name: str) -> Isa:
    """The ISA level `name` of the ladder; made once. Raises KeyError for a name that is none."""
    if name not in _LOADED:
        _LOADED[name] = Isa(ISA_LEVELS[name])
    return _LOADED[name]
