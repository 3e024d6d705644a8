"""Numbers of the command line, held against their range while it is read: before a model is looked for, and in its own words."""

from __future__ import annotations

import math
from collections.abc import Callable

import typer

from edgellm.errors import OptionError

Number = int | float
Check = Callable[[typer.Context, typer.CallbackParam, Number | None], Number | None]


def number(low: float = -math.inf, high: float = math.inf, *, above: bool = False) -> Check:
    """A callback for an option from `low` to `high`, both included unless `above`: then `low` is not."""

    def check(context: typer.Context, parameter: typer.CallbackParam, value: Number | None) -> Number | None:
        if value is None or context.resilient_parsing:
            return value
        if not low <= value <= high or (above and value == low) or math.isinf(value):
            shown = value if isinstance(value, int) else f"{value:g}"
            raise OptionError(f"{flag(parameter)} {shown}: give {_words(value, low, high, above)}")
        return value

    return check


def seed(context: typer.Context, parameter: typer.CallbackParam, value: int | None) -> int | None:
    """--seed: -1 stands for none, as in llama.cpp."""
    if value is not None and value < -1 and not context.resilient_parsing:
        raise OptionError(f"{flag(parameter)} {value}: give 0 or more, or -1 for a new one each time")
    return None if value == -1 else value


def context_policy(context: typer.Context, parameter: typer.CallbackParam, value: str | None) -> str | None:
    """--context-policy: a name that there is."""
    if value is None or context.resilient_parsing:
        return value
    from edgellm.api.context_policy import POLICIES

    if value not in POLICIES:
        raise OptionError(f"{flag(parameter)} {value}: give {', '.join(POLICIES[:-1])} or {POLICIES[-1]}")
    return value


def flag(parameter: typer.CallbackParam) -> str:
    """An option's name: the first long one."""
    return next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0])


def _words(value: Number, low: float, high: float, above: bool) -> str:
    if math.isinf(low) or value == math.inf:
        return "a finite number"
    if high <= 1:
        return f"a number from {low:g} to {high:g}"
    return f"{high:.0f} or less" if value > high else f"more than {low:g}" if above else f"{low:g} or more"
