"""How many tokens a conversation sees: the default, what may be asked for, and whether its keys and values fit into memory."""
from __future__ import annotations

from edgellm.backends.base import Backend
from edgellm.engine.integers import as_int
from edgellm.errors import OptionError, shown
from edgellm.graph import Graph
from edgellm.memory.layout import MemoryLayout, plan_memory

DEFAULT_CONTEXT = 4096                           # or what the model was trained for, where that is less
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


def plan(graph: Graph, context: int, sinks: int, backend: Backend) -> MemoryLayout:
    """The memory layout of a graph on a back end."""
    return plan_memory(graph.kv_states, context=context, sinks=sinks, chunk=min(backend.chunk, context))


def check_memory(needed: int, context: int, available: int) -> None:
    """Raises OptionError where keys and values of a full context would not fit into the memory that is free."""
    if needed > available:
        fitting = int(context * available / needed * 0.8)
        raise OptionError(f"context={context} needs {needed / 2**30:.1f} GiB for keys and values, but {available / 2**30:.1f} GiB "
                          f"of memory are free; give about {fitting} or fewer, or close other programs.")
