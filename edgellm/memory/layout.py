"""Which layers share slot arithmetic: the memory classes of a model at one context size, integers only."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgellm.graph import KVSpec

RING_MULTIPLE = 256              # slots; back ends cut a ring into equal pieces at fixed places


@dataclass(frozen=True, slots=True)
class MemoryClass:
    """Layers with the same slots: `sinks` that stay, then a ring, of whose entries a token sees at most `window`."""

    sinks: int
    window: int                                  # ring entries a token sees, itself included
    ring: int                                    # at least window + chunk - 1: a chunk never evicts what its first tokens see

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
