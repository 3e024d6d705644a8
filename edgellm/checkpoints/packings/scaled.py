"""Checkpoints whose matrices have scales beside them: gpt-oss's MXFP4, and 8-bit floats.

MXFP4 is kept, in GGUF's order of nibbles; 8-bit floats become BF16, rounded once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.errors import BadTensorInfo, Unsupported
from edgellm.formats.codecs import CODECS
from edgellm.formats.mapped import Bytes
from edgellm.formats.safetensors import SafeTensorInfo, SafeTensorsFile

BLOCKS, SCALES = "_blocks", "_scales"
GROUP, HALF = 32, 16  # values and bytes of a block of MXFP4
OF_WEIGHT = ("weight_scale_inv", "weight_scale")  # DeepSeek's name, and compressed-tensors'
OF_ACTIVATIONS = re.compile(r".*[._](?:activation|input|output|q|k|v|kv)_scale")  # one number each, which floats do without
EIGHT_BITS = "F8_E4M3"
Floats = npt.NDArray[np.float32]


def _eight_bit_floats() -> Floats:
    """The value of each byte: sign, 4 bits of exponent, 3 of mantissa; no infinity, NaN where all bits are set."""
    bits = np.arange(256)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    size = np.where(exponent > 0, (8 + mantissa) * 2.0 ** (exponent - 10), mantissa * 2.0**-9)
    return np.where(bits & 127 == 127, np.nan, np.where(bits < 128, size, -size)).astype(np.float32)


VALUES = _eight_bit_floats()


class ScaledCheckpoint(SafeTensorsFile):
    """A checkpoint whose scales are taken in: `X_blocks` answers as MXFP4, other weights as plain tensors of values."""

    def __init__(self, file: SafeTensorsFile, block: tuple[int, int]) -> None:
        """`block`: rows and columns that share a scale, where neither one row does nor all."""
        kept = {name: info for name, info in file.tensors.items() if not _is_of_activations(info)}
        super().__init__(file.files, kept, file.metadata)
        self._file, self._block = file, block
        self._scales: dict[str, str] = {}
        for name, info in file.tensors.items():
            scale = _scale_of(file, name)
            if scale is None:
                continue
            self._scales[name] = scale
            self.tensors[name] = self._seen(info, file.tensors[scale])
            del self.tensors[scale]

    def _seen(self, info: SafeTensorInfo, scale: SafeTensorInfo) -> SafeTensorInfo:
        """A tensor as others see it. Raises BadTensorInfo where its scales do not fit."""
        shape, kind = info.shape, "BF16"
        if info.name.endswith(BLOCKS):
            fits = len(shape) >= 2 and shape[-1] == HALF and scale.shape == shape[:-1] and scale.dtype == "U8"
            kind, shape = "MXFP4", (*shape[:-2], GROUP * shape[-2]) if fits else shape
            nbytes = math.prod(shape) // GROUP * (HALF + 1)
        else:
            fits = len(shape) == 2 and (
                math.prod(scale.shape) == 1
                or (
                    len(scale.shape) == 2
                    and all(
                        groups in (1, n) or (size > 0 and groups == -(-n // size))
                        for groups, n, size in zip(scale.shape, shape, self._block, strict=True)
                    )
                )
            )
            nbytes = 2 * math.prod(shape)
        if not fits:
            raise BadTensorInfo(
                f"the scales of shape {scale.shape} do not fit {info.shape}; download the folder again",
                file=self._file.paths[info.part],
                field=info.name,
            )
        return SafeTensorInfo(info.name, kind, shape, info.part, info.offset, nbytes)

    def raw(self, name: str) -> Bytes:
        if name not in self._scales:
            return self._file.raw(name)
        if name.endswith(BLOCKS):
            return self._blocks(name)
        return CODECS["BF16"].quantize(self.array(name).reshape(1, -1)).reshape(-1)

    def array(self, name: str) -> npt.NDArray[Any]:
        if name not in self._scales:
            return self._file.array(name)
        if name.endswith(BLOCKS):
            return CODECS["MXFP4"].dequantize(self.raw(name).reshape(1, -1)).reshape(self.tensors[name].shape)
        codes, scale = self._file.raw(name).reshape(self._file.tensors[name].shape), self._file.array(self._scales[name])
        return VALUES[codes] * _spread(scale.astype(np.float32), self.tensors[name].shape, self._block)

    def _blocks(self, name: str) -> Bytes:
        """Value j of a block and value j + 16 in a byte; the checkpoint has neighbours in one."""
        pairs = self._file.raw(name).reshape(-1, HALF)
        codes = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(-1, GROUP)
        blocks = np.empty((len(codes), HALF + 1), np.uint8)
        blocks[:, 0] = self._file.raw(self._scales[name])
        blocks[:, 1:] = codes[:, :HALF] | codes[:, HALF:] << 4
        return blocks.reshape(-1)

    def drop(self, name: str) -> None:
        for part in filter(None, (name, self._scales.get(name))):
            self._file.drop(part)


def _scale_of(file: SafeTensorsFile, name: str) -> str | None:
    """The tensor with the scales of another, None where it has none."""
    if name.endswith(BLOCKS):
        other = name.removesuffix(BLOCKS) + SCALES
        return other if other in file.tensors else None
    base, _, end = name.rpartition(".")
    if end != "weight" or file.tensors[name].dtype != EIGHT_BITS:
        return None
    found = next((f"{base}.{scale}" for scale in OF_WEIGHT if f"{base}.{scale}" in file.tensors), None)
    if found is None:
        raise Unsupported(
            "is an 8-bit float without scales that edgellm knows; convert the checkpoint in BF16", file=file.paths[0], field=name
        )
    return found


def _spread(scale: Floats, shape: tuple[int, ...], block: tuple[int, int]) -> Floats:
    """One scale, one for each row, or one for each block, as many as there are values."""
    if scale.size == 1:
        return scale.reshape(1, 1)
    for axis, groups in enumerate(scale.shape):
        if groups not in (1, shape[axis]):
            scale = scale.repeat(block[axis], axis=axis)
    return scale[: shape[0], : shape[1]]


def _is_of_activations(info: SafeTensorInfo) -> bool:
    return math.prod(info.shape) == 1 and OF_ACTIVATIONS.fullmatch(info.name) is not None


def scaled(file: SafeTensorsFile, config: Mapping[str, Any]) -> SafeTensorsFile:
    """The file, or where its matrices have scales beside them, one that gives their values."""
    if any(_scale_of(file, name) is not None or _is_of_activations(info) for name, info in file.tensors.items()):
        return ScaledCheckpoint(file, _block(config.get("quantization_config")))
    return file


def _block(settings: Any) -> tuple[int, int]:
    """Rows and columns that share a scale, under the names of DeepSeek and of compressed-tensors."""
    if not isinstance(settings, Mapping):
        return 0, 0
    groups = settings.get("config_groups")
    listed = [group for group in groups.values() if isinstance(group, Mapping)] if isinstance(groups, Mapping) else []
    structures = [group["weights"].get("block_structure") for group in listed if isinstance(group.get("weights"), Mapping)]
    for block in settings.get("weight_block_size"), *structures:
        if isinstance(block, list) and len(block) == 2 and all(isinstance(size, int) for size in block):
            return block[0], block[1]
    return 0, 0
