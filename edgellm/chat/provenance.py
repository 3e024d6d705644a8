"""A string that remembers which of its characters the chat template wrote, through everything templates do with strings.

Only such characters may form control tokens. What a message says stays plain text, however it is cut, trimmed or joined.
Where an operation is not followed here its result counts as nobody's: too little is trusted then, never too much.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

Span = tuple[int, int]  # start and stop of characters


class Text(str):
    """A str with `spans`: sorted, separate ranges of characters that the template wrote."""

    __slots__ = ("spans",)
    spans: tuple[Span, ...]

    def __new__(cls, value: str = "", spans: Sequence[Span] = ()) -> Text:
        self = super().__new__(cls, value)
        self.spans = tuple(spans)
        return self

    @classmethod
    def written(cls, value: str) -> Text:
        """Text that is the template's own from end to end."""
        return cls(value, ((0, len(value)),) if value else ())

    def cut(self, start: int, stop: int) -> Text:
        """Characters `start` to `stop` (within bounds)."""
        first = max(0, bisect_right(self.spans, (start,)) - 1)
        last = bisect_left(self.spans, (stop,))
        inside = [(max(a, start) - start, min(b, stop) - start) for a, b in self.spans[first:last] if max(a, start) < min(b, stop)]
        return Text(str.__getitem__(self, slice(start, stop)), inside)

    def __str__(self) -> str:
        return self  # str(text) must not lose the spans

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                return self.cut(start, max(start, stop))
        return str.__getitem__(self, key)

    def __add__(self, other: str) -> str:
        if hasattr(other, "__html__") or not isinstance(other, str):
            return NotImplemented  # jinja2's Markup escapes what it is joined with
        return joined((self, other))

    def __radd__(self, other: str) -> str:
        return joined((other, self)) if isinstance(other, str) else NotImplemented

    def strip(self, chars: str | None = None, /) -> str:
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> Text:
        return self.cut(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> str:
        return self.cut(0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> str:
        return self.cut(len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> str:
        return self.cut(0, len(str.removesuffix(self, suffix)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        return self._located(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        return self._located(str.rsplit(self, sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[Any]:
        lines, at, whole = [], 0, str.splitlines(self, True)
        for line, full in zip(str.splitlines(self, keepends), whole, strict=True):
            lines.append(self.cut(at, at + len(line)))
            at += len(full)
        return lines

    def partition(self, sep: str, /) -> tuple[Any, Any, Any]:
        left, middle, right = map(len, str.partition(self, sep))
        return self.cut(0, left), self.cut(left, left + middle), self.cut(left + middle, left + middle + right)

    def rpartition(self, sep: str, /) -> tuple[Any, Any, Any]:
        left, middle, right = map(len, str.rpartition(self, sep))
        return self.cut(0, left), self.cut(left, left + middle), self.cut(left + middle, left + middle + right)

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        if not old:
            return str.replace(self, old, new, count)
        return joined(self.split(old, count), new)

    def join(self, parts: Iterable[str], /) -> str:
        return joined(parts, self)

    def lower(self) -> str:
        return self._recased(str.lower(self))

    def upper(self) -> str:
        return self._recased(str.upper(self))

    def capitalize(self) -> str:
        return self._recased(str.capitalize(self))

    def title(self) -> str:
        return self._recased(str.title(self))

    def _recased(self, value: str) -> str:
        return Text(value, self.spans) if len(value) == len(self) else value

    def _located(self, parts: list[str], sep: str | None) -> list[Any]:
        """The parts of a split, cut out of this text."""
        found, at = [], 0
        for part in parts:
            start = at if sep is not None else str.index(self, part, at)
            found.append(self.cut(start, start + len(part)))
            at = start + len(part) + len(sep or "")
        return found


def joined(parts: Iterable[str], separator: str = "") -> str:
    """`separator.join(parts)` with the spans of all of them."""
    parts = list(parts)
    value = str.join(separator, parts)
    spans: list[Span] = []
    at = 0
    for i, part in enumerate(parts):
        for piece in (separator, part) if i and separator else (part,):
            for start, stop in piece.spans if isinstance(piece, Text) else ():
                if spans and spans[-1][1] == at + start:
                    spans[-1] = spans[-1][0], at + stop
                else:
                    spans.append((at + start, at + stop))
            at += len(piece)
    return Text(value, spans) if spans else value
