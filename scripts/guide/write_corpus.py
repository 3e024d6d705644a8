"""Writes the guide's corpus: seeded conversations, one JSON object per line, and a summary on stderr.

python scripts/guide/write_corpus.py /tmp/guide/corpus.jsonl --megabytes 80
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import json
import random
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from corpus.dialogues import conversation
from corpus.grammar import normalise
from corpus.intents import intents

HERE = Path(__file__).resolve().parent
QUESTION_FILES = ("questions.toml", "development.toml")
Conversation = tuple[str, list[tuple[str, str]]]


@functools.cache
def held_out() -> frozenset[str]:
    """The normalised questions of the evaluation files: no conversation may hold one of them."""
    found = set()
    for name in QUESTION_FILES:
        for entry in tomllib.loads((HERE / name).read_text(encoding="utf-8"))["question"]:
            found.add(normalise(entry["ask"]))
    return frozenset(found)


def conversations(seed: int) -> Iterator[Conversation]:
    """Endless conversations; the same seed gives the same ones. Each has a seed of its own, so that they can be cut anywhere."""
    for number in itertools.count():
        system, turns = conversation(random.Random(f"{seed}/{number}"))
        if turns and not any(normalise(question) in held_out() for question, _ in turns):
            yield system, turns


def as_line(talk: Conversation) -> str:
    """One conversation as a line of JSON: {"system": text, "turns": [[question, answer], ...]}."""
    return json.dumps({"system": talk[0], "turns": talk[1]}, ensure_ascii=True) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--megabytes", type=float, default=80.0, help="size of the file (default: 80)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    written, turns, count = 0, 0, 0
    questions: collections.Counter[str] = collections.Counter()
    with options.output.open("w", encoding="ascii") as file:
        for talk in conversations(options.seed):
            line = as_line(talk)
            file.write(line)
            written, turns, count = written + len(line), turns + len(talk[1]), count + 1
            questions.update(question for question, _ in talk[1])
            if written >= options.megabytes * 1e6:
                break
    print(
        f"{options.output}: {count} conversations, {turns} turns, {len(questions)} different questions, "
        f"{len(intents())} intents, {written / 1e6:.1f} MB",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
