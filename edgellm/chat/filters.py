"""Filters and string methods of chat templates whose cost does not follow from what they are given: bounded beforehand."""
from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import filters as builtin
from jinja2 import pass_eval_context

from edgellm.chat.budget import MAX_SIZE, check_length, check_size, exceeded
from edgellm.chat.provenance import joined

Value = Any                                 # what a template computes with: anything of the conversation or its own
MAX_PIECES = 100_000                        # of a text that is cut, 60 bytes each
BIG_NUMBER = re.compile(r"\d{5}")

# Filters that take widths and counts, and filters that make an object of every character or word.
SIZED = frozenset({"center", "indent", "wordwrap", "batch", "slice", "truncate", "round", "tojson"})
CUTTING = frozenset({"list", "batch", "slice", "sort", "map", "unique", "wordcount", "wordwrap", "groupby", "select", "reject",
                     "selectattr", "rejectattr", "sum", "title", "urlencode", "join", "min", "max", "indent"})
# Of no use in a chat template, and slower than linear.
FORBIDDEN_FILTERS = frozenset({"urlize", "striptags", "xmlattr"})
SIZED_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
CUTTING_METHODS = frozenset({"split", "rsplit", "splitlines"})


def check_filter(name: str, value: Value, options: Iterable[Value]) -> None:
    """Refuse a filter call whose result or cost is out of proportion to what goes in."""
    if name in SIZED:
        for option in options:
            check_size(option)
            if isinstance(option, str) and len(option) > 100:
                raise exceeded(f"its filter {name!r} gets a filler of {len(option)} characters")
    if isinstance(value, str):
        if name in CUTTING:
            check_pieces(len(value))
        if name == "indent":
            check_length(value.count("\n") * MAX_SIZE if len(value) > MAX_SIZE else 0)
        if name == "format":
            check_format(value, options)


def check_method(text: str, name: str, arguments: tuple[Value, ...]) -> None:
    """The same for a string's method."""
    if name in SIZED_METHODS:
        for argument in arguments:
            check_size(argument)
        if name == "expandtabs":
            check_length(text.count("\t") * MAX_SIZE if len(text) > MAX_SIZE else 0)
    elif name in CUTTING_METHODS and len(text) > MAX_PIECES:
        separator = arguments[0] if arguments and isinstance(arguments[0], str) and arguments[0] else None
        check_pieces(text.count(separator) if separator and name != "splitlines" else len(text.split(None, MAX_PIECES + 1))
                     if name != "splitlines" else text.count("\n") + text.count("\r"))
    elif name == "replace" and len(arguments) > 1:
        check_replacement(text, arguments[0], arguments[1])
    elif name in ("format", "format_map"):
        check_format(text, arguments)


def check_pieces(count: int) -> None:
    if count > MAX_PIECES:
        raise exceeded(f"it cuts a text into more than {MAX_PIECES} pieces")


def check_format(pattern: str, arguments: Iterable[Value]) -> None:
    """A pattern may not ask for wide fields, neither by a number nor through an argument."""
    if BIG_NUMBER.search(pattern):
        raise exceeded("it formats with a width of five digits or more")
    if "*" in pattern or re.search(r"\{[^{}]*\{", pattern):
        raise exceeded("it formats with a width that is computed")
    length = sum(len(argument) for argument in arguments if isinstance(argument, str))
    check_length((len(pattern) + length) * (1 + pattern.count("{") + pattern.count("%")) if length > MAX_SIZE else 0)


def check_replacement(text: str, old: Value, new: Value) -> None:
    if isinstance(old, str) and isinstance(new, str):
        check_length(len(text) + text.count(old) * max(0, len(new) - len(old)))


def tojson(value: Value, ensure_ascii: bool = False, indent: int | None = None, separators: tuple[str, str] | None = None,
           sort_keys: bool = False) -> str:
    """JSON as transformers writes it: no HTML escapes, letters as they are."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@pass_eval_context
def join(context: Value, value: Iterable[Value], d: str = "", attribute: str | int | None = None) -> str:
    """jinja2's `join`, keeping track of who wrote what."""
    if attribute is not None:
        value = map(builtin.make_attrgetter(context.environment, attribute), value)
    parts: list[str] = []
    length = 0
    for part in value:
        parts.append(str(part))
        length += len(parts[-1]) + len(d)
        check_length(length)
    return joined(parts, str(d))


@pass_eval_context
def replace(context: Value, s: Value, old: Value, new: Value, count: int | None = None) -> str:
    """jinja2's `replace`, with the result's length known beforehand."""
    if hasattr(s, "__html__"):
        return builtin.do_replace(context, s, old, new, count)
    check_replacement(str(s), str(old), str(new))
    return str(s).replace(str(old), str(new), -1 if count is None else count)


def total(iterable: Iterable[Value], attribute: str | int | None = None, start: Value = 0) -> Value:
    """jinja2's `sum` for numbers: of lists it would be quadratic."""
    if not isinstance(start, int | float):
        raise exceeded("it sums up something else than numbers")
    if attribute is not None:
        raise exceeded("it sums up attributes")
    return sum(iterable, start)


FILTERS: dict[str, Callable[..., Value]] = {"tojson": tojson, "join": join, "replace": replace, "sum": total}
