"""Writes a copy of a model with all its matrices in another type.

    .venv/bin/python scripts/retype.py MODEL.gguf TYPE OUT.gguf

Matrices whose rows are no whole blocks of the type become Q8_0. Those of an F32 file are encoded; those of a quantised file become
random values, encoded once and repeated, for timing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.gguf import GGUFFile, open_gguf
from edgellm.formats.gguf_tensors import TensorInfo
from edgellm.formats.writer import GGUFWriter, NewTensor
from edgellm.tools.mixes import is_quantisable

PATTERN, SIZE = 1 << 20, 0.02  # random values that are encoded, and their standard deviation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("type", choices=sorted(CODECS))
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    retype(options.model, options.out, options.type)


def retype(source: Path, out: Path, name: str) -> bool:
    """Writes `source` with its matrices in a type; whether it has experts."""
    with open_gguf(source) as gguf:
        kinds = {info.name: kind_of(info, name) for info in gguf.tensors.values()}
        tensors = [NewTensor(info.name, info.shape, TYPES_BY_NAME[kinds[info.name]]) for info in gguf.tensors.values()]
        metadata = {key: value for key, value in gguf.metadata.items() if key != "general.file_type"}
        patterns: dict[str, npt.NDArray[np.uint8]] = {}
        with GGUFWriter(out, metadata, tensors) as writer:
            for tensor in tensors:
                writer.write(tensor.name, data_of(gguf, tensor, patterns))
        return any("_exps" in tensor for tensor in kinds)


def kind_of(info: TensorInfo, name: str) -> str:
    """The type that a tensor gets."""
    if not is_quantisable(info):
        return info.type.name
    return next((kind for kind in (name, "Q8_0") if info.shape[-1] % TYPES_BY_NAME[kind].block == 0), info.type.name)


def data_of(gguf: GGUFFile, tensor: NewTensor, patterns: dict[str, npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    """The bytes of a tensor in its new type."""
    old, kind, raw = gguf.tensors[tensor.name].type.name, tensor.type.name, gguf.raw(tensor.name)
    if old == kind:
        return raw
    if old == "F32":
        return CODECS[kind].quantize(raw.view(np.float32).reshape(tensor.shape))
    if kind not in patterns:
        values = np.random.default_rng(1).normal(0, SIZE, PATTERN).astype(np.float32)
        patterns[kind] = CODECS[kind].quantize(values)
    return np.resize(patterns[kind], tensor.nbytes)


if __name__ == "__main__":
    main()
