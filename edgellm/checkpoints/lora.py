"""Reads a PEFT adapter (LoRA) under the names, and in the order of rows and columns, that GGUF gives its factors."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.arch import build_graph
from edgellm.arch.blocks.moe import MAX_EXPERTS
from edgellm.checkpoints.config import asked, metadata_of
from edgellm.checkpoints.families import Family, Slice, part_of
from edgellm.checkpoints.folder import count_of, open_mlx_folder, paired_rows
from edgellm.checkpoints.packings import unpacked
from edgellm.checkpoints.settings import CheckpointSettings
from edgellm.checkpoints.source import WHOLE, Rows, source_of
from edgellm.errors import BadHParam, BadTensorInfo, FormatError, Unsupported
from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.safetensors import SafeTensorsFile
from edgellm.ops.dense import multiplied_by
from edgellm.passes.lora import MOST_RANK, adaptable
from edgellm.patterns import LinearPattern
from edgellm.spec import matrices

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
EXPERTS = "_exps"  # ends GGUF's names of parts that have the matrices of all experts
NAME = re.compile(r"base_model\.model\.(.+)\.lora_(?:([AB])(?:\.\w+)?\.weight|embedding_([AB])(?:\.\w+)?)")
TABLE, OUTPUT = "token_embd.weight", "output.weight"
# Ways to begin (init_lora_weights) that leave the base model's weights as they are; True, False and none do, too.
KEEP_THE_BASE = ("gaussian", "eva", "orthogonal")
NO_PLACE = "has no place in a GGUF adapter; merge the adapter into its model, and convert that"
TIED = "shares its matrix with {} in this model, which the adapter leaves alone; merge the adapter into its model, and convert that"
Floats = npt.NDArray[np.float32]
Json = Mapping[str, Any]  # Any: parsed JSON


def check_adapter(settings: Json, folder: str) -> None:
    """Raises Unsupported for what llama.cpp's adapters cannot say."""
    if settings.get("peft_type") != "LORA":
        raise Unsupported(
            f"is {str(settings.get('peft_type'))[:40]!r}; GGUF holds LoRA adapters only", file=folder, field="peft_type"
        )
    for key in ("use_dora", "modules_to_save", "trainable_token_indices", "alora_invocation_tokens", "layer_replication"):
        if settings.get(key):
            raise Unsupported(
                "is not part of GGUF's adapters; merge the adapter into its model, and convert that", file=folder, field=key
            )
    begun = settings.get("init_lora_weights")
    if isinstance(begun, str) and begun.lower() not in KEEP_THE_BASE:
        raise Unsupported(
            f"is {begun[:40]!r}, which changes the base model's own weights; merge the adapter into its model, and convert that, "
            "or save it as plain LoRA (PEFT's path_initial_model_for_weight_conversion)",
            file=folder,
            field="init_lora_weights",
        )
    if settings.get("bias", "none") != "none":
        raise Unsupported("biases are not part of GGUF's adapters; merge the adapter into its model", file=folder, field="bias")


@dataclass(frozen=True, slots=True)
class Half:
    """A or B of one of GGUF's weights: tensors of the adapter by their expert, or a single one; `shape` as it is written.

    `order`: which of A's columns or B's rows it has, None for all as they are. `embeds`: of a table of tokens, whose A GGUF has
    turned, so that `order` is of its rows.
    """

    weight: str
    letter: str
    names: Mapping[int | None, str]
    shape: tuple[int, ...]
    order: Rows | None
    embeds: bool = False

    @property
    def name(self) -> str:
        return f"{self.weight}.lora_{self.letter.lower()}"

    @property
    def rank(self) -> int:
        return self.shape[-2] if self.letter == "A" and not self.embeds else self.shape[-1]


class Adapter:
    """The tensors of an adapter as GGUF has them: those of single experts lie in one, with zeros for experts without any."""

    def __init__(self, file: SafeTensorsFile, family: Family, config: CheckpointSettings, settings: Json, place: str) -> None:
        """`place`: the folder of `config`. Raises Unsupported, BadHParam and BadTensorInfo."""
        self._file, self._family, self._config, self._place = file, family, config, place
        self._settings, self._alphas = settings, _alphas(settings, file.paths[0])
        self.halves = [half for weight, parts in self._by_weight().items() for half in self._halves(weight, parts)]
        if not self.halves:
            raise BadTensorInfo("holds no tensors", file=file.paths[0])
        self._check_base()

    def array(self, half: Half, alpha: float) -> Floats:
        """The values of `half.shape`; B is scaled where what PEFT takes for its module is not `alpha` / rank."""
        found = np.zeros(half.shape, np.float32)
        for expert, name in half.names.items():
            array, into = self._file.array(name).astype(np.float32), found if expert is None else found[expert]
            if half.letter == "A" and half.embeds:
                into[:] = array.T if half.order is None else array.T[half.order]
            elif half.letter == "A":
                into[: len(array)] = array if half.order is None else array[:, half.order]
            else:
                rank = array.shape[1]
                factor = self._scaling(name, rank) / (alpha / half.rank if alpha else 1.0)
                into[:, :rank] = np.float32(factor) * (array if half.order is None else array[half.order])
        return found

    def _scaling(self, name: str, rank: int) -> float:
        """PEFT's factor of the product of a tensor's module."""
        match = NAME.fullmatch(name)
        assert match is not None
        alphas = (alpha for matches, alpha in self._alphas if matches(match[1]))
        return next(alphas, float(self._settings["lora_alpha"])) / (math.sqrt(rank) if self._settings.get("use_rslora") else rank)

    def _by_weight(self) -> dict[str, dict[str, dict[int | None, str]]]:
        """By GGUF's weight, then by letter, then by expert: the adapter's tensors."""
        found: dict[str, dict[str, dict[int | None, str]]] = {}
        for name in sorted(self._file.tensors):
            match = NAME.fullmatch(name)
            ours, number = self._family.place(f"{match[1]}.weight") if match else (name, None)
            differs = (number is None) == part_of(ours).endswith(EXPERTS) or any(  # neither one of experts nor of none
                piece.values or piece.shape or piece.turned for piece in self._pieces(ours)
            )
            unknown = match is None or (ours == f"{match[1]}.weight" and match[1] not in self._family.outer)
            if match is None or unknown or len(self._file.tensors[name].shape) != 2 or differs or (not match[3]) == (ours == TABLE):
                raise Unsupported(NO_PLACE, file=self._file.paths[0], field=name)
            names = found.setdefault(ours, {"A": {}, "B": {}})[match[2] or match[3]]
            if number in names or (names and (number is None) != (None in names)):
                raise BadTensorInfo(
                    f"is the second tensor for {ours}; save the adapter again", file=self._file.paths[0], field=name
                )
            names[number] = name
        return found

    def _pieces(self, weight: str) -> tuple[Slice, ...]:
        """A weight in GGUF's form."""
        return self._family.pieces.get(f"{part_of(weight)}.weight") or self._family.pieces.get(part_of(weight)) or (WHOLE,)

    def _halves(self, weight: str, parts: Mapping[str, Mapping[int | None, str]]) -> Iterator[Half]:
        """Both halves of a weight, or of each piece of it. Raises BadTensorInfo where one is missing, or shapes contradict each
        other.
        """
        first, second, infos, path = parts["A"], parts["B"], self._file.tensors, self._file.paths[0]
        for expert in (*first, *second):
            a, b = first.get(expert), second.get(expert)
            if a is None or b is None or infos[a].shape[0] != infos[b].shape[1] or not infos[a].shape[0]:
                raise BadTensorInfo(
                    "the two halves of the adapter do not fit each other; save it again", file=path, field=a or b or weight
                )
        if max(infos[a].shape[0] for a in first.values()) > MOST_RANK:
            raise Unsupported(f"has a rank above {MOST_RANK}, the largest that edgellm runs", file=path, field=weight)
        shapes = {(infos[second[expert]].shape[0], infos[a].shape[1]) for expert, a in first.items()}
        if len(shapes) > 1:
            raise BadTensorInfo(
                "the factors of its experts are for matrices of several shapes; save the adapter again", file=path, field=weight
            )
        whole, rank = shapes.pop(), max(infos[a].shape[0] for a in first.values())
        stack, embeds = () if None in first else (self._count(first),), weight == TABLE
        whole = whole[::-1] if embeds else whole
        for piece in self._pieces(weight):
            name = weight.replace(part_of(weight), piece.name) if piece.name else weight
            source = source_of((weight,), TYPES_BY_NAME["F32"], whole, piece, self._config, path, rows=self._pairs(name, whole[0]))
            if embeds:
                yield Half(name, "A", first, (source.shape[0], rank), source.rows, embeds)
                yield Half(name, "B", second, (source.shape[1], rank), source.columns, embeds)
            else:
                yield Half(name, "A", first, (*stack, rank, source.shape[1]), source.columns)
                yield Half(name, "B", second, (*stack, source.shape[0], rank), source.rows)

    def _check_base(self) -> None:
        """Raises Unsupported for what loading would refuse: weights that the base lacks, or that are tied to others."""
        base = _matrices(self._place)
        tied = self._config.get("tie_word_embeddings") is not False if base is None else base.tied
        for half in self.halves:
            fits = True
            if base is not None and half.weight in base.shapes:
                *stack, rows, columns = base.shapes[half.weight]
                a = (rows, half.rank) if half.embeds else (*stack, half.rank, columns)
                b = (columns if half.embeds else rows, half.rank)
                fits = half.shape == (a if half.letter == "A" else (*stack, *b))
            if tied and half.weight in (OUTPUT, TABLE) and (base is None or half.weight == TABLE or OUTPUT not in base.shapes):
                raise Unsupported(
                    TIED.format("the embedding" if half.weight == OUTPUT else "the output"),
                    file=self._file.paths[0],
                    field=half.name,
                )
            if base is not None and half.weight not in base.shapes:
                raise Unsupported(NO_PLACE, file=self._file.paths[0], field=half.name)
            if not fits:
                raise BadTensorInfo(
                    f"has the shape {half.shape}, for another model; give the folder of the one that it was trained on with --base",
                    file=self._file.paths[0],
                    field=half.name,
                )

    def _pairs(self, weight: str, n_rows: int) -> Rows | None:
        """Rows of queries and keys in GGUF's order, None for others."""
        key = {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}.get(part_of(weight))
        if not self._family.paired_rows or key is None:
            return None
        metadata = metadata_of(self._config, self._family, self._place)
        if not (heads := count_of(metadata, key)):
            raise BadHParam("says no number of heads; download the folder again", file=os.path.join(self._place, "config.json"))
        return paired_rows(n_rows, heads, self._file.paths[0], weight, count_of(metadata, "rope.dimension_count"))

    def _count(self, names: Mapping[int | None, str]) -> int:
        """The number of the model's experts. Raises BadHParam where its configuration does not say it, BadTensorInfo for others."""
        count = asked(self._family.keys, self._config, self._place).get("expert_count")
        if not isinstance(count, int) or not 1 <= count <= MAX_EXPERTS:
            raise BadHParam(
                f"says that there are {str(count)[:40]} experts, and the adapter is for single ones; give the folder "
                "of the model that it was trained on with --base",
                file=os.path.join(self._place, "config.json"),
            )
        last = max(number for number in names if number is not None)
        if last >= count:
            raise BadTensorInfo(
                f"is for expert {last}, and the model has {count} from 0 on; give the folder of the model that it "
                "was trained on with --base",
                file=self._file.paths[0],
                field=names[last],
            )
        return count


@dataclass(frozen=True, slots=True)
class Base:
    """A model that adapters are for: shapes of the weights that they may change, and whether its output is its table of tokens."""

    shapes: Mapping[str, tuple[int, ...]]
    tied: bool


def _matrices(folder: str) -> Base | None:
    """The model in a folder, None for one of which the configuration alone is there."""
    if not any(name.endswith(".safetensors") for name in os.listdir(folder)):
        return None
    with contextlib.suppress(FormatError), open_mlx_folder(folder, unpacked) as model:
        model.drop_tied_output()
        graph = build_graph(model)[1]
        shapes = matrices(graph)
        tied = any(multiplied_by(node) == TABLE for node in graph.nodes)
        return Base({name: shapes[name] for name in adaptable(graph)}, tied)
    return None


def _alphas(settings: Json, path: str) -> list[tuple[Callable[[str], object], float]]:
    """Alphas of single modules, by what the ends of their names match; the first one counts, as in PEFT. Raises BadHParam."""
    patterns = settings.get("alpha_pattern") or {}
    try:
        return [(_module(pattern), float(alpha)) for pattern, alpha in patterns.items()]
    except (ArithmeticError, AttributeError, TypeError, ValueError, re.error) as error:
        raise BadHParam(
            f"is not a table of alphas ({str(error)[:60]}); save the adapter again", file=path, field="alpha_pattern"
        ) from error


def _module(pattern: str) -> Callable[[str], object]:
    """True if a module's name, or an end of it, matches an expression: by `re` where that has nothing to try again."""
    whole = rf"(?:.*\.)?(?:{pattern})"
    return LinearPattern(whole).fullmatch if set(pattern) & set("*+?{|(") else re.compile(whole).fullmatch
