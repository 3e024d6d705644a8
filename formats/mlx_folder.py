"""Folders of the MLX community (config.json, safetensors, tokenizer.json) under the names that GGUF gives everything."""
from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import BadHParam, BadTensorInfo, ShapeMismatch, Unsupported
from .families import Family
from .ggml_types import MLX, TYPES_BY_NAME, GGMLType
from .gguf import GGUFFile
from .gguf_tensors import TensorInfo
from .mapped import Bytes, MappedFile
from .mlx_config import find_family, metadata_of, rope_divisors
from .mlx_tokenizer import tokenizer_metadata
from .safetensors import SafeTensorsFile, open_safetensors, read_json

CONFIG = "config.json"
QUANTISED = ("affine", "mxfp4")
Rows = npt.NDArray[np.int64]
Wrap = Callable[[SafeTensorsFile, Mapping[str, Any]], SafeTensorsFile]


@dataclass(frozen=True, slots=True)
class Companion:
    """Scales or offsets that belong to a matrix's codes: `dtype` as in safetensors, `data` (rows, n) its bytes' integers."""

    dtype: str
    data: npt.NDArray[Any]       # Any: u8, u16 (of f16 and bf16) or u32 (of f32)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a tensor comes from. `rows`: their order, None as they are; `plus`: what is added to each value (Gemma's norms).

    `others`: tensors that follow in the same one (experts). `half`: which half of the matrices it is, None where it is all.
    `missing`: how often its first row comes again behind it.
    """

    name: str
    rows: Rows | None = None
    plus: float = 0.0
    transposed: bool = False
    others: tuple[str, ...] = ()
    half: int | None = None
    missing: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return self.name, *self.others


class MlxFolder(GGUFFile):
    """An open folder that answers as a GGUF file does. Matrices in MLX's groups have types of their own and companions."""

    def __init__(self, path: str, file: SafeTensorsFile, config: Mapping[str, Any], metadata: dict[str, Any], family: Family,
                 quantisation: Mapping[str, Any]) -> None:
        self.path, self.paths, self.version, self.alignment = path, file.paths, 0, 1
        self.metadata: dict[str, Any] = metadata
        self.config, self.family, self._file, self._quantisation = config, family, file, quantisation
        self._heads = {"attn_q": _count(metadata, "attention.head_count"), "attn_k": _count(metadata, "attention.head_count_kv")}
        self._made: dict[str, Bytes] = {}
        self._sources: dict[str, Source] = {}
        self.tensors = {}
        stacks: dict[str, dict[int, str]] = {}
        for name in file.tensors:
            base, _, suffix = name.rpartition(".")
            if family.skips(name) or (suffix in ("scales", "biases") and f"{base}.weight" in file.tensors):
                continue
            ours, number = family.place(name)
            part = ours.split(".")[-2] if "." in ours else ours
            if number is not None:
                stacks.setdefault(ours, {})[number] = name
            elif part in family.halves:
                for half, own in enumerate(family.halves[part]):
                    self._add_half(name, ours.replace(part, own), half)
            else:
                self._add(name, ours, part, family)
        for ours, parts in stacks.items():
            self._add_stack(ours, [parts[number] for number in sorted(parts)])
        for name in family.padded & self.tensors.keys():
            self._pad(name)

    def _add_stack(self, ours: str, names: list[str]) -> None:
        """Matrices of the same shape as one tensor."""
        infos = [self._file.tensors[name] for name in names]
        kind, shape = self._type(names[0], infos[0].shape)
        if kind.origin == MLX or any((info.dtype, info.shape) != (infos[0].dtype, infos[0].shape) for info in infos):
            raise Unsupported("is not of the type and shape of the tensors that belong to it; get the model whose weights are "
                              "floats", file=self.path, field=names[0])
        nbytes = sum(info.nbytes for info in infos)
        self._sources[ours] = Source(names[0], others=tuple(names[1:]))
        self.tensors[ours] = TensorInfo(ours, (len(names), *shape), kind, infos[0].part, infos[0].offset, nbytes)

    def _add_half(self, name: str, ours: str, half: int) -> None:
        """The first or second half of the rows of each matrix."""
        info = self._file.tensors[name]
        kind, shape = self._type(name, info.shape)
        if kind.origin == MLX or len(shape) != 3 or shape[1] % 2:
            raise Unsupported(f"is {info.dtype} of shape {shape}, not two matrices of floats for each expert; get the model whose "
                              "weights are floats", file=self.path, field=name)
        self._sources[ours] = Source(name, half=half)
        self.tensors[ours] = TensorInfo(ours, (shape[0], shape[1] // 2, shape[2]), kind, info.part, info.offset, info.nbytes // 2)

    def _pad(self, name: str) -> None:
        """The first row for tokens that the table lacks, as transformers has it."""
        info, tokens = self.tensors[name], self.tensors.get("token_embd.weight")
        if tokens is not None and len(info.shape) == 2 and 0 < info.shape[0] < tokens.shape[0] and info.type.origin != MLX:
            more = tokens.shape[0] - info.shape[0]
            self._sources[name] = replace(self._sources[name], missing=more)
            self.tensors[name] = TensorInfo(name, (tokens.shape[0], info.shape[1]), info.type, info.part, info.offset,
                                            info.nbytes + more * (info.nbytes // info.shape[0]))

    def _add(self, name: str, ours: str, part: str, family: Family) -> None:
        info, rows, plus = self._file.tensors[name], None, 0.0
        if family.paired_rows and self._heads.get(part) and info.shape:     # without a head count hparams refuse the model
            rows = paired_rows(info.shape[0], self._heads[part], self.path, name)
        if family.norms_from_zero and part.endswith("norm"):
            plus = 1.0
        transposed = part in family.transposed and len(info.shape) == 2 and self._file.metadata.get("format") != "mlx"
        self._sources[ours] = Source(name, rows, plus, transposed)
        kind, shape = self._type(name, info.shape)
        shape = shape[::-1] if transposed else (math.prod(shape),) if part in family.flat else shape
        elements = math.prod(shape)
        nbytes = 4 * elements if plus else elements // kind.block * kind.block_bytes
        self.tensors[ours] = TensorInfo(ours, shape, TYPES_BY_NAME["F32"] if plus else kind, info.part, info.offset, nbytes)

    def _type(self, name: str, shape: tuple[int, ...]) -> tuple[GGMLType, tuple[int, ...]]:
        """The tensor's type, and its shape in values."""
        info = self._file.tensors[name]
        if info.dtype in ("F32", "F16", "BF16"):
            return TYPES_BY_NAME[info.dtype], shape
        base = name.removesuffix(".weight")
        scales = self._file.tensors.get(f"{base}.scales")
        if info.dtype != "U32" or scales is None or len(shape) != 2:
            raise Unsupported(f"is {info.dtype}, which is no weight that edgellm can read; get the model with affine or mxfp4 "
                              "weights", file=self.path, field=name)
        own = self._quantisation.get(base)
        settings = {**self._quantisation, **own} if isinstance(own, Mapping) else self._quantisation
        bits, mode = settings.get("bits"), settings.get("mode", "affine")
        if mode not in QUANTISED or bits not in (2, 3, 4, 5, 6, 8):
            raise Unsupported(f"is quantised as {str(mode)[:40]!r} with {str(bits)[:40]} bits; "
                              "edgellm reads affine and mxfp4", file=self.path,
                              field=name)
        columns = shape[1] * 32 // bits
        groups = scales.shape[1] if len(scales.shape) == 2 and scales.shape[0] == shape[0] else 0
        if not groups or columns % groups or columns // groups not in (32, 64, 128):
            raise ShapeMismatch(f"has scales of shape {scales.shape} for {shape[0]} rows of {columns}; the folder is damaged",
                                file=self.path, field=name)
        group = columns // groups
        if mode == "affine" and getattr(self._file.tensors.get(f"{base}.biases"), "shape", None) != scales.shape:
            raise BadTensorInfo("the tensor lacks its biases; download the folder again", file=self.path, field=name)
        return GGMLType(-bits, f"MLX {mode} {bits}/{group}", group, group * bits // 8, MLX), (shape[0], columns)

    @property
    def file(self) -> SafeTensorsFile:
        """Where the tensors come from."""
        return self._file

    def source(self, name: str) -> Source | None:
        """Where a tensor comes from; None for one that follows from the configuration."""
        return self._sources.get(name)

    def skipped(self) -> list[str]:
        """Names of the checkpoint's tensors that the language model does not need."""
        return [name for name in self._file.tensors if self.family.skips(name)]

    def add_made(self, name: str, values: npt.NDArray[np.float32]) -> None:
        """A tensor that follows from the configuration."""
        self._made[name] = values.view(np.uint8)
        self.tensors[name] = TensorInfo(name, values.shape, TYPES_BY_NAME["F32"], 0, 0, values.nbytes)

    @property
    def nbytes(self) -> int:
        return sum(info.nbytes for info in self._file.tensors.values())

    def raw(self, name: str) -> Bytes:
        """As of a GGUF file; a copy where rows change places or something is added."""
        if name not in self._made:
            source = self._sources[name]
            if source.plus:
                values = self._file.array(source.name).astype(np.float32) + np.float32(source.plus)
                self._made[name] = values.reshape(-1).view(np.uint8)
            elif source.transposed:
                width = f"u{self.tensors[name].type.block_bytes}"
                turned = self._file.raw(source.name).view(width).reshape(self._file.tensors[source.name].shape).T
                self._made[name] = np.ascontiguousarray(turned).reshape(-1).view(np.uint8)
            elif source.rows is not None:
                self._made[name] = self._file.raw(source.name).reshape(len(source.rows), -1)[source.rows].reshape(-1)
            elif source.others:
                self._made[name] = np.concatenate([self._file.raw(part) for part in source.names])
            elif source.missing:
                rows, there = self.tensors[name].shape[0], self._file.raw(source.name)
                first = there[: len(there) // (rows - source.missing)]
                self._made[name] = np.concatenate([there, np.tile(first, source.missing)])
            elif source.half is not None:
                experts = self.tensors[name].shape[0]
                halves = self._file.raw(source.name).reshape(experts, 2, -1)
                self._made[name] = np.ascontiguousarray(halves[:, source.half]).reshape(-1)
            else:
                return self._file.raw(source.name)
        return self._made[name]                  # kept: back ends remember addresses

    def companions(self, name: str) -> tuple[Companion, ...]:
        """Scales, and biases in affine mode, of a matrix in MLX's groups; () of others."""
        if self.tensors[name].type.origin != MLX:
            return ()
        source = self._sources[name]
        base, found = source.name.removesuffix(".weight"), []
        for end in ("scales", "biases"):
            info = self._file.tensors.get(f"{base}.{end}")
            if info is not None:
                width = {"U8": "u1", "F16": "<u2", "BF16": "<u2", "F32": "<u4"}.get(info.dtype)
                if width is None:
                    raise Unsupported(f"is {info.dtype}, which no scale is", file=self.path, field=info.name)
                data = self._file.raw(info.name).view(width).reshape(info.shape)
                found.append(Companion(info.dtype, data if source.rows is None else data[source.rows]))
        return tuple(found)

    def drop(self, name: str) -> None:
        if name in self._sources:
            self._made.pop(name, None)
            base = self._sources[name].name.removesuffix(".weight")
            for part in (*self._sources[name].names, f"{base}.scales", f"{base}.biases"):
                if part in self._file.tensors:
                    self._file.drop(part)

    def changed(self) -> bool:
        return self._file.changed()

    def close(self) -> None:
        self._file.close()


def open_mlx_folder(path: str | os.PathLike[str], wrap: Wrap | None = None) -> MlxFolder:
    """A folder of the MLX community. Raises Unsupported for a family or quantisation without a mapping, and the FormatErrors.

    `wrap`: takes the safetensors and the configuration, and gives the file whose tensors are to be read instead.
    """
    folder = os.fspath(path)
    if not os.path.isfile(os.path.join(folder, CONFIG)):
        raise BadHParam("the folder has no config.json, so it is no model of the MLX community; name a .gguf file", file=folder)
    config = read_json(MappedFile(os.path.join(folder, CONFIG)))
    family, config = find_family(config, folder)
    metadata = metadata_of(config, family, folder)
    file = open_safetensors(folder)
    try:
        file = file if wrap is None else wrap(file, config)
        quantisation = config.get("quantization") or config.get("quantization_config") or {}
        if not isinstance(quantisation, Mapping):
            raise BadHParam("quantization is no object; download the folder again", file=folder, field="quantization")
        model = MlxFolder(folder, file, config, metadata, family, quantisation)
        for name, divisors in {**rope_divisors(config, folder), **family.made(config)}.items():
            model.add_made(name, divisors)
        table = model.tensors.get("token_embd.weight")
        if table is not None:
            metadata |= tokenizer_metadata(folder, config, rows=table.shape[0], merged=family.merged_tokenizer)
        return model
    except BaseException:
        file.close()
        raise


def paired_rows(n: int, heads: int, path: str, name: str) -> Rows:
    """The order of a projection's rows that brings the pairs of a rotation side by side, as GGUF's llama has them."""
    if n % (2 * heads):
        raise ShapeMismatch(f"{n} rows are no whole number of pairs for {heads} heads", file=path, field=name)
    return np.arange(n).reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)


def _count(metadata: Mapping[str, Any], key: str) -> int:
    value = metadata.get(f"{metadata['general.architecture']}.{key}")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
