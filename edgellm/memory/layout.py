"""Which layers share slot arithmetic: memory classes and slots of states of a model at one context size, integers only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgellm.graph import KVSpec, RecurrentSpec, StateSpec

RING_MULTIPLE = 256  # slots; back ends cut a ring into equal pieces at fixed places
DOCUMENT_SLOTS = 1024  # at least, for the documents of one step: 32 short ones
RECURRENT = -1  # instead of a memory class
STATE_BYTES = 64 << 20  # that a conversation's recurrent states may take, beyond the fewest that there must be
MOST_ROLLING, FEWEST_ROLLING = 9, 3
MOST_SNAPSHOTS, FEWEST_SNAPSHOTS = 4, 1


@dataclass(frozen=True, slots=True)
class MemoryClass:
    """Layers with the same slots: `sinks` that may stay, then a ring, of whose entries a token sees at most `window`.

    `kept` of the first tokens stay, unless a conversation keeps more of them, up to all `sinks`; then it sees less of its ring.

    Where it is not `causal`, a token sees those after it as well: of a document all, or half of the window to each side.
    Where it is `chunked`, windows begin at multiples of their length.
    """

    sinks: int
    window: int  # ring entries a token sees, itself included
    ring: int  # at least window + chunk - 1: a chunk never evicts what its first tokens see
    causal: bool = True
    fewest: int | None = None  # tokens that stay in every conversation; None: all sinks
    chunked: bool = False

    @property
    def kept(self) -> int:
        return self.sinks if self.fewest is None else self.fewest

    @property
    def slots(self) -> int:
        return self.sinks + self.ring


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Memory classes and the class of each state. `context`: tokens that a full layer sees, sinks included.

    Recurrent states have slots in common: `rolling` of the newest tokens, and `snapshots`; both are 0 where there is none.
    """

    context: int
    chunk: int  # tokens of one step, at most
    classes: tuple[MemoryClass, ...]  # class 0 is the full one
    layer_class: tuple[int, ...]  # per state: index into `classes`, or RECURRENT
    layers: tuple[StateSpec, ...]  # by number of the state
    rolling: int = 0
    snapshots: int = 0
    documents: bool = False  # each step carries complete texts, and no state outlives it: layers take turns at the same slots
    outputs: int = 0  # rows that leave a step, where they may be more than those of wanted logits

    @property
    def state_slots(self) -> int:
        """Slots of recurrent states."""
        return self.rolling + self.snapshots

    @property
    def kv(self) -> Iterator[tuple[int, KVSpec, int]]:
        """The states that are keys and values: their numbers, what they are, and their classes."""
        for state, (spec, index) in enumerate(zip(self.layers, self.layer_class, strict=True)):
            if isinstance(spec, KVSpec):
                yield state, spec, index

    @property
    def recurrent(self) -> Iterator[tuple[int, RecurrentSpec]]:
        """The others."""
        return ((state, spec) for state, spec in enumerate(self.layers) if isinstance(spec, RecurrentSpec))

    def kv_spec(self, state: int) -> KVSpec:
        """A state that is keys and values."""
        spec = self.layers[state]
        assert isinstance(spec, KVSpec)
        return spec

    @property
    def with_sinks(self) -> frozenset[int]:
        """The layers that keep sinks when others go."""
        return frozenset(state for state, _, index in self.kv if self.classes[index].sinks)


def plan_memory(layers: Sequence[StateSpec], *, context: int, sinks: int, chunk: int, pinned: int = 0) -> MemoryLayout:
    """Sort layers into classes. A sliding layer whose window reaches the whole context is a full layer. `pinned`: first tokens
    that a conversation may keep, where that is more than the sinks."""

    def ring(window: int) -> int:
        return -(-(window + chunk - 1) // RING_MULTIPLE) * RING_MULTIPLE

    full = MemoryClass(max(sinks, pinned), context - sinks, ring(context - sinks), fewest=sinks if pinned > sinks else None)
    classes, layer_class = [full], []
    for layer in layers:
        if isinstance(layer, RecurrentSpec):
            layer_class.append(RECURRENT)
            continue
        wanted = full
        if layer.window is not None and layer.window < context:
            wanted = MemoryClass(0, layer.window, ring(layer.window), chunked=layer.chunked)
        if wanted not in classes:
            classes.append(wanted)
        layer_class.append(classes.index(wanted))
    rolling, snapshots = _state_slots(sum(layer.nbytes for layer in layers if isinstance(layer, RecurrentSpec)))
    return MemoryLayout(context, chunk, tuple(classes), tuple(layer_class), tuple(layers), rolling, snapshots)


def plan_documents(layers: Sequence[KVSpec], *, context: int, chunk: int) -> MemoryLayout:
    """Slots for the documents of one step, of at most `context` tokens each and `chunk` together."""
    slots = max(-(-chunk // RING_MULTIPLE) * RING_MULTIPLE, DOCUMENT_SLOTS)
    classes: list[MemoryClass] = []
    layer_class = []
    for layer in layers:
        visible = context if layer.causal else 2 * context
        wanted = MemoryClass(0, min(layer.window or visible, visible), slots, layer.causal, chunked=layer.chunked)
        if wanted not in classes:
            classes.append(wanted)
        layer_class.append(classes.index(wanted))
    return MemoryLayout(context, chunk, tuple(classes), tuple(layer_class), tuple(layers), documents=True)


def plan_patches(layers: Sequence[KVSpec], *, patches: int, rows: int) -> MemoryLayout:
    """Slots for the patches of one step of an encoder, of which so many rows leave it."""
    slots = -(-patches // RING_MULTIPLE) * RING_MULTIPLE
    classes: list[MemoryClass] = []
    layer_class = []
    for layer in layers:
        wanted = MemoryClass(0, layer.window or 2 * slots, slots, layer.causal, chunked=layer.chunked)
        if wanted not in classes:
            classes.append(wanted)
        layer_class.append(classes.index(wanted))
    return MemoryLayout(slots, slots, tuple(classes), tuple(layer_class), tuple(layers), documents=True, outputs=rows)


def _state_slots(nbytes: int) -> tuple[int, int]:
    """Slots for the newest states, all of which take `nbytes`, and for snapshots."""
    if not nbytes:
        return 0, 0
    fitting = STATE_BYTES // nbytes
    rolling = min(max(fitting, FEWEST_ROLLING), MOST_ROLLING)
    return rolling, min(max(fitting - rolling, FEWEST_SNAPSHOTS), MOST_SNAPSHOTS)
