"""Folders of the MLX community (config.json, safetensors, tokenizer.json) under the names that GGUF gives everything."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.checkpoints.answers import answer_settings
from edgellm.checkpoints.config import CONFIG, asked, find_family, metadata_of, read_config, rope_divisors
from edgellm.checkpoints.families import Family, Shape, Slice, part_of, plus_one
from edgellm.checkpoints.packings.mlx_groups import grouped, settings_of, type_of
from edgellm.checkpoints.packings.ternary import ternary
from edgellm.checkpoints.pooling import dense_layers, pooling_keys
from edgellm.checkpoints.settings import CheckpointSettings
from edgellm.checkpoints.source import WHOLE, Rows, Source, nbytes_of, source_of
from edgellm.checkpoints.tokenizer.reader import PREFIX, read_tokenizer
from edgellm.errors import BadHParam, LimitExceeded, ShapeMismatch, Unsupported
from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import MLX, TYPES_BY_NAME, GGMLType
from edgellm.formats.gguf import GGUFFile
from edgellm.formats.gguf_tensors import TensorInfo
from edgellm.formats.mapped import Bytes
from edgellm.formats.safetensors import SafeTensorsFile, open_safetensors
from edgellm.tokenizer.build import REFUSAL

SHOWN = 40  # letters of a setting's value
COMPARED = 1 << 24  # bytes that are compared together
Wrap = Callable[[SafeTensorsFile, Mapping[str, Any]], SafeTensorsFile]


@dataclass(frozen=True, slots=True)
class Companion:
    """Scales or offsets that belong to a matrix's codes: `dtype` as in safetensors, `data` (rows, n) its bytes' integers."""

    dtype: str
    data: npt.NDArray[Any]  # Any: u8, u16 (of f16 and bf16) or u32 (of f32)


class MlxFolder(GGUFFile):
    """An open folder that answers as a GGUF file does. Matrices in MLX's groups have types of their own and companions."""

    def __init__(
        self,
        path: str,
        file: SafeTensorsFile,
        config: CheckpointSettings,
        metadata: dict[str, Any],
        family: Family,
        quantisation: Mapping[str, Any],
    ) -> None:
        self.path, self.files, self.paths, self.version, self.alignment = path, file.files, file.paths, 0, 1
        self.metadata: dict[str, Any] = metadata
        self.config, self.family, self._file, self._quantisation = config, family, file, quantisation
        self._heads = {
            "attn_q": count_of(metadata, "attention.head_count"),
            "attn_k": count_of(metadata, "attention.head_count_kv"),
        }
        self._made: dict[str, Bytes] = {}
        self.drafting: list[str] = []
        self.notes: list[str] = []  # what a user should know of the tokenizer
        self._sources: dict[str, Source] = {}
        self.tensors = {}
        stacks: dict[str, dict[int, str]] = {}
        for name in file.tensors:
            base, _, suffix = name.rpartition(".")
            companion = suffix in ("scales", "biases") and f"{base}.weight" in file.tensors
            if companion or family.skips(name) or 0 in file.tensors[name].shape:
                continue
            if self._drafts(name):
                self.drafting.append(name)
                continue
            if family.values and (found := family.value(name)) is not None:
                self._add_value(name, *found)
                continue
            ours, number = family.place(name)
            if number is not None:
                stacks.setdefault(ours, {})[number] = name
            else:
                self._add(ours, self._type(name, file.tensors[name].shape), (name,))
        for ours, parts in stacks.items():
            self._add_stack(ours, tuple(parts[number] for number in sorted(parts)))
        for name in family.padded & self.tensors.keys():
            self._pad(name)
        for key, part in family.measured.items():
            if (info := self.tensors.get(f"{family.blocks}.0.{part}.weight")) is not None:
                metadata[f"{family.architecture}.{key}"] = info.shape[0]

    def _drafts(self, name: str) -> bool:
        """True if a tensor is of a layer behind the last one, that only drafts tokens."""
        layers, drafting = self.config.get("num_hidden_layers"), self.config.get("num_nextn_predict_layers")
        found = re.search(r"layers\.(\d+)\.", name)
        return (
            found is not None
            and isinstance(layers, int)
            and isinstance(drafting, int)
            and layers <= int(found[1]) < layers + drafting
        )

    def _pad(self, name: str) -> None:
        """The first row for tokens that the table lacks, as in transformers."""
        info, tokens, source = self.tensors[name], self.tensors.get("token_embd.weight"), self._sources[name]
        if tokens is not None and len(info.shape) == 2 and 0 < info.shape[0] < tokens.shape[0] and info.type.origin != MLX:
            rows = np.arange(tokens.shape[0])
            del self.tensors[name]
            self._put(
                name,
                source_of(
                    source.names,
                    source.type,
                    source.whole,
                    Slice(rows=lambda config, shape: np.where(rows < shape[0], rows, 0)),
                    self.config,
                    self.path,
                ),
            )

    def _add_value(self, name: str, key: str, layer: int) -> None:
        """A number that GGUF has in its metadata, a value for each layer."""
        n, value = self.config.get("num_hidden_layers"), self._file.array(name).reshape(-1)
        if not isinstance(n, int) or not layer < n or len(value) != 1:
            raise ShapeMismatch(f"is not one number of one of {n} layers; download the folder again", file=self.path, field=name)
        values = self.metadata.setdefault(key, np.full(n, np.nan, np.float32))
        values[layer] = value[0]

    def _add_stack(self, ours: str, names: tuple[str, ...]) -> None:
        """Tensors of the same shape as one."""
        infos = [self._file.tensors[name] for name in names]
        kind, shape = self._type(names[0], infos[0].shape)
        if any(self._type(name, info.shape) != (kind, shape) for name, info in zip(names, infos, strict=True)):
            raise Unsupported(
                "is not of the type and shape of the tensors that belong to it; get the model whose weights are floats",
                file=self.path,
                field=names[0],
            )
        self._add(ours, (kind, (len(names), *shape)), names)

    def _add(self, ours: str, typed: tuple[GGMLType, Shape], names: tuple[str, ...]) -> None:
        """A tensor in GGUF's form, or several that are one there."""
        family, part, (kind, whole) = self.family, part_of(ours), typed
        suffix = ours.rpartition(".")[2]
        for piece in family.pieces_of(names[0], ours) or (WHOLE,):
            name = ours.replace(part, piece.name) if piece.name else ours
            own = part_of(name)
            rows = None
            if family.paired_rows and self._heads.get(own) and whole and suffix != "scale":  # without heads hparams refuse it
                rows = paired_rows(whole[0], self._heads[own], self.path, names[0], count_of(self.metadata, "rope.dimension_count"))
            if own.endswith("norm") and suffix == "weight" and self._from_zero(own):
                piece = replace(piece, values=plus_one)
            elif piece.keeps and family.folded_in_mlx and self._by_mlx:
                piece = replace(piece, values=None)
            turned = own in family.transposed and len(whole) == 2 and not self._by_mlx
            self._put(name, source_of(names, kind, whole, piece, self.config, self.path, rows=rows, turned=turned))

    def _put(self, name: str, source: Source) -> None:
        info, kind = self._file.tensors[source.name], source.type
        if source.piece.values is not None and not source.piece.keeps:
            kind = TYPES_BY_NAME["F32"]
        if kind.origin == MLX and not (source.only_rows or source.is_stack):
            raise Unsupported(
                f"is {kind.name}, whose groups lie as GGUF does not have them; get the model whose weights are floats",
                file=self.path,
                field=source.name,
            )
        if name in self.tensors:
            raise Unsupported(f"is the second tensor for {name}; download the folder again", file=self.path, field=source.name)
        self._sources[name] = source
        self.tensors[name] = TensorInfo(name, source.out, kind, info.part, info.offset, nbytes_of(kind, source.out))

    def _from_zero(self, part: str) -> bool:
        """True if the weights of a norm are stored less 1."""
        family = self.family
        return family.norms_from_zero and part not in family.kept_norms and not (family.shifted_in_mlx and self._by_mlx)

    @property
    def _by_mlx(self) -> bool:
        """True if mlx_lm or mlx_vlm wrote the tensors."""
        return self._file.metadata.get("format") == "mlx"

    def _type(self, name: str, shape: tuple[int, ...]) -> tuple[GGMLType, tuple[int, ...]]:
        """The tensor's type, and its shape in values."""
        info = self._file.tensors[name]
        if info.dtype in ("F32", "F16", "BF16", "MXFP4", "TQ2_0"):
            convolution = len(shape) == 3 and shape[-1] == 1  # of one channel: MLX has its dimension last
            return TYPES_BY_NAME[info.dtype], (shape[0], 1, shape[1]) if convolution else shape
        return type_of(self._file, name, self._quantisation, self.path)

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

    def drop_tied_output(self) -> None:
        """Leave out an output that is a copy of a tied embedding; transformers, too, keeps a tied table that is another one."""
        if self.config.get("tie_word_embeddings") is True and {"output.weight", "token_embd.weight"} <= self.tensors.keys():
            first, second = self.raw("output.weight"), self.raw("token_embd.weight")
            if len(first) == len(second) and all(
                np.array_equal(first[i : i + COMPARED], second[i : i + COMPARED]) for i in range(0, len(first), COMPARED)
            ):
                del self.tensors["output.weight"]

    @property
    def nbytes(self) -> int:
        return sum(info.nbytes for info in self._file.tensors.values())

    def raw(self, name: str) -> Bytes:
        """As of a GGUF file; a copy where rows change places or values do."""
        if name not in self._made:
            source = self._sources[name]
            data = source.raw(self._file)
            if (change := source.piece.values) is not None:
                values = CODECS[source.type.name].dequantize(data.reshape(1, -1)).reshape(source.out)
                changed = asked(lambda config: change(config, values), self.config, self.path).astype(np.float32).reshape(1, -1)
                data = CODECS[self.tensors[name].type.name].quantize(changed).reshape(-1)
            elif source.is_view:
                return data
            self._made[name] = data
        return self._made[name]  # kept: back ends remember addresses

    def own(self, name: str) -> Bytes | None:
        """None: what is read is not always what lies in the files."""
        return None

    def companions(self, name: str) -> tuple[Companion, ...]:
        """Scales, and biases in affine mode, of a matrix in MLX's groups; () of others."""
        if self.tensors[name].type.origin != MLX:
            return ()
        source, found = self._sources[name], list[Companion]()
        for end in ("scales", "biases"):
            infos = [self._file.tensors.get(f"{base.removesuffix('.weight')}.{end}") for base in source.names]
            parts = [info for info in infos if info is not None]
            if not parts:
                continue
            width = {"U8": "u1", "F16": "<u2", "BF16": "<u2", "F32": "<u4"}.get(parts[0].dtype)
            if width is None or any(info.dtype != parts[0].dtype for info in parts) or len(parts) < len(infos):
                raise Unsupported(f"is {parts[0].dtype}, which no scale is", file=self.path, field=parts[0].name)
            rows = [self._file.raw(info.name).view(width).reshape(-1, info.shape[-1]) for info in parts]
            data = rows[0] if len(rows) == 1 else np.concatenate(rows)
            found.append(Companion(parts[0].dtype, data if source.rows is None else data[source.rows]))
        return tuple(found)

    def unread(self) -> str:
        listed = ", ".join(
            f"{key} ({json.dumps(value)[:SHOWN]})" for key, value in self.config.unread(self.family.architecture).items()
        )
        return (
            f"settings of config.json that edgellm does not know: {listed}; where they change what the model computes, compare its "
            "answers with the original's"
            if listed
            else ""
        )

    def drop(self, name: str) -> None:
        if name in self._sources:
            self._made.pop(name, None)
            for whole in self._sources[name].names:
                base = whole.removesuffix(".weight")
                for part in (whole, f"{base}.scales", f"{base}.biases"):
                    if part in self._file.tensors:
                        self._file.drop(part)


def open_mlx_folder(path: str | os.PathLike[str], wrap: Wrap | None = None, *, pre: str | None = None) -> MlxFolder:
    """A folder of the hub or of the MLX community. Raises Unsupported for a family or quantisation without a mapping, and the
    FormatErrors.

    `wrap`: takes the safetensors and the configuration, and gives the file whose tensors are to be read instead. `pre`: the name of
    the pre-tokenizer, None to recognise it.
    """
    folder = os.fspath(path)
    if not os.path.isfile(os.path.join(folder, CONFIG)):
        raise BadHParam(
            "the folder has no config.json; name a .gguf file, or a folder with config.json and .safetensors files", file=folder
        )
    read = read_config(folder)
    family, config = find_family({**read, **answer_settings(folder, read)}, folder)
    metadata = metadata_of(config, family, folder)
    pooling = pooling_keys(folder)
    if pooling and config.get("is_causal") is False:  # a decoder that was trained on as an encoder
        pooling["attention.causal"] = False
    for key, value in pooling.items():
        metadata.setdefault(f"{family.architecture}.{key}", value)
    file = open_safetensors(folder)
    try:
        quantisation = settings_of(config)
        if not isinstance(quantisation, Mapping):
            raise BadHParam("quantization is not an object; download the folder again", file=folder, field="quantization")
        by_mlx = file.metadata.get("format") == "mlx"
        file = (
            wrap(file, config)
            if wrap is not None
            else grouped(ternary(file, config), config, lambda name: _is_rearranged(family, name, by_mlx))
        )
        model = MlxFolder(folder, file, config, metadata, family, quantisation)
        divisors = rope_divisors(config, folder, metadata.get(f"{family.architecture}.rope.dimension_count"))
        made = {**divisors, **asked(family.made, config, folder), **dense_layers(folder)}
        if by_mlx and family.folded_in_mlx:
            made |= asked(family.folded_in_mlx, config, folder)
        for name, values in made.items():
            model.add_made(name, values)
        table = model.tensors.get("token_embd.weight")
        if table is not None:
            _add_tokenizer(model, table.shape[0], pre)
        return model
    except RecursionError as error:
        file.close()
        raise LimitExceeded("the JSON of its tokenizer is nested too deeply; download the folder again", file=folder) from error
    except BaseException:
        file.close()
        raise


def _is_rearranged(family: Family, name: str, by_mlx: bool) -> bool:
    """True if GGUF has more than the rows of a tensor in another order or in pieces, which packed rows do not allow."""
    return any(
        (piece.values and not (by_mlx and family.folded_in_mlx)) or piece.columns or piece.shape or piece.turned
        for piece in family.pieces_of(name, family.name(name))
    )


def _add_tokenizer(model: MlxFolder, rows: int, pre: str | None) -> None:
    """The keys of the tokenizer; of one that edgellm cannot run the reason, which is raised where text is given."""
    embeds = f"{model.family.architecture}.pooling_type" in model.metadata
    try:
        found, model.notes = read_tokenizer(
            model.path, model.config, rows=rows, merged=model.family.merged_tokenizer, pre=pre, embeds=embeds
        )
    except Unsupported as error:
        found = {PREFIX + REFUSAL: str(error).removeprefix(f"{model.path}: ").replace(f"{model.path}{os.sep}", "")}
    model.metadata |= found or {PREFIX + "model": "none"}


def paired_rows(n: int, heads: int, path: str, name: str, turned: int = 0) -> Rows:
    """The order of a projection's rows that brings the pairs of a rotation side by side, as GGUF's llama has them.

    `turned`: how many rows of a head are rotated, 0 for all.
    """
    if n % (2 * heads) or turned % 2 or turned > n // heads:
        raise ShapeMismatch(f"{n} rows are not a whole number of pairs for {heads} heads", file=path, field=name)
    rows, turned = np.arange(n).reshape(heads, -1), turned or n // heads
    pairs = rows[:, :turned].reshape(heads, 2, -1).swapaxes(1, 2).reshape(heads, -1)
    return np.concatenate([pairs, rows[:, turned:]], axis=1).reshape(-1)


def count_of(metadata: Mapping[str, Any], key: str) -> int:
    """A number of heads, 0 where no key says it; of models whose layers differ the largest, for those without attention have 0."""
    value = metadata.get(f"{metadata['general.architecture']}.{key}")
    value = int(value.max(initial=0)) if isinstance(value, np.ndarray) else value
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
