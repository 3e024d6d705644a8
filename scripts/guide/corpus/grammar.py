"""Question patterns: `(a|b)` is a choice, `[a]` may be left out, `{name}` is filled from a slot."""
from __future__ import annotations

import functools
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Slots = Mapping[str, Sequence[str]]
TOKEN = re.compile(r"[()\[\]|]|\{\w+\}|[^()\[\]|{}]+")
MAX_DEPTH = 6                               # of slots within slots


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several sequences; a sequence's items are texts, slot names in braces, and further choices."""

    options: tuple[tuple[str | Choice, ...], ...]


@functools.cache
def parse(pattern: str) -> Choice:
    """The tree of a pattern. Raises ValueError where brackets do not match."""
    tokens = TOKEN.findall(pattern)
    if "".join(tokens) != pattern:
        raise ValueError(f"stray brace in {pattern!r}")
    tree, end = _choice(tokens, 0)
    if end != len(tokens):
        raise ValueError(f"unmatched {tokens[end]} in {pattern!r}")
    return tree


def _choice(tokens: Sequence[str], at: int) -> tuple[Choice, int]:
    options: list[tuple[str | Choice, ...]] = []
    items: list[str | Choice] = []
    while at < len(tokens) and tokens[at] not in ")]":
        if tokens[at] == "|":
            options.append(tuple(items))
            items = []
        elif tokens[at] in "([":
            closing = ")" if tokens[at] == "(" else "]"
            inner, end = _choice(tokens, at + 1)
            if end >= len(tokens) or tokens[end] != closing:
                raise ValueError(f"{tokens[at]} without {closing} in {''.join(tokens)!r}")
            items.append(inner if closing == ")" else Choice((*inner.options, ())))
            at = end
        else:
            items.append(tokens[at])
        at += 1
    return Choice((*options, tuple(items))), at


def expand(pattern: str, slots: Slots, dice: random.Random, depth: int = 0) -> str:
    """One text of the pattern, with single spaces."""
    text = _expand(parse(pattern), slots, dice, depth)
    return text if depth else " ".join(text.split()).replace(" ,", ",").replace(" ?", "?")


def _expand(tree: Choice, slots: Slots, dice: random.Random, depth: int) -> str:
    parts = []
    for item in dice.choice(tree.options):
        if isinstance(item, Choice):
            parts.append(_expand(item, slots, dice, depth))
        elif item.startswith("{"):
            if depth > MAX_DEPTH:
                raise ValueError(f"slot {item} contains itself")
            parts.append(expand(dice.choice(slots[item[1:-1]]), slots, dice, depth + 1))
        else:
            parts.append(item)
    return "".join(parts)


def expression(pattern: str, slots: Slots) -> str:
    """A regular expression of everything that the pattern can say, in normalised text (see `normalise`)."""
    return _expression(parse(pattern), slots)


def _expression(tree: Choice, slots: Slots) -> str:
    options = []
    for sequence in tree.options:
        parts = []
        for item in sequence:
            if isinstance(item, Choice):
                parts.append(_expression(item, slots))
            elif item.startswith("{"):
                parts.append(f"(?:{'|'.join(expression(value, slots) for value in slots[item[1:-1]])})")
            else:
                parts.append(_literal(item))
        options.append("".join(parts))
    return f"(?:{'|'.join(options)})"


def _literal(text: str) -> str:
    """White space and punctuation may stand anywhere between words: normalised text has one space for all of them."""
    words = re.split(r"[^a-z0-9]+", text.lower().replace("'", ""))
    return " *".join(re.escape(word) for word in words)


def normalise(text: str) -> str:
    """Lower case letters and digits, one space for everything else, apostrophes dropped: the form in which texts are compared."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower().replace("'", "")).strip()
