r"""Regular expressions of foreign files, matched in bounded time: `re` and Oniguruma backtrack without a bound.

`LinearPattern` matches a whole text in time that grows with the text's length times the expression's. `check_cuts` refuses
expressions that a backtracking engine may take more than quadratic time for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

MAX_LENGTH, MAX_DEPTH, MAX_STATES = 4096, 40, 1 << 14
MAX_WAYS = 10_000  # of a sequence without its loops
TOKEN = re.compile(
    r"(?P<atom>\[\^?\]?(?:\\.|[^\[\]\\]|\[(?:\\.|[^\[\]\\])*\])*\]|\\[pP]\{\^?\w+\}|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}"
    r"|\\[^bBAzZGKkg1-9QE]|[^\\\[\](){}|*+?^$])"
    r"|(?P<open>\((?:\?(?:<?[=!]|[>:]|[a-z]+:|P?<\w+>))?)|(?P<close>\))|(?P<bar>\|)|(?P<edge>[$^]|\\[bBAzZ])"
    r"|(?P<times>(?:[*+?]|\{(?:\d{1,4}(?:,\d{0,4})?|,\d{1,4})\})[+?]?)|(?P<brace>[{}\]])",
    re.DOTALL,
)


@dataclass(slots=True)
class Item:
    """One character (`text`), an edge such as ^, or a group of alternatives (`text`: how it opens), from `low` to `high` times."""

    kind: str
    text: str
    group: list[list[Item]]
    low: int = 1
    high: int | None = 1  # None: without a bound
    possessive: bool = False


def parse(text: str) -> list[list[Item]]:
    """The alternatives of an expression, each a sequence of items. Raises ValueError for what is not understood."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"is longer than {MAX_LENGTH} letters")
    top: list[list[Item]] = [[]]
    groups, at = [top], 0
    while at < len(text):
        token = TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"{text[at : at + 20]!r} is not understood")
        at, kind, part = token.end(), str(token.lastgroup), token[0]
        sequence = groups[-1][-1]
        if kind == "open":
            sequence.append(Item("group", part, [[]]))
            groups.append(sequence[-1].group)
            if len(groups) > MAX_DEPTH:
                raise ValueError(f"has more than {MAX_DEPTH} groups within each other")
        elif kind == "close" and len(groups) > 1:
            groups.pop()
        elif kind == "bar":
            groups[-1].append([])
        elif kind == "times" and sequence and sequence[-1].kind != "edge" and (sequence[-1].low, sequence[-1].high) == (1, 1):
            item = sequence[-1]
            item.low, item.high = _times(part)
            if item.high is not None and item.high < item.low:
                raise ValueError(f"{part!r} repeats at least {item.low} and at most {item.high} times")
            item.possessive = len(part) > 1 and part.endswith("+")
        elif kind in ("atom", "edge", "brace"):
            sequence.append(Item("edge" if kind == "edge" else "atom", f"\\{part}" if kind == "brace" else part, []))
        else:
            raise ValueError(f"{part!r} is not understood")
    if len(groups) > 1:
        raise ValueError("lacks a closing parenthesis")
    return top


def _times(text: str) -> tuple[int, int | None]:
    if text[0] != "{":
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[text[0]]
    low, comma, high = text[1 : text.index("}")].partition(",")
    return int(low or 0), int(high) if high else None if comma else int(low)


def check_cuts(text: str, trusted: Container[str] = ()) -> None:
    """Raises ValueError for an expression that may take a backtracking engine more than quadratic time.

    `trusted`: alternatives that are right as they are. In others nothing that matches in several ways is repeated without a bound,
    the rest has few ways, and of two loops in a row the second one is followed by nothing that may fail.
    """
    for alternative, sequence in zip(alternatives(text), parse(text), strict=True):
        if alternative not in trusted:
            _check(sequence)


def alternatives(text: str) -> list[str]:
    """The parts between the outermost bars of an expression."""
    parts, depth = [""], 0
    for token in TOKEN.finditer(text):
        depth += (token.lastgroup == "open") - (token.lastgroup == "close")
        if token.lastgroup == "bar" and not depth:
            parts.append("")
        else:
            parts[-1] += token[0]
    return parts


def _check(sequence: list[Item]) -> tuple[int, int]:
    """The number of loops in a sequence, and of ways in which the rest may match. Raises ValueError."""
    loops, ways = 0, 1
    for item in sequence:
        looks = item.kind == "group" and item.text.startswith(("(?=", "(?!", "(?<"))
        if loops > 1 and item.kind != "edge" and (item.low or looks):
            raise ValueError("has something behind two loops that may fail")
        parts = [_check(part) for part in item.group] or [(0, 1)]
        inner, own = max(part[0] for part in parts), sum(part[1] for part in parts)
        if (own > 1 or inner) and (item.high is None or (inner and item.high > 1)):
            raise ValueError("repeats what matches in several ways")
        loops += inner + (item.high is None and not item.possessive)
        if item.high is not None:
            ways *= own ** min(item.high, 20) * (item.high - item.low + 1)
        if loops > 2 or ways > MAX_WAYS:
            raise ValueError("matches in too many ways")
    return loops, ways


class LinearPattern:
    """An expression of characters, sets, groups, alternatives, repetitions, ^ and $, as in `re`. Raises ValueError for others."""

    def __init__(self, text: str) -> None:
        self._steps: list[tuple[str, str, int, int]] = []  # what to do, its character or edge, and the next steps
        self._tests: dict[str, Callable[[str], object]] = {}
        self._known: dict[tuple[str, str], bool] = {}
        self._start = self._alternatives(parse(text), self._add("end", "", 0, 0))

    def fullmatch(self, text: str) -> bool:
        """True if all of `text` matches."""
        states = self._reached({self._start}, True, not text)
        for at, letter in enumerate(text, 1):
            following = {self._steps[state][2] for state in states if self._is_letter(self._steps[state], letter)}
            if not following:
                return False
            states = self._reached(following, False, at == len(text))
        return any(self._steps[state][0] == "end" for state in states)

    def _is_letter(self, step: tuple[str, str, int, int], letter: str) -> bool:
        if step[0] != "atom":
            return False
        key = step[1], letter
        if key not in self._known:
            self._known[key] = self._tests[step[1]](letter) is not None
        return self._known[key]

    def _reached(self, states: set[int], first: bool, last: bool) -> set[int]:
        """All steps that are reached from `states` without a character."""
        found, ahead = set[int](), list(states)
        while ahead:
            if (state := ahead.pop()) in found:
                continue
            found.add(state)
            kind, text, *following = self._steps[state]
            if kind == "either" or (kind == "edge" and (first if text == "^" else last)):
                ahead += following
        return found

    def _add(self, kind: str, text: str, following: int, other: int) -> int:
        if len(self._steps) >= MAX_STATES:
            raise ValueError("repeats too much")
        self._steps.append((kind, text, following, other))
        return len(self._steps) - 1

    def _alternatives(self, group: list[list[Item]], end: int) -> int:
        """The first step of what leads to `end`."""
        starts = [self._sequence(sequence, end) for sequence in group]
        for start in starts[1:]:
            starts[0] = self._add("either", "", starts[0], start)
        return starts[0]

    def _sequence(self, sequence: list[Item], end: int) -> int:
        for item in reversed(sequence):
            if item.high is None:
                loop = self._add("either", "", end, end)
                self._steps[loop] = ("either", "", self._once(item, loop), end)
                end = loop
            else:
                last = end
                for _ in range(item.high - item.low):
                    end = self._add("either", "", self._once(item, end), last)
            for _ in range(item.low):
                end = self._once(item, end)
        return end

    def _once(self, item: Item, end: int) -> int:
        if item.kind == "group":
            if item.text.startswith(("(?=", "(?!", "(?<=", "(?<!", "(?>")) or (item.text.endswith(":") and item.text != "(?:"):
                raise ValueError(f"{item.text!r} is not understood")
            return self._alternatives(item.group, end)
        if item.text.startswith("\\") and item.kind == "edge":
            raise ValueError(f"{item.text!r} is not understood")
        if item.kind == "atom" and item.text not in self._tests:
            self._tests[item.text] = re.compile(item.text).fullmatch
        return self._add(item.kind, item.text, end, end)


def expressions(settings: object) -> Iterator[str]:
    """The regular expressions in a part of a tokenizer.json."""
    if isinstance(settings, dict):
        if isinstance(found := settings.get("Regex"), str):
            yield found
        for value in settings.values():
            yield from expressions(value)
    elif isinstance(settings, list):
        for value in settings:
            yield from expressions(value)
