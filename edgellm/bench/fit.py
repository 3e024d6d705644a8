"""Will it fit, and how fast: a model's memory at several contexts, its speed, and what to do about it, from its header alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from edgellm.arch import load_graph, names
from edgellm.backends.base import BackendOptions
from edgellm.bench.speed import Speed
from edgellm.catalogue.entries import Entry, ModelFile
from edgellm.catalogue.machine import Memory, memory
from edgellm.catalogue.names import entry_file
from edgellm.catalogue.registry import entries
from edgellm.errors import EdgeError, OptionError
from edgellm.formats.gguf import GGUFFile, open_gguf
from edgellm.loading import context as contexts
from edgellm.loading.backend_choice import reader
from edgellm.loading.estimate import Need, base_bytes, need
from edgellm.loading.load import SMALL_MODEL
from edgellm.memory.kv_types import KV_TYPES
from edgellm.memory.sizes import kv_bytes
from edgellm.ops.dense import learned_positions
from edgellm.passes import optimise

CONTEXTS = (4096, 8192, 16384, 32768, 65536, 131072)
SINKS = 4
NOT_YET = "not yet"  # of models that edgellm cannot run so far
BESIDE, FIXED = 1.2, 0.15 * 2**30  # bytes of memory per byte of a file, and beside it, at a context of 4096
TIGHT = 0.75  # of the usable memory
READING_SPEED = 6.0  # tokens a second: about 250 words a minute


@dataclass(frozen=True, slots=True)
class FitRow:
    """Memory at one context and type of keys and values, and whether it is there."""

    context: int
    kv_type: str
    need: Need
    fits: bool


@dataclass(frozen=True, slots=True)
class Fit:
    """A model as its header describes it: `refusal` is why the model cannot run at all, or ""; rows are empty then."""

    refusal: str
    trained: int
    free: Memory
    rows: tuple[FitRow, ...]
    embeds: bool = False  # texts into vectors, so that it cannot chat

    @property
    def best(self) -> FitRow | None:
        """The longest context that fits in the usual type of keys and values, else in the next; None if none does."""
        fitting = [row for row in self.rows if row.fits]
        return max(fitting, key=lambda row: (-KV_TYPES.index(row.kv_type), row.context), default=None)


@dataclass(frozen=True, slots=True)
class Guess:
    """One file of the catalogue: bytes of memory, tokens a second, and whether it fits: "yes", "tight", "no" or "not yet"."""

    entry: Entry
    file: ModelFile
    memory: int
    tokens_per_second: float
    fits: str


def fit(
    gguf: GGUFFile, *, context: int | None = None, threads: int | None = None, free: Memory | None = None, projector: int = 0
) -> Fit:
    """Memory of an open model, or of one that is known by its header only, at `context` or at several, with the `projector` bytes
    that an image takes beside it. Raises OptionError for a context that the model cannot have.
    """
    free = free or memory()
    try:
        keys, graph = load_graph(gguf)
        trained = keys.context_length
        longest = min(trained, contexts.DEFAULT_CONTEXT) if graph.embeds else trained
        threads = 1 if gguf.nbytes < SMALL_MODEL else threads
        rows = tuple(_rows(gguf, [context] if context else _contexts(longest), threads, free, projector))
    except OptionError:
        raise
    except EdgeError as error:
        return Fit(str(error).removeprefix(f"{gguf.path}: "), 0, free, ())
    return Fit("", trained, free, rows, graph.embeds)


def _contexts(trained: int) -> list[int]:
    below = [context for context in CONTEXTS if context < trained]
    return [*below, trained] if trained <= CONTEXTS[-1] else [*below[:-1], CONTEXTS[-1]]


def _rows(gguf: GGUFFile, wanted: list[int], threads: int | None, free: Memory, projector: int = 0) -> Iterator[FitRow]:
    backend = reader(gguf)
    for context in wanted:
        keys, graph = load_graph(gguf, context)
        if learned_positions(graph) and not graph.embeds:
            contexts.check_learned(context, keys.context_length)
        layout = contexts.plan(graph, context, SINKS, backend)
        graph = optimise(graph, layout.with_sinks)
        for kv_type in ("f32",) if graph.embeds else KV_TYPES:
            try:
                needed = need(backend, gguf, graph, layout, BackendOptions(kv_type, threads))
                needed = replace(needed, projector=projector)
                yield FitRow(context, kv_type, needed, needed.total <= free.usable)
            except MemoryError:  # the plan itself grows with the context
                yield FitRow(context, kv_type, Need(gguf.nbytes, kv_bytes(layout, kv_type), 0, base_bytes(gguf, 0)), False)


def order(one: Guess) -> tuple[bool, int]:
    """Sorts guesses: smallest first, what cannot be run yet behind all others."""
    return one.fits == NOT_YET, one.memory


def guess(entry: Entry, file: ModelFile, speed: Speed | None, free: Memory) -> Guess:
    """The memory and speed that a file of the catalogue would have here; no speed without `speed`.

    The memory is estimated from its header where it is on this machine, else from its length.
    """
    needed = (_known_bytes(entry, file, free) if runs(entry) else 0) or rough_bytes(file.size)
    rate = speed.tokens_per_second(file.size * entry.share_read) if speed and entry.kind != "embedding" else 0.0
    return Guess(entry, file, needed, rate, verdict(needed, free) if runs(entry) else NOT_YET)


def _known_bytes(entry: Entry, file: ModelFile, free: Memory) -> int:
    """Memory at the context that a chat gets, by the header of a file that is here; 0 for another."""
    path = entry_file(file)
    if path is None:
        return 0
    try:
        with open_gguf(path) as gguf:
            trained = load_graph(gguf)[0].context_length
            rows = _rows(gguf, [min(trained, contexts.DEFAULT_CONTEXT)], None, free)
            return next(rows).need.total  # the usual type of keys and values
    except EdgeError:
        return 0


def runs(entry: Entry) -> bool:
    """True if edgellm can run such a model today."""
    return entry.architecture in names()


def best_of(guesses: Sequence[Guess]) -> Guess | None:
    """The largest chat model that fits with room to spare and writes at reading speed."""
    fitting = [
        one for one in guesses if one.fits == "yes" and one.entry.kind == "chat" and not 0 < one.tokens_per_second < READING_SPEED
    ]
    return max(fitting, key=lambda one: one.memory, default=None)


def rough_bytes(file_bytes: int) -> int:
    """Memory for a model of that length at a context of 4096, within a quarter; only the header says more."""
    return int(file_bytes * BESIDE + FIXED)


def verdict(needed: int, free: Memory) -> str:
    """ "yes", "tight" or "no"."""
    if needed > free.usable:
        return "no"
    return "tight" if needed > free.usable * TIGHT else "yes"


def instead(free: Memory) -> Entry | None:
    """The largest chat model of the catalogue that fits with room to spare."""
    best = best_of([guess(entry, file, None, free) for entry in entries().values() if (file := entry.file()) is not None])
    return best.entry if best else None
