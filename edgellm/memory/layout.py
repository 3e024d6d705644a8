"""Which layers share slot arithmetic: the memory classes of a model at one context size, integers only."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgellm.graph import KVSpec

RING_MULTIPLE = 256              # slots; back ends cut a ring into equal pieces at fixed places
DOCUMENT_SLOTS = 1024            # at least, for the documents of one step: 32 short ones


@dataclass(frozen=True, slots=True)
class MemoryClass:
    """Layers with the same slots: `sinks` that stay, then a ring, of whose entries a token sees at most `window`.

    Where it is not `causal`, a token sees those after it as well: of a document all, or half of the window to each side.
    """

    sinks: int
    window: int                                  # ring entries a token sees, itself included
    ring: int                                    # at least window + chunk - 1: a chunk never evicts what its first tokens see
    causal: bool = True

    @property
    def slots(self) -> int:
        return self.sinks + self.ring


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Memory classes and the class of each layer. `context`: tokens that a full layer sees, sinks included."""

    context: int
    chunk: int                                   # tokens of one step, at most
    classes: tuple[MemoryClass, ...]             # class 0 is the full one
    layer_class: tuple[int, ...]                 # per layer: index into `classes`
    layers: tuple[KVSpec, ...]
    documents: bool = False                      # steps carry whole texts that nothing outlives: layers share slots by turns

    @property
    def with_sinks(self) -> frozenset[int]:
        """The layers that keep sinks when others go."""
        return frozenset(layer for layer, index in enumerate(self.layer_class) if self.classes[index].sinks)


def plan_memory(layers: Sequence[KVSpec], *, context: int, sinks: int, chunk: int) -> MemoryLayout:
    """Sort layers into classes. A sliding layer whose window reaches the whole context is a full layer."""
    def ring(window: int) -> int:
        return -(-(window + chunk - 1) // RING_MULTIPLE) * RING_MULTIPLE

    full = MemoryClass(sinks, context - sinks, ring(context - sinks))
    classes, layer_class = [full], []
    for layer in layers:
        wanted = full
        if layer.window is not None and layer.window < context:
            wanted = MemoryClass(0, layer.window, ring(layer.window))
        if wanted not in classes:
            classes.append(wanted)
        layer_class.append(classes.index(wanted))
    return MemoryLayout(context, chunk, tuple(classes), tuple(layer_class), tuple(layers))


def plan_documents(layers: Sequence[KVSpec], *, context: int, chunk: int) -> MemoryLayout:
    """Slots for the documents of one step, of at most `context` tokens each and `chunk` together."""
    slots = max(-(-chunk // RING_MULTIPLE) * RING_MULTIPLE, DOCUMENT_SLOTS)
    classes: list[MemoryClass] = []
    layer_class = []
    for layer in layers:
        whole = context if layer.causal else 2 * context
        wanted = MemoryClass(0, min(layer.window or whole, whole), slots, layer.causal)
        if wanted not in classes:
            classes.append(wanted)
        layer_class.append(classes.index(wanted))
    return MemoryLayout(context, chunk, tuple(classes), tuple(layer_class), tuple(layers), documents=True)
