"""LoRA adapters of a model: read from GGUF files, checked against it, laid behind each other, and scaled for each conversation."""

from __future__ import annotations

import hashlib
import itertools
import math
import numbers
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgellm.errors import BadHParam, BadTensorInfo, FormatError, OptionError, ShapeMismatch, Unsupported, shown
from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.gguf import GGUFFile, open_gguf
from edgellm.formats.interleave import Move, interleave
from edgellm.graph import Graph
from edgellm.passes.lora import DOWN, MOST_RANK, ROWS, SCALES, UP, adaptable, add_adapters, down_name, repeats, together
from edgellm.spec import matrices
from edgellm.weights import Weight, WeightStore

Floats = npt.NDArray[np.float32]
Asked = Sequence[tuple[str | os.PathLike[str], float] | str | os.PathLike[str]]
A, B = ".lora_a", ".lora_b"
MOST_SCALE = float(np.finfo(np.float32).max)
MOST_SETS = 256  # combinations of scales that conversations have at a time
PLAIN = ("F32", "F16", "BF16")  # weights that are not quantised
RANK_MULTIPLE = 8  # of all ranks together: whole vectors for the kernels


def asked_for(adapters: object) -> list[tuple[str, float]]:
    """Paths and scales, from (path, scale) or a path alone. Raises OptionError."""
    if not isinstance(adapters, Sequence | None) or isinstance(adapters, str | bytes | bytearray):
        raise OptionError("is not a list", option="adapters", value=adapters, advice="give e.g. [(path, 1.0)], or [path]")
    return [_path_and_scale(each) for each in adapters or ()]


def _path_and_scale(asked: object) -> tuple[str, float]:
    path, scale = asked if isinstance(asked, tuple) and len(asked) == 2 else (asked, 1.0)
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    number = isinstance(scale, numbers.Real) and not isinstance(scale, bool)
    if not isinstance(name, str) or not number or not -MOST_SCALE <= scale <= MOST_SCALE:
        raise OptionError(option="adapters", value=asked, advice="give (path, scale) with a finite scale, or a path")
    return name, float(scale)


class AdapterFile:
    """One file, decoded: by weight the factors A (rank, columns) and B (rows, rank), for a table of rows (rows, rank) and (columns,
    rank), of experts (experts, rank, columns) and (experts, rows, rank). `alpha` as the file has it, 0 for none.
    """

    def __init__(self, path: str, graph: Graph, architecture: str) -> None:
        """Raises FormatErrors that name the file and the tensor: another architecture, shape or rank, or no such weight."""
        with open_gguf(path) as gguf:
            self.path = str(Path(gguf.path).resolve())
            self.alpha = _alpha(gguf, architecture)
            store = WeightStore(gguf)
            kinds, shapes = adaptable(graph), matrices(graph)
            self.factors = {name: self._pair(store, name, kinds, shapes) for name in _names(gguf)}
        if not self.factors:
            raise BadTensorInfo("has no lora_a and lora_b, so it adapts nothing; convert it again", file=path)

    def _pair(
        self, store: WeightStore, name: str, kinds: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]
    ) -> tuple[Floats, Floats]:
        field = name + A
        if name not in kinds and name in shapes:
            raise Unsupported(
                "adapts matrices of heads, of which edgellm adapts none; leave that module out of the "
                "adapter, or merge the adapter into the model",
                file=self.path,
                field=field,
            )
        if name not in kinds:
            raise Unsupported(
                "adapts a weight that the model does not have or that cannot be adapted; take the adapter of this model",
                file=self.path,
                field=field,
            )
        *experts, rows, columns = shapes[name]
        a, b = (_values(store, name + half, self.path, len(shapes[name])) for half in (A, B))
        embeds = kinds[name] == "embed"
        wanted = (*experts, rows, columns) if embeds else (*experts, columns, rows)
        given = (*a.shape[:-2], a.shape[-2] if embeds else a.shape[-1], b.shape[-2])
        if given != wanted or b.shape[:-2] != a.shape[:-2]:
            raise ShapeMismatch(
                f"is for a weight of {given}, and the model's is {wanted}; take the adapter of this model",
                file=self.path,
                field=field,
            )
        ranks = (a.shape[-1] if embeds else a.shape[-2], b.shape[-1])
        if ranks[0] != ranks[1] or not 1 <= ranks[0] <= MOST_RANK:
            raise ShapeMismatch(
                f"has rank {ranks[0]}, and its lora_b {ranks[1]}; convert the adapter again", file=self.path, field=field
            )
        return a, b

    def rank(self, name: str) -> int:
        """At one weight; 0 where it does not adapt it."""
        return self.factors[name][1].shape[-1] if name in self.factors else 0

    def strength(self, name: str) -> float:
        """The factor of its product at scale 1: alpha / rank, 1 where the file has no alpha."""
        return self.alpha / self.rank(name) if self.alpha else 1.0


class AdapterSets:
    """The adapters that were loaded with a model, and the scales that conversations give them. Set 0 is the model's own."""

    def __init__(self, asked: Asked, graph: Graph, architecture: str) -> None:
        given = asked_for(asked)
        self.adapters = [AdapterFile(path, graph, architecture) for path, _ in given]
        self.names = sorted({name for adapter in self.adapters for name in adapter.factors})
        self._shapes, self._kinds = matrices(graph), adaptable(graph)
        ends = np.cumsum([0, *(max(adapter.rank(name) for name in adapter.factors) for adapter in self.adapters)]).tolist()
        self._places = [slice(start, stop) for start, stop in itertools.pairwise(ends)]
        self.ranks = -(-ends[-1] // RANK_MULTIPLE) * RANK_MULTIPLE
        self._scales = np.zeros((MOST_SETS, repeats(graph, self.names), self.ranks), np.float32)
        self._lock = threading.Lock()
        self._sets: dict[tuple[float, ...], int] = {}
        self.number([scale for _, scale in given])

    def graph(self, graph: Graph) -> Graph:
        """An optimised graph with the adapters' products."""
        return add_adapters(graph, self.names, self.ranks, MOST_SETS)

    def weights(self, graph: Graph, gguf: GGUFFile) -> dict[str, Weight]:
        """The factors as weights of what `graph` gives, and the table of scales, whose memory stays this object's."""
        file, coarse = gguf.path, {name: gguf.tensors[name].type.name not in PLAIN for name in self.names}
        table, firsts = self._scales.reshape(MOST_SETS, -1), dict[str, Floats]()
        found = {SCALES: Weight(SCALES, TYPES_BY_NAME["F32"], table.shape, table.view(np.uint8), file)}
        for name in self.names:
            if self._kinds[name] == "experts":
                found |= {half.name: half for half in self._of_experts(name, file, rounds=coarse[name])}
                continue
            rows, columns = self._shapes[name]
            embeds = self._kinds[name] == "embed"
            a = np.zeros((rows, self.ranks) if embeds else (self.ranks, columns), np.float32)
            b = np.zeros((self.ranks, columns if embeds else rows), np.float32)
            for adapter, place in zip(self.adapters, self._places, strict=True):
                if name in adapter.factors:
                    own, end = adapter.factors[name], place.start + adapter.rank(name)
                    (a.T if embeds else a)[place.start : end] = own[0].T if embeds else own[0]
                    b[place.start : end] = own[1].T * np.float32(adapter.strength(name))
            found[name + UP] = narrowed(name + UP, b, file, rounds=coarse[name])
            if embeds:
                found[name + ROWS] = narrowed(name + ROWS, a, file, rounds=coarse[name])
            else:
                firsts[name] = a
        for group in dict.fromkeys(together(graph, self.names).values()):
            names = [graph.nodes[at].weights[0] for at in group]
            down, array = down_name(names), np.concatenate([firsts[name] for name in names])
            found[down] = narrowed(down, array, file, rounds=all(coarse[name] for name in names))
        return found

    def _of_experts(self, name: str, file: str, *, rounds: bool) -> tuple[Weight, Weight]:
        """Both factors of experts: (experts, ranks, columns) and (experts, rows, ranks)."""
        experts, rows, columns = self._shapes[name]
        a, b = np.zeros((experts, self.ranks, columns), np.float32), np.zeros((experts, rows, self.ranks), np.float32)
        for adapter, place in zip(self.adapters, self._places, strict=True):
            if name in adapter.factors:
                own, used = adapter.factors[name], slice(place.start, place.start + adapter.rank(name))
                a[:, used], b[..., used] = own[0], own[1] * np.float32(adapter.strength(name))
        return narrowed(name + DOWN, a, file, rounds=rounds), narrowed(name + UP, b, file, rounds=rounds)

    def chosen(self, asked: Asked | None) -> int:
        """The set of a session: 0 for None, else that with these scales, and none for the other adapters. Raises OptionError."""
        if asked is None:
            return 0
        scales = [0.0] * len(self.adapters)
        for path, scale in asked_for(asked):
            here = [k for k, adapter in enumerate(self.adapters) if adapter.path == str(Path(path).resolve())]
            if not here:
                raise OptionError(
                    "was not loaded with the model",
                    option="adapters",
                    value=path,
                    advice=f"give load(..., adapters=[({shown(path)}, 0.0)])",
                )
            scales[here[0]] += scale
        return self.number(scales)

    def number(self, scales: Sequence[float]) -> int:
        """The set with these scales, one for each adapter. Raises OptionError where there are too many."""
        with self._lock:
            key = tuple(scales)
            if key not in self._sets:
                if len(self._sets) == MOST_SETS:
                    raise OptionError(f"adapters: {MOST_SETS} combinations of scales are in use; load the model again for others.")
                row = len(self._sets)
                for place, scale in zip(self._places, scales, strict=True):
                    self._scales[row, :, place] = scale
                self._sets[key] = row
            return self._sets[key]

    @property
    def listed(self) -> tuple[tuple[Path, float], ...]:
        """The files, and the scales that the model gives them."""
        scales = next(iter(self._sets))
        return tuple((Path(adapter.path), scale) for adapter, scale in zip(self.adapters, scales, strict=True))

    def describe(self, number: int) -> list[tuple[str, float]]:
        """A set as fingerprints of its adapters and their scales, for saved sessions."""
        scales = next(key for key, row in self._sets.items() if row == number)
        return [(fingerprint(adapter), scale) for adapter, scale in zip(self.adapters, scales, strict=True) if scale]

    @property
    def nbytes(self) -> int:
        """Of all factors, laid out."""
        shapes = [self._shapes[name] for name in self.names]
        return sum(4 * self.ranks * math.prod(shape[:-2]) * sum(shape[-2:]) for shape in shapes)


def narrowed(name: str, array: Floats, file: str, *, rounds: bool = False) -> Weight:
    """A factor in 16 bits where they hold all of its values exactly, as they do of adapters that were trained in 16 bits.

    `rounds`: also where they hold them to 11 bits. Beside quantised weights, whose own error is some ten times that, an adapter in
    F32 otherwise costs twice the reading.
    """
    shape, array = array.shape, array.reshape(-1, array.shape[-1])
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    most = np.abs(array).max(initial=0) * 2.0**-11 if rounds else 0.0
    if np.abs(half.astype(np.float32) - array).max(initial=0) <= most:
        return Weight(name, TYPES_BY_NAME["F16"], shape, half.view(np.uint8), file)
    bits = array.view(np.uint32)
    if not (bits & 0xFFFF).any():
        return Weight(name, TYPES_BY_NAME["BF16"], shape, (bits >> 16).astype(np.uint16).view(np.uint8), file)
    return Weight(name, TYPES_BY_NAME["F32"], shape, array.view(np.uint8), file)


def fingerprint(adapter: AdapterFile) -> str:
    """Of what an adapter adds."""
    sha = hashlib.sha256(repr(adapter.alpha).encode())
    for name in sorted(adapter.factors):
        sha.update(name.encode())
        for factor in adapter.factors[name]:
            sha.update(np.ascontiguousarray(factor).tobytes())
    return sha.hexdigest()


class AdaptedWeights(WeightStore):
    """A model's weights, which stay as they are, and those of its adapters."""

    def __init__(self, gguf: GGUFFile, extra: Mapping[str, Weight]) -> None:
        super().__init__(gguf)
        self._extra = extra

    def __getitem__(self, name: str) -> Weight:
        return self._extra[name] if name in self._extra else super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        return name in self._extra or super().__contains__(name)

    def interleave(self, name: str, group: int, move: Move = interleave) -> bool:
        return name not in self._extra and super().interleave(name, group, move)

    def drop(self, name: str) -> None:
        if name not in self._extra:
            super().drop(name)


def _alpha(gguf: GGUFFile, architecture: str) -> float:
    """`adapter.lora.alpha`, once the file is known to be an adapter of this architecture."""
    kind, of = gguf.metadata.get("general.type"), gguf.metadata.get("general.architecture")
    if kind != "adapter" or gguf.metadata.get("adapter.type") != "lora":
        raise Unsupported(
            f"is not a LoRA adapter (its general.type is {shown(kind)}); give a GGUF file that edgellm convert made of one",
            file=gguf.path,
        )
    if of != architecture:
        raise Unsupported(
            f"is an adapter of a {shown(of)} model, and this one is {architecture}; take the adapter of this model",
            file=gguf.path,
            field="general.architecture",
        )
    if (field := next((key for key in gguf.metadata if key.startswith("adapter.alora.")), None)) is not None:
        raise Unsupported(
            "is of an aLoRA, which begins at certain tokens; edgellm runs adapters that hold for all tokens",
            file=gguf.path,
            field=field,
        )
    alpha = gguf.metadata.get("adapter.lora.alpha", 0.0)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise BadHParam(f"is {shown(alpha)}; convert the adapter again", file=gguf.path, field="adapter.lora.alpha")
    return float(alpha)


def _names(gguf: GGUFFile) -> list[str]:
    """The weights that a file adapts. Raises Unsupported for tensors that are not factors, BadTensorInfo for half a pair."""
    found: dict[str, set[str]] = {}
    for name in gguf.tensors:
        base, dot, half = name.rpartition(".")
        if dot + half not in (A, B):
            raise Unsupported("is neither lora_a nor lora_b; only such adapters can be run", file=gguf.path, field=name)
        found.setdefault(base, set()).add(dot + half)
    for base, halves in found.items():
        for missing in {A, B} - halves:
            raise BadTensorInfo(
                "is missing, while its other half is there; get a complete file", file=gguf.path, field=base + missing
            )
    return list(found)


def _values(store: WeightStore, name: str, path: str, n_dims: int) -> Floats:
    weight = store[name]
    if len(weight.shape) != n_dims:
        raise ShapeMismatch(f"has {len(weight.shape)} dimensions; this factor has {n_dims}", file=path, field=name)
    if weight.type.name not in CODECS:
        raise Unsupported(weight.type.refusal, file=path, field=name)
    values = weight.array()
    if not np.isfinite(values).all():
        raise FormatError("has values that are NaN or Inf; get the file again", file=path, field=name)
    return values
