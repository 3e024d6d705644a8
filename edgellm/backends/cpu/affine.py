"""Affine quants of MLX as float32, by a kernel: MLX's own CPU build takes eight times as long."""

from __future__ import annotations

import ctypes
from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu import jit
from edgellm.backends.cpu.record import Signature

Floats = npt.NDArray[np.float32]

DECODE = Signature("quants steps lows out groups octets")  # octets of a group
BITS = (2, 3, 4, 5, 6, 8)
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class AffineDecoder:
    """The kernels of these widths, compiled at the start. Threads may call it at a time: kernels hold no lock."""

    def __init__(self, bits: Collection[int], isa: str | None = None) -> None:
        self._linker = jit.Linker()  # the code lives as long as this does
        addresses = jit.kernel_addresses({f"affine:{width}" for width in bits}, isa or jit.choose_isa(), self._linker)
        self._kernels = {width: _KERNEL(addresses[f"affine:{width}"]) for width in bits}

    def decode(self, bits: int, quants: npt.NDArray[np.uint32], steps: Floats, lows: Floats, out: Floats) -> None:
        """quants (rows, columns * bits / 32) with steps and lows (rows, groups) to out (rows, columns), all of them contiguous."""
        record = DECODE.record(
            quants=quants.ctypes.data,
            steps=steps.ctypes.data,
            lows=lows.ctypes.data,
            out=out.ctypes.data,
            groups=steps.size,
            octets=out.size // steps.size // 8,
        )
        self._kernels[bits](record.ctypes.data, 0, 1)
