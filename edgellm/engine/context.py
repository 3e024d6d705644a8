"""How many tokens a conversation sees: the default, what may be asked for, and whether its keys and values fit into memory."""
from __future__ import annotations

from edgellm.engine.integers import as_int
from edgellm.errors import OptionError, shown
from edgellm.graph import Graph, KVSpec
from edgellm.memory.kv_types import check_kv_type, kv_row_bytes
from edgellm.memory.layout import MemoryLayout, plan_memory
from edgellm.memory.pages import sink_slots

DEFAULT_CONTEXT = 4096                           # or what the model was trained for, where that is less
CHUNK = 256                                      # tokens of a prompt in one step: enough to share one unpacking of the weights
MOST_SINKS = 2**20
SMALLEST_CONTEXT = 512                           # of those that are taken unasked


def check_sinks(sinks: object) -> int:
    """The first tokens that stay. Raises OptionError."""
    number = as_int(sinks)
    if number is None or not 0 <= number <= MOST_SINKS:
        raise OptionError(f"sinks={shown(sinks)} is not possible; give a whole number from 0 to {MOST_SINKS} (4 is usual).")
    return number


def choose_context(asked: int | None, sinks: int, trained: int) -> int:
    """The context in tokens. More than the model was trained for is allowed: rotary positions go on. Raises OptionError."""
    sinks = check_sinks(sinks)
    context = min(trained, DEFAULT_CONTEXT) if asked is None else as_int(asked)
    if context is None or not sinks + 2 <= context <= 2**30:
        given = asked if context is None else context
        raise OptionError(f"context={shown(given)} is not possible; give a number of tokens from {sinks + 2} (two more than "
                          f"sinks={sinks}) to {2**30}.")
    return context


def candidates(asked: int | None, sinks: int, trained: int) -> list[int]:
    """Contexts to try, longest first. Where none was asked for, a small machine takes a shorter one rather than none."""
    contexts = [choose_context(asked, sinks, trained)]
    while asked is None and contexts[-1] // 2 >= max(SMALLEST_CONTEXT, sinks + 2):
        contexts.append(contexts[-1] // 2)
    return contexts


def check_learned(context: int, trained: int) -> None:
    """Raises OptionError where the context goes past the table of positions."""
    if context > trained:
        raise OptionError(f"context={context} is not possible: this model has learned {trained} positions; give {trained} or less.")


def plan(graph: Graph, context: int, sinks: int, chunk: int = CHUNK) -> MemoryLayout:
    """The memory layout of a graph; `chunk`: tokens of a prompt in one step."""
    return plan_memory(graph.kv_states, context=context, sinks=sinks, chunk=min(chunk, context))


def kv_bytes(layout: MemoryLayout, kv_type: str) -> int:
    """Bytes of one conversation's keys and values. Raises OptionError for a type that does not exist."""
    check_kv_type(kv_type)
    slots = [sink_slots(memory) + memory.ring for memory in layout.classes]
    return sum(_key_bytes(layer, kv_type) * slots[index] for layer, index in zip(layout.layers, layout.layer_class, strict=True))


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


def check_memory(needed: int, context: int, available: int) -> None:
    """Raises OptionError where keys and values of a full context would not fit into the memory that is free."""
    if needed > available:
        fitting = int(context * available / needed * 0.8)
        raise OptionError(f"context={context} needs {needed / 2**30:.1f} GiB for keys and values, but {available / 2**30:.1f} GiB "
                          f"of memory are free; give about {fitting} or fewer, or close other programs.")
