"""Layers that attend to the keys and values of an earlier layer instead of their own (Gemma 3n and 4)."""

from __future__ import annotations

from collections.abc import Sequence

from edgellm.graph import Builder, KVSpec, Value
from edgellm.hparams import Keys
from edgellm.ops.attention import kv_write

PARTS = ("attn_k.", "attn_v.", "attn_k_norm.")  # what files may have of layers that need no keys of their own


class SharedStates:
    """The last `attention.shared_kv_layers` layers attend to the last state before them whose layer slides as they do."""

    def __init__(self, keys: Keys, slides: Sequence[bool]) -> None:
        """Raises BadHParam."""
        self._keys, self._slides = keys, slides
        self._first = keys.n_layers - keys.integer("attention.shared_kv_layers", 0, keys.n_layers, default=0)
        self._states: dict[bool, int] = {}

    def own(self, layer: int) -> bool:
        """True if a layer has keys of its own."""
        return layer < self._first

    def write(self, g: Builder, layer: int, k: Value, v: Value, spec: KVSpec) -> None:
        self._states[self._slides[layer]] = kv_write(g, k, v, spec)

    def of(self, g: Builder, layer: int, n_heads: int) -> int:
        """The state that a layer with so many heads attends to. Raises BadHParam where there is none."""
        state = self._states.get(self._slides[layer])
        if state is None:
            raise self._keys.bad("attention.shared_kv_layers", f"layer {layer} would attend to one before it, and there is none")
        if not self.own(layer):
            for part in PARTS:
                g.leave_out(f"blk.{layer}.{part}")
        spec = g.spec_of(state)
        assert isinstance(spec, KVSpec)
        if n_heads % spec.n_kv_heads:
            raise self._keys.bad("attention.head_count", f"{n_heads} heads of layer {layer} cannot share {spec.n_kv_heads}")
        return state
