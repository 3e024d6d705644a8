"""The decorators of helpers inside kernels: no bounds or zero checks, no Python objects; `inline` goes into its callers."""

from __future__ import annotations

from numba import njit

inline = njit(forceinline=True, error_model="numpy", boundscheck=False)
outline = njit(error_model="numpy", boundscheck=False)  # for large helpers with several callers: LLVM decides
