"""Attacks that scripts/reliability.py counts: files, templates, texts, streams, hubs, cuts and threads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Figure:
    """A kind of attack, a sentence on how it ended, and the failures."""

    tried: str
    ended: str
    faults: list[str] = field(default_factory=list)


def count(what: Iterable[object]) -> str:
    """How often each of some results came, the commonest first: "90 BadHParam, 3 accepted"."""
    seen: dict[str, int] = {}
    for one in what:
        seen[str(one)] = seen.get(str(one), 0) + 1
    return ", ".join(f"{n:,} {name}" for name, n in sorted(seen.items(), key=lambda entry: -entry[1]))
