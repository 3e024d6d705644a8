"""Reads the topic files: what can be asked, in which words, and what the guide answers.

An intent begins with `@ name`. Lists are separated by `;`. `x:` noun phrases, `do:` verb phrases, `q:` whole question patterns,
`s:` short names for "and ...?", `use: LIST VALUE` the patterns of a named list with `{it}` filled in, `weight:` a factor.
`= text` is an answer, the first being the usual one; `why=`, `how=`, `eg=`, `more=` answer bare follow-ups. `=[pull] text` holds
where the command or feature exists, `=[!pull] text` where it does not. In answers, `\\n` is a new line and `%{...}` a fact.
"""
from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import patterns
from .facts import fill, holds
from .grammar import Slots, expand

FOLDER = Path(__file__).parent / "topics"
FOLLOW_UPS = ("why", "how", "eg", "more")
LISTS = {"x": "concepts", "do": "actions", "q": "questions", "s": "short"}
USUAL = 0.7                                 # share of an intent's first answer, so that greedy decoding has one clear favourite


@dataclass(slots=True)
class Intent:
    """One thing that can be asked, with its wordings and answers."""

    name: str
    topic: str
    concepts: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    follow: dict[str, list[str]] = field(default_factory=dict)
    weight: float = 1.0

    def question(self, slots: Slots, dice: random.Random) -> str:
        """A lower-case question without slips, wrapped as people wrap questions."""
        return expand(self.pattern(dice), slots, dice)

    def pattern(self, dice: random.Random) -> str:
        kinds = [kind for kind, texts in (("x", self.concepts), ("do", self.actions), ("s", self.short)) if texts]
        share = {"q": 4.0 * bool(self.questions) + min(len(self.questions), 90) / 7, "x": 3.0, "do": 4.0, "s": 0.7}
        kinds += ["q"] if self.questions else []
        kind = dice.choices(kinds, [share[k] for k in kinds])[0]
        if kind == "q":
            return dice.choice(self.questions)
        wrappers: Sequence[str] = {"x": patterns.CONCEPT, "do": patterns.ACTION, "s": patterns.ELLIPSIS}[kind]
        inner = dice.choice({"x": self.concepts, "do": self.actions, "s": self.short}[kind])
        return dice.choice(wrappers).replace("{x}", inner)

    def answer(self, dice: random.Random) -> str:
        return favour_first(self.answers, dice)


def favour_first(texts: Sequence[str], dice: random.Random) -> str:
    """One of the texts; the first one most often."""
    return texts[0] if len(texts) == 1 or dice.random() < USUAL else dice.choice(texts[1:])


@functools.cache
def slots() -> Slots:
    """The named lists of `topics/slots.txt`: `name: value; value`, several lines of one name add up."""
    found: dict[str, list[str]] = {}
    for line in _lines(FOLDER / "slots.txt"):
        name, _, values = line.partition(":")
        found.setdefault(name.strip(), []).extend(_split(values))
    return found


@functools.cache
def intents() -> dict[str, Intent]:
    """All intents by name, in the order of files and lines. Raises ValueError for a line that cannot be read."""
    found: dict[str, Intent] = {}
    for path in sorted(FOLDER.glob("*.txt")):
        if path.name != "slots.txt":
            for intent in _read(path):
                if intent.name in found:
                    raise ValueError(f"{path.name}: {intent.name} is there twice")
                found[intent.name] = intent
    for intent in found.values():
        if not intent.answers or not (intent.questions or intent.concepts or intent.actions):
            raise ValueError(f"{intent.topic}: {intent.name} needs a question and an answer")
    return found


@functools.cache
def meanings() -> dict[str, int]:
    """A number for each answer: the same for all answers of an intent, another for those to each kind of follow-up."""
    found: dict[str, int] = {}
    number = 0
    for intent in intents().values():
        for answers in (intent.answers, *intent.follow.values()):
            found.update({answer: number for answer in answers if answer not in found})
            number += 1
    return found


def _read(path: Path) -> Iterator[Intent]:
    intent: Intent | None = None
    for line in _lines(path):
        if line.startswith("@"):
            if intent is not None:
                yield intent
            intent = Intent(line[1:].strip(), path.stem)
        elif intent is None:
            raise ValueError(f"{path.name}: {line[:40]!r} stands before the first intent")
        else:
            _take(intent, line, path.name)
    if intent is not None:
        yield intent


def _take(intent: Intent, line: str, file: str) -> None:
    key, mark, rest = line.partition("=")
    if mark and key in ("", *FOLLOW_UPS):
        condition, rest = "", rest.strip()
        if rest.startswith("["):
            condition, _, rest = rest[1:].partition("]")
        if not condition or all(holds(part) for part in condition.split()):
            target = intent.answers if not key else intent.follow.setdefault(key, [])
            target.append(fill(rest.strip()).replace("\\n", "\n"))
        return
    key, mark, rest = line.partition(":")
    if mark and key in LISTS:
        getattr(intent, LISTS[key]).extend(_split(rest))
    elif mark and key == "use":
        name, value = rest.split()
        intent.questions.extend(pattern.replace("{it}", f"{{{value}}}") for pattern in slots()[name])
    elif mark and key == "weight":
        intent.weight = float(rest)
    else:
        raise ValueError(f"{file}, {intent.name}: cannot read {line[:60]!r}")


def _lines(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="ascii").splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.strip()


def _split(values: str) -> list[str]:
    return [value.strip() for value in values.split(";") if value.strip()]
