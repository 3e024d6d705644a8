"""Rows of one tensor type to rows of another, through kernels where there are some and NumPy codecs where not."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import Progress
from edgellm.backends.cpu import jit
from edgellm.errors import Unsupported
from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import GGMLType
from edgellm.formats.mapped import Bytes
from edgellm.tools.converted import LARGEST_F16, PLAIN

Floats = npt.NDArray[np.float32]
IMPORTANCE = "+importance"
# Variants of kernels/encode/encode.py, which imports numba: a test holds them together.
KERNELS = frozenset(
    {
        "Q4_0",
        "Q4_1",
        "Q5_0",
        "Q5_1",
        "Q8_0",
        "MXFP4",
        "Q2_K",
        "Q3_K",
        "Q4_K",
        "Q5_K",
        "Q6_K",
        "IQ4_NL",
        "IQ4_XS",
        *(
            name + IMPORTANCE
            for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS")
        ),
    }
)
WIDENED = frozenset({"F16", "BF16"})
_LANES = 16
_SCRATCH_BYTES, _LINE = 1 << 14, 64
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class TensorEncoder:
    """Kernels from `sources` to `targets`, compiled at the start; `weighted`: also those that take an importance.

    `encode` may be called from several threads at a time: kernels hold no lock.
    """

    def __init__(self, sources: Iterable[str], targets: Iterable[str], *, weighted: bool, progress: Progress | None = None) -> None:
        self._linker = jit.Linker()  # the code lives as long as this does
        names = set(targets) | ({name + IMPORTANCE for name in targets} if weighted else set())
        wanted = {f"encode:{name}" for name in (names & KERNELS) | (set(sources) & WIDENED)}
        found = jit.kernel_addresses(wanted, jit.choose_isa(progress), self._linker, progress) if wanted else {}
        self._kernels = {name.removeprefix("encode:"): _SIGNATURE(address) for name, address in found.items()}

    def encode(self, raw: Bytes, source: GGMLType, target: GGMLType, importance: Floats | None = None) -> Bytes:
        """Rows (rows, bytes of `source`) to (rows, bytes of `target`). importance (columns,). ValueError on NaN or Inf,
        OverflowError on values that are too large for the scales of blocks.
        """
        values = self.decode(raw, source)
        low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)
        if not np.isfinite(low + high):  # both are NaN if any value is
            raise ValueError("NaN or Inf")
        encoded = self._encoded(values, target, importance)
        risky = max(-low, high) > LARGEST_F16 and target.name not in PLAIN
        if risky and not np.isfinite(CODECS[target.name].dequantize(encoded)).all():
            raise OverflowError("beyond the range of scales")
        return encoded

    def _encoded(self, values: Floats, target: GGMLType, importance: Floats | None) -> Bytes:
        if target.name == "F32":
            return values.view(np.uint8)
        name = target.name
        if importance is not None and name + IMPORTANCE in self._kernels:
            name += IMPORTANCE
        if name not in self._kernels:
            return CODECS[target.name].quantize(values, importance)
        return self._run(name, values, target, importance)

    def decode(self, raw: Bytes, source: GGMLType) -> Floats:
        """Rows as float32, a view where they are."""
        if source.name == "F32":
            return np.ascontiguousarray(raw).view("<f4")
        if source.name in self._kernels and raw.size // source.block_bytes % _LANES == 0:
            raw = np.ascontiguousarray(raw)
            out = np.empty((len(raw), raw.shape[1] // source.block_bytes), np.float32)
            self._call(source.name, raw.ctypes.data, out.size // _LANES, out.ctypes.data)
            return out
        return CODECS[source.name].dequantize(raw)

    def _run(self, name: str, values: Floats, target: GGMLType, importance: Floats | None) -> Bytes:
        rows, columns = values.shape
        values = np.ascontiguousarray(values, np.float32)
        out = np.empty((rows, columns // target.block * target.block_bytes), np.uint8)
        scratch = np.empty(_SCRATCH_BYTES + _LINE, np.uint8)
        aligned = -(-scratch.ctypes.data // _LINE) * _LINE
        costs = np.zeros(0, np.float32) if importance is None else np.ascontiguousarray(importance, np.float32)
        self._call(
            name,
            values.ctypes.data,
            values.size // target.block,
            out.ctypes.data,
            aligned,
            costs.ctypes.data,
            columns // target.block,
        )
        return out

    def _call(self, name: str, *words: int) -> None:
        record = np.zeros(8, np.int64)
        record[1 : 1 + len(words)] = words
        self._kernels[name](record.ctypes.data, 0, 1)


def check_encodable(kind: GGMLType, file: str, field: str) -> None:
    """Raise Unsupported where no codec writes this type."""
    if kind.name not in CODECS:
        raise Unsupported(kind.refusal, file=file, field=field)
