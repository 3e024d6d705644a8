"""Checks of arguments that callers give: whole numbers, switches, paths and callbacks."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from edgellm.errors import OptionError

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
Function = TypeVar("Function", bound=Callable[..., object])


def as_int(value: object) -> int | None:
    """`value` as an int where it is an integer, NumPy's too; None for anything else, True and False included."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]  # which is what is asked here
    except TypeError:
        return None


def check_flag(name: str, asked: object) -> bool:
    """True or False, NumPy's too. Raises OptionError, naming the option."""
    if not isinstance(asked, bool | np.bool_):
        raise OptionError(option=name, value=asked, advice="give True or False")
    return bool(asked)


def check_progress(progress: Function | None, arguments: str) -> Function | None:
    """A progress callback or None. Raises OptionError, naming the arguments that it would get."""
    if progress is not None and not callable(progress):
        raise OptionError("cannot be called", option="progress", value=progress, advice=f"give a function of {arguments}, or None")
    return progress


def check_path(name: str, asked: object) -> str | os.PathLike[str] | None:
    """A path or None. Raises OptionError, naming the option."""
    if asked is not None and not isinstance(asked, str | os.PathLike):
        raise OptionError("is not a path", option=name, value=asked, advice="give a text or a pathlib.Path")
    return asked


def bytes_of(text: str) -> int | None:
    """A size such as 500M or 4G in bytes; 0 for "off", None for what says nothing."""
    if text.strip().lower() == "off":
        return 0
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    return int(float(found[1]) * UNITS[found[2].upper()]) if found else None
