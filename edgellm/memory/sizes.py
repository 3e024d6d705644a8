"""Sizes of a conversation's states in bytes."""

from __future__ import annotations

from edgellm.graph import KVSpec
from edgellm.memory.kv_types import check_kv_type, kv_row_bytes
from edgellm.memory.layout import MemoryLayout
from edgellm.memory.pages import sink_slots


def kv_bytes(layout: MemoryLayout, kv_type: str) -> int:
    """Bytes of one conversation's states, or of a step's documents. Raises OptionError for a type that does not exist."""
    check_kv_type(kv_type)
    slots = [sink_slots(memory) + memory.ring for memory in layout.classes]
    layers = [(token_bytes(spec, kv_type) * slots[index], index) for _, spec, index in layout.kv]
    recurrent = layout.state_slots * sum(spec.nbytes for _, spec in layout.recurrent)
    return recurrent + sum(
        max(nbytes for nbytes, of in layers if of == index)
        if layout.documents
        else sum(nbytes for nbytes, of in layers if of == index)
        for index in {of for _, of in layers}
    )


def kv_read_bytes(layout: MemoryLayout, kv_type: str, keys: int) -> int:
    """Bytes of states that a token reads which comes after `keys` - 1 others."""
    nbytes = sum(spec.nbytes for _, spec in layout.recurrent)
    for _, layer, index in layout.kv:
        memory = layout.classes[index]
        nbytes += token_bytes(layer, kv_type) * min(keys, memory.sinks + memory.window)
    return nbytes


def token_bytes(layer: KVSpec, kv_type: str) -> int:
    """A token's key and value in one layer."""
    value = 0 if layer.v_is_k_prefix else kv_row_bytes(kv_type, layer.dim_v)
    return layer.n_kv_heads * (kv_row_bytes(kv_type, layer.dim_k) + value)
