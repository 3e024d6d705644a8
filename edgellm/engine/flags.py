"""Switches and functions as callers give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from edgellm.errors import OptionError, shown

Function = TypeVar("Function", bound=Callable[..., object])


def check_flag(name: str, asked: object) -> bool:
    """True or False, NumPy's too. Raises OptionError, naming the option."""
    if not isinstance(asked, bool | np.bool_):
        raise OptionError(f"{name}={shown(asked)} is not possible; give True or False.")
    return bool(asked)


def check_progress(progress: Function | None, arguments: str) -> Function | None:
    """A function that is told how far something is, or None. Raises OptionError, naming the arguments that it would get."""
    if progress is not None and not callable(progress):
        raise OptionError(f"progress={shown(progress)} cannot be called; give a function of {arguments}, or None.")
    return progress
