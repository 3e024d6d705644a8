"""The table of evaluators, and how a file of this folder adds to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from edgellm.backends.mlx.inputs import Array, Inputs, MlxWeights
from edgellm.graph import Node

Evaluate = Callable[[MlxWeights, Inputs, Node, list[Array]], Array]
OPS: dict[str, Evaluate] = {}


def op(name: str) -> Callable[[Evaluate], Evaluate]:
    def register(function: Evaluate) -> Evaluate:
        OPS[name] = function
        return function

    return register


def number(node: Node, attr: str) -> float:
    return cast(float, node.attrs[attr])
