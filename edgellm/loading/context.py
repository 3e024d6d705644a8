"""How many tokens a conversation sees: the default, what may be asked for, and whether its keys and values fit into memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from edgellm.arguments import as_int
from edgellm.backends.base import Backend
from edgellm.errors import OptionError
from edgellm.graph import Graph
from edgellm.memory.layout import MemoryLayout, plan_documents, plan_memory

DEFAULT_CONTEXT = 4096  # or what the model was trained for, where that is less: always tried
LONGEST_CONTEXT = 131072  # the longest that is chosen automatically
SHARE = 4  # a longer context than the default may take this part of the free memory
MOST_SINKS = 2**20
SMALLEST_CONTEXT = 512  # of those that are chosen automatically
SHORTEST_STEP = 512  # tokens of a step of documents, at most: fewer would read the weights too often


def check_sinks(sinks: object) -> int:
    """The first tokens that stay. Raises OptionError."""
    number = as_int(sinks)
    if number is None or not 0 <= number <= MOST_SINKS:
        raise OptionError(option="sinks", value=sinks, advice=f"give a whole number from 0 to {MOST_SINKS} (4 is usual)")
    return number


def check_pinned(pinned: object) -> int:
    """The first tokens of a conversation that may stay. Raises OptionError."""
    number = as_int(pinned)
    if number is None or not 0 <= number <= MOST_SINKS:
        raise OptionError(
            option="pinned",
            value=pinned,
            advice=f"give a number of tokens from 0 to {MOST_SINKS}, such as those of the system prompt",
        )
    return number


def choose_context(asked: int | None, sinks: int, trained: int) -> int:
    """The context in tokens. More than the model was trained for is allowed: rotary positions continue. Raises OptionError."""
    sinks = check_sinks(sinks)
    context = min(trained, DEFAULT_CONTEXT) if asked is None else as_int(asked)
    if context is None or not sinks + 2 <= context <= 2**30:
        given = asked if context is None else context
        raise OptionError(
            option="context",
            value=given,
            advice=f"give a number of tokens from {sinks + 2} (two more than the {sinks} sinks) to {2**30}",
        )
    return context


def candidates(asked: int | None, sinks: int, trained: int) -> list[int]:
    """Contexts to try, longest first: the one that was asked for, else what the model was trained for, and shorter ones."""
    if asked is not None:
        return [choose_context(asked, sinks, trained)]
    contexts = [min(trained, LONGEST_CONTEXT)] if trained > DEFAULT_CONTEXT else []
    while contexts and contexts[-1] > 2 * DEFAULT_CONTEXT:
        contexts.append(1 << ((contexts[-1] - 1).bit_length() - 1))
    contexts.append(choose_context(None, sinks, trained))
    while contexts[-1] // 2 >= max(SMALLEST_CONTEXT, sinks + 2):
        contexts.append(contexts[-1] // 2)
    return contexts


def choices(asked: int | None, sinks: int, trained: int, kv_types: Sequence[str]) -> list[tuple[int, str]]:
    """Contexts and types of keys and values to try: long contexts are taken in the best type or not at all."""
    contexts = candidates(asked, sinks, trained)
    long = [(context, kv_types[0]) for context in contexts if asked is None and context > DEFAULT_CONTEXT]
    return long + list(itertools.product(contexts[len(long) :], kv_types))


def check_share(needed: int, context: int, available: int) -> None:
    """Raises OptionError where a context that nobody asked for would take more than its share of the memory that is free."""
    if needed > available // SHARE:
        raise OptionError(
            f"takes {needed / 2**30:.1f} GiB for keys and values, more than the {SHARE}th part of the free memory",
            option="context",
            value=context,
            advice="give a shorter one",
        )


def check_learned(context: int, trained: int) -> None:
    """Raises OptionError where the context goes past the table of positions."""
    if context > trained:
        raise OptionError(
            f"is not possible: this model has learned {trained} positions",
            option="context",
            value=context,
            advice=f"give {trained} or less",
        )


def plan(graph: Graph, context: int, sinks: int, backend: Backend, pinned: int = 0) -> MemoryLayout:
    """The memory layout of a graph on a back end. A document is computed in one step, so that all of it is seen."""
    if graph.embeds:
        return plan_documents(graph.kv_states, context=context, chunk=max(context, SHORTEST_STEP))
    return plan_memory(
        graph.states, context=context, sinks=sinks, chunk=min(backend.chunk, context), pinned=min(pinned, context // 2)
    )


def check_memory(needed: int, context: int, available: int) -> None:
    """Raises OptionError where keys and values of a full context would not fit into the memory that is free."""
    if needed > available:
        fitting = int(context * available / needed * 0.8)
        raise OptionError(
            f"needs {needed / 2**30:.1f} GiB for keys and values, but {available / 2**30:.1f} GiB of memory are free",
            option="context",
            value=context,
            advice=f"give about {fitting} or fewer, or close other programs",
        )
