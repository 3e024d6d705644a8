"""Kernels as machine code: compiled in other processes by Numba, kept on disk, linked here without it."""

from __future__ import annotations

from edgellm.backends.cpu.jit.build import kernel_addresses
from edgellm.backends.cpu.jit.isa import choose_isa
from edgellm.backends.cpu.jit.linker import Linker

__all__ = ["Linker", "choose_isa", "kernel_addresses"]
