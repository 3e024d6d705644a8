"""GPTQ and AWQ checkpoints: matrices of small integers with scales and zero points, and the GGUF types that hold them exactly.

w = scale * (q - zero) for groups of columns. Layouts: AutoGPTQ's and GPTQModel's `qweight`, `qzeros`, `scales`, `g_idx`, and
AutoAWQ's GEMM form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.checkpoints.packings.exact import ExactCheckpoint
from edgellm.checkpoints.source import Rows, Source
from edgellm.errors import BadTensorInfo, Unsupported
from edgellm.formats.codecs import CODECS
from edgellm.formats.mapped import Bytes
from edgellm.formats.safetensors import SafeTensorsFile

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # column of each nibble, from the lowest
METHODS = ("gptq", "awq")
EXACT = ("Q4_0", "Q4_1", "Q8_0", "F16")  # each holds what the ones before it do, of 4 bits at most
BLOCK = 32
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Grouped:
    """One matrix. `group`: columns that share a scale, 0 where `group_of` (columns,) says otherwise (act-order)."""

    q: Ints  # (rows, columns)
    scales: npt.NDArray[np.float32]  # (rows, groups)
    zeros: Ints  # (rows, groups)
    group: int
    group_of: Ints

    def values(self) -> npt.NDArray[np.float32]:
        """(rows, columns) f32."""
        return self.scales[:, self.group_of] * (self.q - self.zeros[:, self.group_of]).astype(np.float32)

    def exact_type(self) -> tuple[str, str]:
        """The smallest GGUF type that holds the matrix exactly, and why it is no smaller one."""
        halves = self.scales.astype(np.float16).astype(np.float32)
        if not self.group or self.group % BLOCK or self.q.shape[1] % BLOCK:
            return "F16", "their groups are not runs of 32 columns"
        if (halves != self.scales).any():
            return "F16", "their scales are not F16 numbers"
        if self.q.max(initial=0) <= 15:
            if (self.zeros == 8).all():
                return "Q4_0", ""
            offsets = self.scales * -self.zeros.astype(np.float32)
            if (offsets.astype(np.float16).astype(np.float32) == offsets).all():
                return "Q4_1", ""
        steps = self.q - self.zeros[:, self.group_of]
        fits = steps.size == 0 or (steps.min() >= -128 and steps.max() <= 127)
        return ("Q8_0" if fits else "F16", "of their zero points")

    def encoded(self, kind: str, rows: Rows | None) -> Bytes:
        """The matrix as rows of Q4_0, Q4_1 or Q8_0 blocks, in the order `rows`."""
        order = slice(None) if rows is None else rows
        q, scales, zeros = self.q[order], self.scales[order], self.zeros[order]
        of_block = self.group_of[::BLOCK]
        blocks = np.zeros((len(q), q.shape[1] // BLOCK), CODECS[kind].dtype)
        blocks["d"] = scales[:, of_block]
        codes = q.reshape(len(q), -1, BLOCK)
        if kind == "Q8_0":
            blocks["qs"] = codes - zeros[:, of_block, None]
        else:
            if kind == "Q4_1":
                blocks["m"] = scales[:, of_block] * -zeros[:, of_block].astype(np.float32)
            blocks["qs"] = codes[..., : BLOCK // 2] | codes[..., BLOCK // 2 :] << 4
        return blocks.view(np.uint8).reshape(-1)


class PackedCheckpoint(ExactCheckpoint):
    """A checkpoint in GPTQ's or AWQ's form; `grouped` gives the integers of a matrix."""

    PARTS = ("qweight", "qzeros", "scales", "g_idx")

    def __init__(self, file: SafeTensorsFile, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self.bits = settings.get("bits", settings.get("w_bit"))
        self.method = str(settings.get("quant_method")).lower()
        if self.method not in METHODS or self.bits not in (2, 3, 4, 8) or (self.method == "awq" and self.bits != 4):
            raise Unsupported(
                f"is quantised by {self.method[:40]!r} with {self.bits!r} bits; edgellm converts GPTQ with 2, 3, 4, "
                "8 bits and AWQ with 4",
                file=file.paths[0],
                field="quantization_config",
            )
        if self.method == "awq" and str(settings.get("version", "gemm")).lower() != "gemm":
            raise Unsupported("is AWQ in another form than GEMM", file=file.paths[0], field="quantization_config.version")
        super().__init__(file, {name.removesuffix(".qweight"): name for name in file.tensors if name.endswith(".qweight")})

    def grouped(self, name: str) -> Grouped:
        """The integers of a packed matrix. Raises BadTensorInfo where its parts contradict each other."""
        base = name.removesuffix(".weight")
        rows, columns = self._shape(base)
        scales = np.ascontiguousarray(self._part(base, "scales").astype(np.float32).T)
        words, zeros = self._part(base, "qweight"), self._part(base, "qzeros")
        groups = scales.shape[1] if scales.ndim == 2 else 0
        packs = 32 // self.bits if self.method == "awq" else 0
        expected = (columns, rows // packs) if packs else (columns * self.bits // 32, rows)
        whole = groups and rows * self.bits % 32 == 0 and scales.shape[0] == rows
        if not whole or words.shape != expected or zeros.shape != (groups, rows * self.bits // 32):
            raise BadTensorInfo(
                "qweight, qzeros and scales do not fit each other; download the folder again", file=self.paths[0], field=base
            )
        group_of, group = self._groups(base, columns, groups)
        if self.method == "awq":
            return Grouped(np.ascontiguousarray(_awq(words).T), scales, np.ascontiguousarray(_awq(zeros).T), group, group_of)
        q = np.ascontiguousarray(_unpack(words, self.bits, columns).T)
        offset = 0 if self._settings.get("checkpoint_format") == "gptq_v2" else 1  # the first form stores zeros less 1
        stored = _unpack(np.ascontiguousarray(zeros.T), self.bits, rows)
        return Grouped(q, scales, (stored + offset) & ((1 << self.bits) - 1), group, group_of)

    def values(self, name: str) -> npt.NDArray[np.float32]:
        return self.grouped(name).values()

    def encoded(self, name: str, kind: str, rows: Rows | None) -> Bytes:
        return self.grouped(name).encoded(kind, rows)

    def exact_type(self, source: Source) -> tuple[str, str]:
        found = [self.grouped(name).exact_type() for name in source.names]
        if len(set(found)) > 1 and self.bits > 4:  # what fits 4 bits by chance may lie beyond Q8_0
            return "F16", "their experts would be of several types"
        return max(found, key=lambda each: EXACT.index(each[0]))

    def _shape(self, base: str) -> tuple[int, int]:
        shape = self._file.tensors[f"{base}.qweight"].shape
        if len(shape) != 2:
            raise BadTensorInfo(f"has shape {shape}; download the folder again", file=self.paths[0], field=f"{base}.qweight")
        per_word = 32 // self.bits
        return (shape[1] * per_word, shape[0]) if self.method == "awq" else (shape[1], shape[0] * 32 // self.bits)

    def _part(self, base: str, part: str) -> npt.NDArray[Any]:
        name = f"{base}.{part}"
        info = self._file.tensors.get(name)
        if info is None or (part.startswith("q") and info.dtype not in ("I32", "U32")):
            raise BadTensorInfo("is missing or holds no 32-bit words; download the folder again", file=self.paths[0], field=name)
        array = self._file.array(name)
        return array.view(np.uint32) if part.startswith("q") else array

    def _groups(self, base: str, columns: int, groups: int) -> tuple[Ints, int]:
        """The group of each column, and how many columns in a row share one (0: they are not in a row)."""
        size = self._settings.get("group_size", self._settings.get("q_group_size"))
        group = size if isinstance(size, int) and size > 0 else columns
        if -(-columns // group) != groups:
            raise BadTensorInfo(
                f"has {groups} groups of {group} for {columns} columns; download the folder again",
                file=self.paths[0],
                field=f"{base}.scales",
            )
        plain = (np.arange(columns) // group).astype(np.int32)
        if f"{base}.g_idx" not in self._file.tensors:
            return plain, group
        order = self._file.array(f"{base}.g_idx").reshape(-1).astype(np.int32)
        if len(order) != columns or order.min(initial=0) < 0 or order.max(initial=0) >= groups:
            raise BadTensorInfo(
                "names groups that do not exist; download the folder again", file=self.paths[0], field=f"{base}.g_idx"
            )
        return order, group if (order == plain).all() else 0


def unpacked_integers(file: SafeTensorsFile, config: Mapping[str, Any]) -> SafeTensorsFile:
    """The file, or where its matrices are packed as GPTQ and AWQ do it, one that unpacks them."""
    settings = config.get("quantization_config")
    if not isinstance(settings, Mapping) or not any(name.endswith(".qweight") for name in file.tensors):
        return file
    return PackedCheckpoint(file, settings)


def _unpack(words: npt.NDArray[np.uint32], bits: int, n: int) -> Ints:
    """(words, m) to (n, m): numbers of `bits` bits one after the other down each column, lowest bits first."""
    wide = np.concatenate([words, np.zeros((1, words.shape[1]), np.uint32)]).astype(np.uint64)
    at = np.arange(n) * bits
    pairs = wide[at // 32] | wide[at // 32 + 1] << np.uint64(32)
    return (pairs >> (at % 32).astype(np.uint64)[:, None] & np.uint64((1 << bits) - 1)).astype(np.int32)


def _awq(words: npt.NDArray[np.uint32]) -> Ints:
    """(m, words) to (m, 8 * words)."""
    out = np.empty((*words.shape, 8), np.int32)
    for nibble, column in enumerate(AWQ_ORDER):
        out[..., column] = words >> np.uint32(4 * nibble) & np.uint32(15)
    return out.reshape(len(words), -1)
