"""Affine quants of MLX by kernels, as float32 and in products of few rows: MLX's own CPU build takes about ten times as long."""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu import jit
from edgellm.backends.cpu.record import Signature

Floats = npt.NDArray[np.float32]
Ends = npt.NDArray[Any]  # steps or lows (rows, groups): float32, float16, or bfloat16 as uint16

DECODE = Signature("quants steps lows out groups octets")  # octets of a group
PRODUCT = Signature("quants steps lows x out out_bytes rows columns groups octets")  # groups of a row
BITS = (2, 3, 4, 5, 6, 8)
KINDS = {"f": "F32", "e": "F16", "H": "BF16"}  # by NumPy's character
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class AffineKernels:
    """The kernels of some widths and types of steps, compiled at the start. Threads may call them at a time: they hold no lock."""

    def __init__(self, bits: Collection[int], kinds: Collection[str], isa: str | None = None) -> None:
        names = {f"affine:{width}" for width in bits} | {f"affine_rows:{width}:{kind}" for width in bits for kind in kinds}
        self._linker = jit.Linker()  # the code lives as long as this does
        addresses = jit.kernel_addresses(names, isa or jit.choose_isa(), self._linker)
        self._kernels = {name: _KERNEL(address) for name, address in addresses.items()}

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
        self._kernels[f"affine:{bits}"](record.ctypes.data, 0, 1)

    def product(self, bits: int, quants: npt.NDArray[np.uint32], steps: Ends, lows: Ends, x: Floats, out: Floats) -> None:
        """x (T, columns) by these rows: out (T, rows), of which a row alone has to be contiguous."""
        record = PRODUCT.record(
            quants=quants.ctypes.data,
            steps=steps.ctypes.data,
            lows=lows.ctypes.data,
            x=x.ctypes.data,
            out=out.ctypes.data,
            out_bytes=out.strides[0],
            rows=len(quants),
            columns=len(x),
            groups=steps.shape[1],
            octets=x.shape[1] // steps.shape[1] // 8,
        )
        self._kernels[f"affine_rows:{bits}:{KINDS[steps.dtype.char]}"](record.ctypes.data, 0, 1)
