"""The options of each of several answers to one prompt."""

from __future__ import annotations

from numbers import Integral
from typing import Any, TypeVar, cast  # Any: the values of options

MAX_TRIES = 4  # of an answer whose schema is not enforced entirely; each takes the next seed
Options = TypeVar("Options")


def of_choice(options: Options, k: int) -> Options:
    """`options`, keywords, for answer `k`: its seed is `MAX_TRIES` * `k` higher, and the first alone reports progress."""
    given = cast(dict[str, Any], options)
    if k == 0:
        return options
    seed = given.get("seed")
    own = {"seed": int(seed) + MAX_TRIES * k} if isinstance(seed, Integral) and int(seed) >= 0 else {}
    return cast(Options, {name: value for name, value in given.items() if name != "progress"} | own)
