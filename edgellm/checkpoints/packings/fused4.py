"""Experts of which a ModelOpt checkpoint has all in one NVFP4 tensor (Llama 4): a matrix for each, as others store them.

Experts that multiply from the left are quantised along their inputs and stored the other way round: codes (experts, inputs / 2,
outputs), scales (experts, inputs / 16, outputs); ModelOpt's `maybe_transpose_expert_weight_dimensions`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.checkpoints.packings.scaled import EIGHT_BITS
from edgellm.errors import BadTensorInfo
from edgellm.formats.mapped import Bytes
from edgellm.formats.safetensors import SafeTensorInfo, SafeTensorsFile

FUSED = re.compile(r"(.+\.experts\.)(gate_up|down)_proj")
PARTS = {"gate_up": ("gate", "up"), "down": ("down",)}  # in the order of their outputs
SCALE, OF_MATRIX, OF_INPUTS, BIAS = "_weight_scale", "_weight_scale_2", "_input_scale", "_bias"
GROUP = 16  # inputs that share a scale


@dataclass(frozen=True, slots=True)
class _Matrix:
    """Where a tensor of one expert is: in the tensor `fused`, whose shape is (experts, rows, outputs)."""

    fused: str
    expert: int
    outputs: slice


class FusedExperts(SafeTensorsFile):
    """A checkpoint whose fused experts answer as `experts.N.gate_proj.weight` and so on, (outputs, inputs / 2), with scales."""

    def __init__(self, file: SafeTensorsFile, fused: list[str]) -> None:
        """`fused`: the tensors of codes. Raises BadTensorInfo where their scales do not fit them."""
        ours = {name + end for name in fused for end in ("", SCALE, OF_MATRIX, OF_INPUTS)}
        super().__init__(file.files, {name: info for name, info in file.tensors.items() if name not in ours}, file.metadata)
        self._file = file
        self._matrices: dict[str, _Matrix] = {}
        self._numbers: dict[str, str] = {}  # by a tensor of one expert: that of all experts
        for name in fused:
            self._divide(name)

    def _divide(self, fused: str) -> None:
        match, info, scale = FUSED.fullmatch(fused), self._file.tensors[fused], self._file.tensors[fused + SCALE]
        assert match is not None
        parts, (experts, half, outputs) = PARTS[match[2]], info.shape
        if scale.shape != (experts, 2 * half / GROUP, outputs) or outputs % len(parts):
            raise BadTensorInfo(
                f"the scales of shape {scale.shape} do not fit {info.shape}; download the folder again",
                file=self.paths[info.part],
                field=fused,
            )
        width = outputs // len(parts)
        for expert in range(experts):
            for at, part in enumerate(parts):
                base = f"{match[1]}{expert}.{part}_proj"
                place = slice(at * width, (at + 1) * width)
                for name, source in ((f"{base}.weight", info), (f"{base}.weight_scale", scale)):
                    self._matrices[name] = _Matrix(source.name, expert, place)
                    self.tensors[name] = SafeTensorInfo(
                        name, source.dtype, (width, source.shape[1]), source.part, source.offset, width * source.shape[1]
                    )
                if (number := self._file.tensors.get(fused + OF_MATRIX)) is not None:
                    self._numbers[f"{base}.weight_scale_2"] = number.name
                    self.tensors[f"{base}.weight_scale_2"] = replace(number, name=f"{base}.weight_scale_2")

    def raw(self, name: str) -> Bytes:
        if (matrix := self._matrices.get(name)) is None:
            return self._file.raw(self._numbers.get(name, name))
        whole = self._file.raw(matrix.fused).reshape(self._file.tensors[matrix.fused].shape)
        return np.ascontiguousarray(whole[matrix.expert, :, matrix.outputs].T).reshape(-1)

    def array(self, name: str) -> npt.NDArray[Any]:
        return (
            self.raw(name).reshape(self.tensors[name].shape)
            if name in self._matrices
            else self._file.array(self._numbers.get(name, name))
        )

    def drop(self, name: str) -> None:
        self._file.drop(self._matrices[name].fused if name in self._matrices else self._numbers.get(name, name))


def divided(file: SafeTensorsFile) -> SafeTensorsFile:
    """The file, or where it has fused experts of NVFP4, one that has a matrix for each. Raises BadTensorInfo.

    Those with biases stay as they are: GGUF's graphs have no place for both numbers of matrices and biases of experts.
    """
    fused = [
        name
        for name, info in file.tensors.items()
        if FUSED.fullmatch(name)
        and info.dtype == "U8"
        and len(info.shape) == 3
        and (scale := file.tensors.get(name + SCALE)) is not None
        and scale.dtype == EIGHT_BITS
        and name + BIAS not in file.tensors
    ]
    return FusedExperts(file, fused) if fused else file
