"""The table of emitters, which turn graph ops into records, and what several of them need."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.traits import TRAITS, Traits
from edgellm.errors import Unsupported
from edgellm.graph import Node
from edgellm.weights import Weight

Emitter = Callable[[PlanBuilder, int, Node], None]
ReadRows = Callable[[Node], tuple[int, ...]]  # of a node's first weight: where rows begin that it multiplies, and how many
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


def float_word(value: float) -> int:
    """A float32 as the low half of a record word."""
    return int(np.float32(value).view(np.uint32))


def traits_of(weight: Weight) -> Traits:
    if weight.type.name not in TRAITS:
        raise Unsupported(weight.type.refusal, file=weight.file, field=weight.name)
    return TRAITS[weight.type.name]


def matmul_of(weight: Weight) -> str:
    """The kernel of products with it."""
    return f"matmul_interleaved:{weight.type.name}" if weight.interleaved else traits_of(weight).matmul


def count_word(node: Node) -> int:
    """The word of the step block that says how many rows the node has."""
    return {"T": abi.N_TOKENS, "R": abi.N_OUTPUTS, "S": abi.N_SEGMENTS}[node.rows]
