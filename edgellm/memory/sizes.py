"""How many bytes the keys and values of a conversation take."""
from __future__ import annotations

from edgellm.graph import KVSpec
from edgellm.memory.kv_types import check_kv_type, kv_row_bytes
from edgellm.memory.layout import MemoryLayout
from edgellm.memory.pages import sink_slots


def kv_bytes(layout: MemoryLayout, kv_type: str) -> int:
    """Bytes of one conversation's keys and values, or of a step's documents. Raises OptionError for a type that does not exist."""
    check_kv_type(kv_type)
    slots = [sink_slots(memory) + memory.ring for memory in layout.classes]
    layers = [_key_bytes(layer, kv_type) * slots[index] for layer, index in zip(layout.layers, layout.layer_class, strict=True)]
    return sum(max(nbytes for nbytes, of in zip(layers, layout.layer_class, strict=True) if of == index) if layout.documents
               else sum(nbytes for nbytes, of in zip(layers, layout.layer_class, strict=True) if of == index)
               for index in set(layout.layer_class))


def kv_read_bytes(layout: MemoryLayout, kv_type: str, keys: int) -> int:
    """Bytes of keys and values that a token reads which comes after `keys` - 1 others."""
    nbytes = 0
    for layer, index in zip(layout.layers, layout.layer_class, strict=True):
        memory = layout.classes[index]
        nbytes += _key_bytes(layer, kv_type) * min(keys, memory.sinks + memory.window)
    return nbytes


def _key_bytes(layer: KVSpec, kv_type: str) -> int:
    """A token's key and value in one layer."""
    return layer.n_kv_heads * (kv_row_bytes(kv_type, layer.dim_k) + kv_row_bytes(kv_type, layer.dim_v))
