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
EMITTERS: dict[str, Emitter] = {}


def emitter(*ops: str) -> Callable[[Emitter], Emitter]:
    def register(function: Emitter) -> Emitter:
        for op in ops:
            EMITTERS[op] = function
        return function

    return register


def float_word(value: float) -> int:
    """A float32 as the low half of a record word."""
    return int(np.float32(value).view(np.uint32))


def traits_of(weight: Weight) -> Traits:
    if weight.type.name not in TRAITS:
        raise Unsupported(weight.type.refusal, file=weight.file, field=weight.name)
    return TRAITS[weight.type.name]


def count_word(node: Node) -> int:
    """The word of the step block that says how many rows the node has."""
    return {"T": abi.N_TOKENS, "R": abi.N_OUTPUTS, "S": abi.N_SEGMENTS}[node.rows]
