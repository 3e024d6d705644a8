"""The cost of each operation of a chat template, by its operands: charged to the budget before it runs.

Methods that are not listed here cannot be called. Every rule gets the budget, the value and the arguments.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

from edgellm.chat.budget import MAX_BITS, MAX_SIZE, Budget, check_size, exceeded, spans
from edgellm.chat.provenance import Text

Value = Any  # what a template computes with: anything of the conversation or its own
Rule = Callable[[Budget, Value, tuple[Value, ...]], None]
MAX_PATTERN = 50_000  # characters of a format
MAX_NAME = 1000  # characters of a key or an attribute's path
NUMBER = re.compile(r"\d+")
QUOTED = re.compile(r"![ra]|%[^%a-zA-Z]*[ra]")
LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def size(value: Value) -> int:
    return len(value) if isinstance(value, str) else 0


def argument(arguments: tuple[Value, ...], at: int) -> Value:
    return arguments[at] if len(arguments) > at else None


def forward(text: int, needle: int) -> int:
    """Characters compared by a search from the left: CPython's is linear in long texts, quadratic in short ones."""
    return min(text * max(1, needle), 8 * text + 7_000_000)


def scan(budget: Budget, text: Value, arguments: tuple[Value, ...]) -> None:
    budget.step(size(text) + 100 * spans(text) + sum(10 * size(other) + 100 * spans(other) for other in arguments))


def search(budget: Budget, text: Value, arguments: tuple[Value, ...]) -> None:
    budget.step(forward(size(text), size(argument(arguments, 0))) + 100 * spans(text))


def search_back(budget: Budget, text: Value, arguments: tuple[Value, ...]) -> None:
    """From the right, or for any of some characters: the product of the lengths."""
    budget.step(size(text) * max(1, size(argument(arguments, 0))) + 100 * spans(text))


def compare(budget: Budget, left: Value, arguments: tuple[Value, ...]) -> None:
    right = argument(arguments, 0)
    (entries, characters), (others, letters) = budget.weigh(left), budget.weigh(right)
    budget.step(20 * (entries + others) + characters + letters)


def contains(budget: Budget, value: Value, arguments: tuple[Value, ...]) -> None:
    if isinstance(value, str):
        search(budget, value, arguments)
    else:
        compare(budget, value, arguments)


def recase(budget: Budget, text: Value, arguments: tuple[Value, ...]) -> None:
    budget.room(size(text) if isinstance(text, str) and text.isascii() else 16 * size(text))
    budget.step(20 * size(text) + 100 * spans(text))


def pieces(budget: Budget, text: Value, count: int) -> None:
    """A text is cut in so many parts, which hold all of it once more."""
    budget.items(count)
    budget.spend(count * (300 if isinstance(text, Text) else 80) + sys.getsizeof(text))
    budget.step(1000 * count)


def partition(budget: Budget, text: Value, arguments: tuple[Value, ...]) -> None:
    search(budget, text, arguments)
    pieces(budget, text, 3)


def partition_back(budget: Budget, text: Value, arguments: tuple[Value, ...]) -> None:
    search_back(budget, text, arguments)
    pieces(budget, text, 3)


def split(budget: Budget, text: Value, arguments: tuple[Value, ...]) -> None:
    separator = argument(arguments, 0)
    search(budget, text, arguments)
    most = argument(arguments, 1)
    found = text.count(separator) if isinstance(separator, str) and separator else blanks(budget, text)
    pieces(budget, text, 1 + (min(most, found) if isinstance(most, int) and most >= 0 else found))


def split_back(budget: Budget, text: Value, arguments: tuple[Value, ...]) -> None:
    search_back(budget, text, arguments)
    split(budget, text, arguments)


def blanks(budget: Budget, text: str) -> int:
    """A bound on the words of a text, counted without making them where that could be many."""
    return size(text) // 2 + 1 if size(text) <= 2 * budget.entries else len(text.split(None, budget.entries))


def lines(budget: Budget, text: Value, arguments: tuple[Value, ...] = ()) -> None:
    budget.step(len(LINE_ENDS) * size(text))
    pieces(budget, text, 1 + count_lines(text))


def count_lines(text: Value) -> int:
    return sum(map(text.count, LINE_ENDS)) if isinstance(text, str) else 0


def replace(budget: Budget, text: Value, arguments: tuple[Value, ...]) -> None:
    old, new = argument(arguments, 0), argument(arguments, 1)
    search(budget, text, arguments)
    if isinstance(old, str) and isinstance(new, str):
        count = text.count(old)
        budget.length(len(text) + count * max(0, len(new) - len(old)))
        budget.step(count * (100 + 100 * spans(new)))
        if isinstance(text, Text):
            pieces(budget, text, count + 1)
            budget.spend(count * 130 * spans(new))


def pad(budget: Budget, text: Value, arguments: tuple[Value, ...]) -> None:
    for option in arguments:
        check_size(option)
    scan(budget, text, ())


def tabs(budget: Budget, text: Value, arguments: tuple[Value, ...]) -> None:
    pad(budget, text, arguments)
    width = argument(arguments, 0)
    budget.length(size(text) + text.count("\t") * (abs(width) if isinstance(width, int) else 8))


def indent(budget: Budget, text: Value, arguments: tuple[Value, ...]) -> None:
    pad(budget, text, arguments)
    lines(budget, text)
    width = argument(arguments, 0)
    budget.length(size(text) + (1 + count_lines(text)) * (abs(width) if isinstance(width, int) else max(4, size(width))))


def formatting(budget: Budget, pattern: Value, arguments: tuple[Value, ...]) -> None:
    """The widths that a pattern asks for, and the longest argument in every place."""
    if size(pattern) > MAX_PATTERN:
        raise exceeded(f"it formats by a pattern of {size(pattern)} characters")
    fields = pattern.count("{") + pattern.count("%")
    if fields and ("*" in pattern or re.search(r"\{[^{}]*\{", pattern)):
        raise exceeded("it formats with a width that is computed")
    widths = sum(int(number) if len(number) < 7 else 10**9 for number in NUMBER.findall(pattern))
    longest = max((budget.printed(value) for value in arguments), default=0)
    budget.length(len(pattern) + widths + fields * (400 + longest * (10 if QUOTED.search(pattern) else 1)))
    budget.step(2000 * fields)


def free(budget: Budget, value: Value, arguments: tuple[Value, ...]) -> None:
    budget.step()


STR_METHODS: dict[str, Rule] = {
    **dict.fromkeys(
        (
            "startswith",
            "endswith",
            "removeprefix",
            "removesuffix",
            "isalnum",
            "isalpha",
            "isascii",
            "isdecimal",
            "isdigit",
            "islower",
            "isnumeric",
            "isspace",
            "istitle",
            "isupper",
            "join",
        ),
        scan,
    ),
    **dict.fromkeys(("find", "index", "count"), search),
    **dict.fromkeys(("rfind", "rindex", "strip", "lstrip", "rstrip"), search_back),
    **dict.fromkeys(("lower", "upper", "title", "capitalize", "casefold", "swapcase"), recase),
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), pad),
    **dict.fromkeys(("format", "format_map"), formatting),
    "partition": partition,
    "rpartition": partition_back,
    "split": split,
    "rsplit": split_back,
    "splitlines": lines,
    "replace": replace,
    "expandtabs": tabs,
}
LIST_METHODS: dict[str, Rule] = {"index": compare, "count": compare}
METHODS: dict[type, dict[str, Rule]] = {
    str: STR_METHODS,
    list: LIST_METHODS,
    tuple: LIST_METHODS,
    int: {},
    float: {},
    type(None): {},
    range: {},
    dict: dict.fromkeys(("get", "items", "keys", "values", "copy"), free),
}


def methods(value: Value) -> dict[str, Rule] | None:
    """The methods of a value that a template may call; None for objects of the sandbox's own."""
    return next((table for kind, table in METHODS.items() if isinstance(value, kind)), None)


def add(budget: Budget, left: Value, right: Value) -> None:
    if isinstance(left, str) and isinstance(right, str):
        budget.length(len(left) + len(right))
        budget.step(100 * (spans(left) + spans(right)))
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        budget.items(len(left) + len(right))


def multiply(budget: Budget, left: Value, right: Value) -> None:
    for value, times in ((left, right), (right, left)):
        if isinstance(value, str) and isinstance(times, int):
            budget.length(len(value) * times)
        elif isinstance(value, list | tuple) and isinstance(times, int):
            budget.items(len(value) * times)
    bits(left, right, lambda a, b: a + b)


def power(budget: Budget, left: Value, right: Value) -> None:
    bits(left, right, lambda a, b: a * abs(right))


def bits(left: Value, right: Value, result: Callable[[int, int], int]) -> None:
    if isinstance(left, int) and isinstance(right, int) and result(left.bit_length(), right.bit_length()) > MAX_BITS:
        raise exceeded("it computes with numbers of a hundred digits")


def remainder(budget: Budget, left: Value, right: Value) -> None:
    if isinstance(left, str):
        formatting(budget, left, right if isinstance(right, tuple) else (right,))


OPERATIONS: dict[str, Callable[[Budget, Value, Value], None]] = {"+": add, "*": multiply, "**": power, "%": remainder}


def check_name(name: Value) -> None:
    """A key or an attribute's path: long ones are repeated in messages and cut in parts."""
    if (isinstance(name, str) and len(name) > MAX_NAME) or isinstance(name, list | tuple | dict):
        raise exceeded(f"it looks up a name of more than {MAX_NAME} characters")


def limited_range(*arguments: int) -> range:
    numbers = range(*arguments)
    if len(numbers) > MAX_SIZE:
        raise exceeded(f"it counts to {len(numbers)}, and {MAX_SIZE} is the limit")
    return numbers
