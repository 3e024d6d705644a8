"""A PEFT adapter (LoRA) as a GGUF adapter: llama.cpp's names, rows and keys."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.arch.blocks.moe import MAX_EXPERTS
from edgellm.catalogue.hub_cache import snapshots
from edgellm.checkpoints.config import asked, find_family, metadata_of, read_config
from edgellm.checkpoints.families import Family, Piece, part_of
from edgellm.checkpoints.folder import count_of, paired_rows
from edgellm.checkpoints.settings import Settings
from edgellm.checkpoints.source import WHOLE, Rows, source_of
from edgellm.errors import BadHParam, BadTensorInfo, OptionError, Unreadable, Unsupported, shown
from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.gguf_file_type import NAMES
from edgellm.formats.mapped import MappedFile
from edgellm.formats.safetensors import SafeTensorsFile, open_safetensors, read_json
from edgellm.formats.writer import GGUFWriter, NewTensor
from edgellm.tools.converted import LARGEST_F16, LARGEST_F32, PLAIN, Converted
from edgellm.tools.places import check_out, checkpoint_files

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
EXPERTS = "_exps"  # ends GGUF's names of parts that have the matrices of all experts
NAME = re.compile(r"base_model\.model\.(.+)\.lora_([AB])(?:\.\w+)?\.weight")
Floats = npt.NDArray[np.float32]
Json = Mapping[str, Any]  # Any: parsed JSON


def convert_lora(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] | None = None,
    type_name: str | None = None,
) -> Converted:
    """Convert the adapter in `folder` to the file `out`.

    `base`: the folder of the model that it was trained on, of which only config.json is read; None takes what the adapter names,
    a folder or a repository in the hub's cache. Raises Unsupported for adapters that GGUF cannot hold, OptionError, Unwritable and
    the FormatErrors.
    """
    kind = (type_name or "F32").upper()
    if kind not in PLAIN:
        raise OptionError(f"--type {type_name}: adapters are {', '.join(PLAIN)}.")
    folder = os.path.abspath(folder)
    if not os.path.isfile(os.path.join(folder, CONFIG)):
        raise Unreadable(f"has no {CONFIG}, so it is not a PEFT adapter", file=folder)
    settings = read_json(MappedFile(os.path.join(folder, CONFIG)))
    _check(settings, folder)
    place = _base(settings, base)
    check_out(out, [*checkpoint_files(folder), *checkpoint_files(place)], force=True)
    family, config = find_family(read_config(place), place)
    alpha = settings.get("lora_alpha")
    rank = settings.get("r")
    if not isinstance(alpha, (int, float)) or not isinstance(rank, int) or rank < 1:
        raise BadHParam(f"names no lora_alpha and r (they are {alpha!r}, {rank!r}); save the adapter again", file=folder)
    try:
        stated = float(alpha) * (math.sqrt(rank) if settings.get("use_rslora") else 1.0)
    except OverflowError:
        stated = math.inf
    if not abs(stated) < LARGEST_F32:
        raise BadHParam(f"has the lora_alpha {shown(alpha)}; save the adapter again", file=folder, field="lora_alpha")
    with open_safetensors(os.path.join(folder, WEIGHTS)) as file:
        adapter = _Adapter(file, family, config, settings, place)
        tensors = [NewTensor(half.name, half.shape, TYPES_BY_NAME[kind]) for half in adapter.halves]
        metadata = {
            "general.architecture": family.architecture,
            "general.type": "adapter",
            "adapter.type": "lora",
            "general.name": os.path.basename(folder),
            "adapter.lora.alpha": stated,
            "general.file_type": next(number for number, name in NAMES.items() if name == kind),
        }
        with GGUFWriter(out, metadata, tensors) as writer:
            for half in adapter.halves:
                values = adapter.array(half, stated)
                if not np.abs(values).max(initial=0.0) <= (LARGEST_F16 if kind == "F16" else LARGEST_F32):
                    raise Unsupported(
                        f"has NaN, Inf or values beyond the range of {kind}; train it again, or convert with --type F32",
                        file=folder,
                        field=half.name,
                    )
                writer.write(half.name, CODECS[kind].quantize(values))
    path = writer.paths[0]
    return Converted(path, family.architecture, kind, os.stat(path).st_size, len(tensors), ())


def _check(settings: Json, folder: str) -> None:
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
    if settings.get("bias", "none") != "none":
        raise Unsupported("biases are not part of GGUF's adapters; merge the adapter into its model", file=folder, field="bias")


def _base(settings: Json, base: str | os.PathLike[str] | None) -> str:
    """The folder with the base model's config.json. Raises OptionError."""
    named = str(settings.get("base_model_name_or_path") or "")
    wanted = named if base is None else os.fspath(base)
    candidates = [wanted, *map(str, snapshots(named) if base is None and named.count("/") == 1 else [])]
    found = next((place for place in candidates if place and os.path.isfile(os.path.join(place, "config.json"))), None)
    if found is None:
        raise OptionError(f"the base model {wanted[:100]!r} is not here; name a folder with its config.json with --base.")
    return found


@dataclass(frozen=True, slots=True)
class _Half:
    """A or B of one of GGUF's weights: tensors of the adapter by their expert, or a single one; `shape` as it is written.

    `order`: which of A's columns or B's rows it has, None for all as they are.
    """

    weight: str
    letter: str
    names: Mapping[int | None, str]
    shape: tuple[int, ...]
    order: Rows | None

    @property
    def name(self) -> str:
        return f"{self.weight}.lora_{self.letter.lower()}"

    @property
    def rank(self) -> int:
        return self.shape[-2] if self.letter == "A" else self.shape[-1]


class _Adapter:
    """The tensors of an adapter as GGUF has them: those of single experts lie in one, with zeros for experts without any."""

    def __init__(self, file: SafeTensorsFile, family: Family, config: Settings, settings: Json, place: str) -> None:
        """`place`: the folder of `config`. Raises Unsupported, BadHParam and BadTensorInfo."""
        self._file, self._family, self._config, self._place = file, family, config, place
        self._settings, self._alphas = settings, _alphas(settings, file.paths[0])
        self.halves = [half for weight, parts in self._by_weight().items() for half in self._halves(weight, parts)]
        if not self.halves:
            raise BadTensorInfo("holds no tensors", file=file.paths[0])

    def array(self, half: _Half, alpha: float) -> Floats:
        """The values of `half.shape`; B is scaled where what PEFT takes for its module is not `alpha` / rank."""
        found = np.zeros(half.shape, np.float32)
        for expert, name in half.names.items():
            array, into = self._file.array(name).astype(np.float32), found if expert is None else found[expert]
            if half.letter == "A":
                into[: len(array)] = array if half.order is None else array[:, half.order]
            else:
                rank = array.shape[1]
                factor = self._scaling(name, rank) / (alpha / half.rank if alpha else 1.0)
                into[:, :rank] = np.float32(factor) * (array if half.order is None else array[half.order])
        return found

    def _scaling(self, name: str, rank: int) -> float:
        """What PEFT multiplies the product of a tensor's module by."""
        match = NAME.fullmatch(name)
        assert match is not None
        alphas = (alpha for pattern, alpha in self._alphas if pattern.fullmatch(match[1]))
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
            if match is None or unknown or len(self._file.tensors[name].shape) != 2 or differs:
                raise Unsupported(
                    "has no place in a GGUF adapter; merge the adapter into its model, and convert that",
                    file=self._file.paths[0],
                    field=name,
                )
            names = found.setdefault(ours, {"A": {}, "B": {}})[match[2]]
            if number in names or (names and (number is None) != (None in names)):
                raise BadTensorInfo(
                    f"is the second tensor for {ours}; save the adapter again", file=self._file.paths[0], field=name
                )
            names[number] = name
        return found

    def _pieces(self, weight: str) -> tuple[Piece, ...]:
        """What GGUF makes of a weight."""
        return self._family.pieces.get(f"{part_of(weight)}.weight") or self._family.pieces.get(part_of(weight)) or (WHOLE,)

    def _halves(self, weight: str, parts: Mapping[str, Mapping[int | None, str]]) -> Iterator[_Half]:
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
        shapes = {(infos[second[expert]].shape[0], infos[a].shape[1]) for expert, a in first.items()}
        if len(shapes) > 1:
            raise BadTensorInfo(
                "the factors of its experts are for matrices of several shapes; save the adapter again", file=path, field=weight
            )
        whole, rank = shapes.pop(), max(infos[a].shape[0] for a in first.values())
        stack = () if None in first else (self._count(first),)
        for piece in self._pieces(weight):
            name = weight.replace(part_of(weight), piece.name) if piece.name else weight
            source = source_of((weight,), TYPES_BY_NAME["F32"], whole, piece, self._config, path, rows=self._pairs(name, whole[0]))
            yield _Half(name, "A", first, (*stack, rank, source.shape[1]), source.columns)
            yield _Half(name, "B", second, (*stack, source.shape[0], rank), source.rows)

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
        """How many experts the model has. Raises BadHParam where its configuration does not say it, BadTensorInfo for others."""
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


def _alphas(settings: Json, path: str) -> list[tuple[re.Pattern[str], float]]:
    """Alphas of single modules, by what the ends of their names match; the first one counts, as in PEFT. Raises BadHParam."""
    patterns = settings.get("alpha_pattern") or {}
    try:
        return [(re.compile(rf"(?:.*\.)?(?:{pattern})"), float(alpha)) for pattern, alpha in patterns.items()]
    except (AttributeError, TypeError, ValueError, re.error) as error:
        raise BadHParam(
            f"is not a table of alphas ({str(error)[:60]}); save the adapter again", file=path, field="alpha_pattern"
        ) from error
