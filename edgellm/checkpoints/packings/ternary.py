"""BitNet's packed weights: -1, 0 or 1, four in a byte, and a scale for each matrix; TQ2_0 beside a tensor `.scale`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.errors import BadTensorInfo
from edgellm.formats.codecs import CODECS
from edgellm.formats.codecs._blocks import pack_bits
from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.mapped import Bytes
from edgellm.formats.safetensors import SafeTensorInfo, SafeTensorsFile

PER_BYTE, KIND, SCALE = 4, "TQ2_0", "weight_scale"


class TernaryCheckpoint(SafeTensorsFile):
    """A checkpoint whose packed matrices answer as TQ2_0 of scale 1, or as float32 where their rows are no whole blocks."""

    def __init__(self, file: SafeTensorsFile, bases: list[str], *, inverse: bool) -> None:
        """`bases`: names without .weight. `inverse`: products are divided by the stored scales. Raises BadTensorInfo."""
        super().__init__(file.files, dict(file.tensors), file.metadata)
        self._file, self._inverse = file, inverse
        self._made: dict[str, Bytes] = {}  # kept: back ends remember addresses
        for base in bases:
            info, scale = file.tensors[f"{base}.weight"], self.tensors.pop(f"{base}.{SCALE}")
            if len(info.shape) != 2:
                raise BadTensorInfo(
                    f"has shape {info.shape}; packed weights have two dimensions", file=file.paths[info.part], field=info.name
                )
            shape = (PER_BYTE * info.shape[0], info.shape[1])
            whole = shape[1] % TYPES_BY_NAME[KIND].block == 0
            kind = TYPES_BY_NAME[KIND if whole else "F32"]
            nbytes = math.prod(shape) // kind.block * kind.block_bytes
            self.tensors[info.name] = SafeTensorInfo(info.name, kind.name, shape, info.part, info.offset, nbytes)
            self.tensors[f"{base}.scale"] = SafeTensorInfo(f"{base}.scale", "F32", (1,), scale.part, scale.offset, 4)

    def raw(self, name: str) -> Bytes:
        if name in self._file.tensors and self.tensors[name] is self._file.tensors[name]:
            return self._file.raw(name)
        if name not in self._made:
            self._made[name] = self._scale(name) if name.endswith(".scale") else self._blocks(name)
        return self._made[name]

    def array(self, name: str) -> npt.NDArray[Any]:
        info = self.tensors[name]
        data = self.raw(name)
        return CODECS[KIND].dequantize(data.reshape(info.shape[0], -1)) if info.dtype == KIND else super().array(name)

    def _scale(self, name: str) -> Bytes:
        stored = self._file.array(f"{name.removesuffix('scale')}{SCALE}").astype(np.float32).reshape(1)
        with np.errstate(divide="ignore"):
            return (1 / stored if self._inverse else stored).view(np.uint8)

    def _blocks(self, name: str) -> Bytes:
        """The values of the first quarter of the rows lie in the lowest bits."""
        packed = self._file.raw(name)
        if self.tensors[name].dtype != KIND:
            thirds = [(packed >> 2 * part & 3).astype(np.float32) - 1 for part in range(PER_BYTE)]
            return np.concatenate(thirds).view(np.uint8)
        blocks = np.empty((PER_BYTE, len(packed) // TYPES_BY_NAME[KIND].block), CODECS[KIND].dtype)
        for part in range(PER_BYTE):
            blocks[part]["qs"] = pack_bits((packed >> 2 * part & 3).reshape(-1, TYPES_BY_NAME[KIND].block), 2)
        blocks["d"] = 1
        return blocks.reshape(-1).view(np.uint8)

    def drop(self, name: str) -> None:
        self._made.pop(name, None)
        self._file.drop(name if name in self._file.tensors else f"{name.removesuffix('scale')}{SCALE}")


def ternary(file: SafeTensorsFile, config: Mapping[str, Any]) -> SafeTensorsFile:
    """The file, or where its matrices are packed as BitNet's are, one that gives their blocks.

    transformers divides by the scales of its `bitlinear` class and multiplies by those of `autobitlinear`; mlx_lm's own BitNet
    multiplies always.
    """
    bases = [
        name.removesuffix(".weight")
        for name, info in file.tensors.items()
        if name.endswith(".weight") and info.dtype == "U8" and _is_one(file, f"{name.removesuffix('weight')}{SCALE}")
    ]
    settings = config.get("quantization_config")
    multiplied = isinstance(settings, Mapping) and settings.get("linear_class") == "autobitlinear"
    multiplied |= file.metadata.get("format") == "mlx" and config.get("model_type") == "bitnet"
    return TernaryCheckpoint(file, bases, inverse=not multiplied) if bases else file


def _is_one(file: SafeTensorsFile, name: str) -> bool:
    """True of a scale for a whole matrix: 4-bit floats have more."""
    return name in file.tensors and math.prod(file.tensors[name].shape) == 1
