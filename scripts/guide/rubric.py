"""Marks an answer: which facts must be in it, which must not."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Question:
    """A held-out question with its rubric: of each entry of `wanted` one alternative must appear, of `unwanted` none."""

    topic: str
    ask: str
    wanted: tuple[tuple[str, ...], ...]
    unwanted: tuple[str, ...] = ()
    before: tuple[str, ...] = ()

    def holds(self, answer: str) -> bool:
        """True if an answer has the right facts."""
        text = " ".join(answer.lower().split())
        return all(any(appears(word, text) for word in group) for group in self.wanted) and not any(
            appears(word, text) for word in self.unwanted
        )


def appears(word: str, text: str) -> bool:
    """A short word or number must stand alone; a longer one may be the beginning of a word."""
    begin = r"(?<![a-z0-9])" if word[0].isalnum() else ""
    end = r"(?![a-z0-9])" if len(word) <= 3 and word[-1].isalnum() else ""
    return re.search(begin + re.escape(word) + end, text) is not None


def read_questions(path: Path) -> list[Question]:
    """The questions of a file. Raises ValueError for an entry that is not a question."""
    found = []
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["question"]:
        if unknown := entry.keys() - {"topic", "ask", "all", "none", "before"}:
            raise ValueError(f"{path.name}: {entry.get('ask')!r} has the unknown key {min(unknown)}")
        found.append(
            Question(
                entry["topic"],
                entry["ask"],
                tuple(tuple(group.split("|")) for group in entry["all"]),
                tuple(entry.get("none", ())),
                tuple(entry.get("before", ())),
            )
        )
    return found
