"""Chooses a type for each tensor so that a file has a given size and its predictions change least, by measured errors.

A model reads a text once as it is, and once for each matrix with that one quantised: the KL divergence of its predictions says how
much an error there costs. Other types of the same matrix are taken to cost in proportion to their squared error, weighted by the
mean squares of what the matrix is multiplied with. Costs are added up, and bits go where they save most for their bytes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgellm.arch import load_graph
from edgellm.backends.base import Progress
from edgellm.errors import NumericError, OptionError
from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import TYPES_BY_NAME, GGMLType
from edgellm.formats.gguf import GGUFFile, open_gguf
from edgellm.formats.gguf_tensors import TensorInfo
from edgellm.formats.writer import NewTensor
from edgellm.graph import Graph
from edgellm.tokenizer import build_tokenizer
from edgellm.tools.encoder import TensorEncoder
from edgellm.tools.imatrix import Listener, windows_of
from edgellm.tools.kl import Divergences
from edgellm.tools.mixes import MIXES, Mix, is_quantisable
from edgellm.weights import WeightStore

CANDIDATES = ("Q2_K", "Q3_K", "IQ4_XS", "IQ4_NL", "Q4_K", "Q5_0", "Q5_K", "Q6_K", "Q8_0")
WINDOW, WINDOWS = 256, 4  # tokens of a window, and how many of the text are read
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Choice:
    """A type for a tensor: the bytes that it would have, and what its error is taken to cost, in nats a token."""

    kind: GGMLType
    nbytes: int
    cost: float


@dataclass(frozen=True, slots=True)
class SizeTarget:
    """The choice for a size: the mix that the file is declared as, and the type of every tensor, in the file's order."""

    mix: Mix
    types: Mapping[str, GGMLType]
    cost: float  # the expected KL divergence, in nats a token


def choose_for_size(path: str | os.PathLike[str], bits: float, text: str, *, progress: Progress | None = None) -> SizeTarget:
    """The types with which all tensors together have at most `bits` bits per weight. Runs on the NumPy reference: once for each
    matrix over some windows of `text`. Raises OptionError where the size cannot be reached or the text is too short, NumericError.
    """
    with open_gguf(path) as gguf:
        quantised = {name: info for name, info in gguf.tensors.items() if is_quantisable(info)}
        total = sum(int(np.prod(info.shape)) for info in gguf.tensors.values())
        kept = sum(info.nbytes for name, info in gguf.tensors.items() if name not in quantised)
        budget = int(bits * total / 8) - kept
        _check(quantised, budget, bits, kept, total)
        costs = _Costs(gguf, text, progress).measured(quantised, _probe(bits))
        chosen = allocate(costs, budget)
        types = {name: chosen[name].kind if name in chosen else info.type for name, info in gguf.tensors.items()}
        return SizeTarget(
            _mix(bits, (choice.kind.name for choice in chosen.values())), types, sum(one.cost for one in chosen.values())
        )


def candidates(info: TensorInfo) -> list[GGMLType]:
    """The types whose blocks fit a tensor's rows."""
    kinds = [TYPES_BY_NAME[name] for name in CANDIDATES]
    return [kind for kind in kinds if info.shape[-1] % kind.block == 0] or [TYPES_BY_NAME["F16"]]


def allocate(choices: Mapping[str, Iterable[Choice]], budget: int) -> dict[str, Choice]:
    """One choice for each tensor, of `budget` bytes at most: from the smallest of all on, the step that saves the most for its
    bytes is taken, as long as one fits.
    """
    ladders = {name: _ladder(some) for name, some in choices.items()}
    at = dict.fromkeys(ladders, 0)
    left = budget - sum(ladder[0].nbytes for ladder in ladders.values())
    while True:
        steps = [
            ((ladder[at[name]].cost - one.cost) / (one.nbytes - ladder[at[name]].nbytes), name, place)
            for name, ladder in ladders.items()
            for place, one in enumerate(ladder)
            if place > at[name] and one.nbytes - ladder[at[name]].nbytes <= left
        ]
        if not steps:
            return {name: ladder[at[name]] for name, ladder in ladders.items()}
        _, name, place = max(steps)
        left -= ladders[name][place].nbytes - ladders[name][at[name]].nbytes
        at[name] = place


def _ladder(choices: Iterable[Choice]) -> list[Choice]:
    """By size, without those that a smaller one beats."""
    kept: list[Choice] = []
    for choice in sorted(choices, key=lambda one: (one.nbytes, one.cost)):
        if not kept or choice.cost < kept[-1].cost:
            kept.append(choice)
    return kept


def _check(quantised: Mapping[str, TensorInfo], budget: int, bits: float, kept: int, total: int) -> None:
    least = sum(min(_size(info, kind) for kind in candidates(info)) for info in quantised.values())
    if least > budget:
        smallest = 8 * (least + kept) / total
        raise OptionError(f"--target {bits:g}: this model's smallest file has {smallest:.2f} bits per weight; give more.")


def _size(info: TensorInfo, kind: GGMLType) -> int:
    return NewTensor(info.name, info.shape, kind).nbytes


def _probe(bits: float) -> str:
    """The type nearest to the size that is asked for."""
    return min(("Q3_K", "Q4_K", "Q5_K", "Q6_K"), key=lambda name: abs(8 * TYPES_BY_NAME[name].block_bytes / 256 - bits))


def _mix(bits: float, names: Iterable[str]) -> Mix:
    """Named by what the most tensors have, as llama.cpp's `general.file_type` must be one that it knows."""
    base = Counter(names).most_common(1)[0][0]
    file_type = next((mix.file_type for mix in MIXES.values() if mix.base == base), MIXES["F16"].file_type)
    return Mix(f"{bits:g} bits", file_type, base, "types by measured error")


class _Costs:
    """Reads a text with one model after the other, each with one matrix changed."""

    def __init__(self, gguf: GGUFFile, text: str, progress: Progress | None) -> None:
        self._gguf, self._progress = gguf, progress
        _, self._graph = load_graph(gguf, WINDOW)
        self._store = WeightStore(gguf)
        tokenizer = build_tokenizer(gguf.metadata, file=gguf.path)
        self._windows = windows_of(tokenizer, text, WINDOW, WINDOWS)

    def measured(self, quantised: Mapping[str, TensorInfo], probe: str) -> dict[str, list[Choice]]:
        sources, targets = (
            {info.type.name for info in quantised.values()},
            {kind for info in quantised.values() for kind in candidates(info)},
        )
        encoder = TensorEncoder(sources, {kind.name for kind in targets}, weighted=False)
        listener = Listener(self._graph, self._store, with_output=True)
        base = self._predictions(listener)
        found = {}
        for number, (name, info) in enumerate(quantised.items(), start=1):
            if self._progress is not None:
                self._progress("measuring what errors cost, matrix", number, len(quantised))
            found[name] = self._choices(info, listener, base, encoder, probe)
        return found

    def _choices(
        self, info: TensorInfo, listener: Listener, base: list[Floats], encoder: TensorEncoder, probe: str
    ) -> list[Choice]:
        kinds = candidates(info)
        weights = self._store[info.name].array()
        raw = self._gguf.raw(info.name).reshape(int(np.prod(info.shape[:-1])), -1)
        columns = listener.squares.get(info.name, np.ones(info.shape[-1]))
        tried = TYPES_BY_NAME[probe] if TYPES_BY_NAME[probe] in kinds else kinds[-1]
        errors, divergence = {}, 0.0
        for kind in kinds:
            rounded = CODECS[kind.name].dequantize(encoder.encode(raw, info.type, kind)).reshape(weights.shape)
            errors[kind] = float((np.square(rounded - weights, dtype=np.float64) * columns).sum())
            if kind is tried:
                divergence = self._divergence(info.name, rounded, base)
        scale = divergence / errors[tried] if errors[tried] else 0.0
        return [Choice(kind, _size(info, kind), scale * errors[kind]) for kind in kinds]

    def _divergence(self, name: str, changed: Floats, base: list[Floats]) -> float:
        """KL of the predictions with one matrix changed, in nats a token."""
        collected = Divergences()
        for before, after in zip(base, self._predictions(_Changed(self._graph, self._store, name, changed)), strict=True):
            collected.add(before, after, np.zeros(len(before), np.int32))
        return max(0.0, collected.result().mean)

    def _predictions(self, model: Listener) -> list[Floats]:
        """Log-probabilities of the second half of each window."""
        found = []
        for tokens in self._windows:
            logits = model.logits(tokens)[WINDOW // 2 :]
            if not np.isfinite(logits).all():
                raise NumericError(f"{self._gguf.path}: its logits are NaN or Inf; the file is damaged, get another one.")
            shifted = logits - logits.max(axis=-1, keepdims=True)
            found.append(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
        return found


class _Changed(Listener):
    """A model with another matrix in the place of one."""

    def __init__(self, graph: Graph, weights: WeightStore, name: str, changed: Floats) -> None:
        super().__init__(graph, weights, with_output=False)
        self._name, self._changed = name, changed

    def weight(self, name: str) -> Floats:
        return self._changed if name == self._name else super().weight(name)
