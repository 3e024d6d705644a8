"""Docstrings of functions: the summary, and what they say of each argument, in Google's, NumPy's and Sphinx' style."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import NamedTuple

SECTION = re.compile(r"(args|arguments|params|parameters|keyword args|keyword arguments|other parameters):?", re.IGNORECASE)
HEADING = re.compile(r"[A-Z][A-Za-z ]{2,30}:?")
RULE = re.compile(r"-{3,}")
SPHINX = re.compile(r":param\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")
COLON = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s+(.*)")  # name (type): text
NUMPY = re.compile(r"\*{0,2}(\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")  # name : type


class Docstring(NamedTuple):
    """A docstring's summary and parameters."""

    summary: str  # the paragraphs before the sections
    arguments: dict[str, str]


def docstring_of(function: Callable[..., object]) -> Docstring:
    """Of a function, of what a functools.partial calls, or of a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        text = inspect.getdoc(type(function).__call__) or inspect.getdoc(type(function)) or ""
    else:
        text = inspect.getdoc(function) or ""
    return parsed(text)


def parsed(text: str) -> Docstring:
    """A parsed docstring."""
    lines, found, name, section = text.splitlines(), dict[str, list[str]](), "", ""
    indent = 0
    for number, line in enumerate(lines):
        bare, depth = line.strip(), len(line) - len(line.lstrip())
        ruled = number + 1 < len(lines) and RULE.fullmatch(lines[number + 1].strip()) is not None
        if RULE.fullmatch(bare):
            continue
        if ruled or (depth == 0 and bare.endswith(":") and HEADING.fullmatch(bare)):
            section, name, indent = ("numpy" if ruled else "google") if SECTION.fullmatch(bare) else "other", "", -1
        elif (match := SPHINX.match(bare)) is not None:
            name, section, indent = match[1], "sphinx", depth
            found[name] = [match[2]]
        elif bare.startswith(":") and section == "sphinx":
            name = ""
        elif not bare:
            name = "" if section in ("", "sphinx") else name
        elif name and depth > indent >= 0:
            found[name].append(bare)
        elif section == "numpy" and (match := NUMPY.fullmatch(bare)) is not None:
            names = [each.strip(" *") for each in match[1].split(",")]
            name, indent = names[0], depth
            found.update(dict.fromkeys(names, found.setdefault(name, [])))
        elif section in ("", "google") and (match := COLON.match(bare)) is not None:
            name, indent = match[1], depth
            found[name] = [match[2]]
        else:
            name = ""
    return Docstring(" ".join(text.split("\n\n")[0].split()), {name: " ".join(filter(None, each)) for name, each in found.items()})
