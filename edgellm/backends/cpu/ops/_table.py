"""The table of emitters, and helpers that several of them need."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.buffers import PerThread
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.traits import TRAITS, Traits
from edgellm.errors import Unsupported
from edgellm.graph import Node
from edgellm.weights import Weight

Emitter = Callable[[PlanBuilder, int, Node], None]
ReadRows = Callable[[Node], tuple[int, ...]]  # of a node's first weight: the first row that it multiplies, and how many
EMITTERS: dict[str, Emitter] = {}
INTERLEAVED: dict[str, ReadRows] = {}  # of ops that can read their first weight interleaved


def emitter(*ops: str, interleaved: ReadRows | None = None) -> Callable[[Emitter], Emitter]:
    def register(function: Emitter) -> Emitter:
        for op in ops:
            EMITTERS[op] = function
            if interleaved is not None:
                INTERLEAVED[op] = interleaved
        return function

    return register


def integer(node: Node, attr: str) -> int:
    return cast(int, node.attrs[attr])


def float_of(node: Node, attr: str) -> int:
    """A float attribute as the word of a record."""
    return float_word(cast(float, node.attrs[attr]))


def float_word(value: float) -> int:
    """A float32 as the low half of a record word."""
    return int(np.float32(value).view(np.uint32))


def count_word(node: Node) -> int:
    """The word of the step block that holds the node's number of rows."""
    return {"T": abi.N_TOKENS, "R": abi.N_OUTPUTS, "S": abi.N_SEGMENTS}[node.rows]


def scratch_of(plan: PlanBuilder, nbytes: int) -> PerThread | int:
    """Working memory of this size for each thread; 0 where none is needed."""
    return PerThread(plan.scratch(plan.most_threads * nbytes), nbytes, always=True) if nbytes else 0


def traits_of(weight: Weight) -> Traits:
    if weight.type.name not in TRAITS:
        raise Unsupported(weight.type.refusal, file=weight.file, field=weight.name)
    return TRAITS[weight.type.name]


def matmul_of(weight: Weight) -> str:
    """The kernel of products with it."""
    return f"matmul_interleaved:{weight.type.name}" if weight.interleaved else traits_of(weight).matmul
