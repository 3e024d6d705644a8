"""Asks an exported guide the held-out questions through edgellm, greedy, and marks the answers; prints five conversations.

python scripts/guide/evaluate.py edgellm/data/guide.gguf
"""

from __future__ import annotations

import argparse
import collections
import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from corpus.commands import unknown_names
from rubric import Question, read_questions

import edgellm

HERE = Path(__file__).resolve().parent
LIMIT = 160  # tokens of an answer
Transcript = list[tuple[str, str]]


@dataclass(slots=True)
class Report:
    """Scores by topic, what was missed, names that do not exist, and the conversations."""

    right: collections.Counter[str] = field(default_factory=collections.Counter)
    asked: collections.Counter[str] = field(default_factory=collections.Counter)
    misses: list[tuple[str, str, str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    transcripts: dict[str, Transcript] = field(default_factory=dict)

    @property
    def score(self) -> float:
        return self.right.total() / max(self.asked.total(), 1)


def known_commands() -> frozenset[str]:
    from edgellm.cli.app import COMMANDS

    return frozenset(COMMANDS)


def reply(model: edgellm.Model, transcript: Transcript, question: str) -> str:
    """The greedy answer to a question after a conversation."""
    messages: list[dict[str, str]] = []
    for asked, answered in transcript:
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    return model.chat([*messages, {"role": "user", "content": question}], temperature=0, max_tokens=LIMIT).text


def mark(model: edgellm.Model, questions: list[Question], report: Report) -> None:
    """Ask and mark every question."""
    commands = known_commands()
    for question in questions:
        transcript: Transcript = []
        for earlier in question.before:
            transcript.append((earlier, reply(model, transcript, earlier)))
        answer = reply(model, transcript, question.ask)
        report.asked[question.topic] += 1
        report.unknown += [f"{name}: {answer}" for name in unknown_names(answer, commands)]
        if question.holds(answer):
            report.right[question.topic] += 1
        else:
            report.misses.append((question.topic, question.ask, answer))


def talk(model: edgellm.Model, report: Report) -> None:
    """The scripted conversations of conversations.toml."""
    for entry in tomllib.loads((HERE / "conversations.toml").read_text(encoding="utf-8"))["conversation"]:
        transcript: Transcript = []
        for line in entry["says"]:
            transcript.append((line, reply(model, transcript, line)))
        report.transcripts[entry["title"]] = transcript
        report.unknown += [f"{name}: {answer}" for _, answer in transcript for name in unknown_names(answer, known_commands())]


def show(report: Report) -> None:
    for title, transcript in report.transcripts.items():
        print(f"--- {title}")
        for asked, answered in transcript:
            print(f"> {asked}\n  {answered}")
    print("--- misses")
    for topic, question, answer in report.misses:
        print(f"{topic}: {question}\n    {answer}")
    print("--- scores")
    for topic, count in sorted(report.asked.items()):
        print(f"{topic:<12} {report.right[topic]:>3} of {count}")
    for line in report.unknown:
        print(f"names what does not exist: {line}")
    print(f"total        {report.right.total()} of {report.asked.total()}: {report.score:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--questions", type=Path, default=HERE / "questions.toml")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path, help="also write the report there, for card.py")
    parser.add_argument("--least", type=float, default=0.0, help="fail below this share of right answers")
    options = parser.parse_args()
    report = Report()
    with edgellm.load(options.model, threads=options.threads) as model:
        mark(model, read_questions(options.questions), report)
        talk(model, report)
    show(report)
    if options.json:
        result = {"right": report.right, "asked": report.asked, "transcripts": report.transcripts}
        options.json.write_text(json.dumps(result), encoding="utf-8")
    if report.score < options.least or report.unknown:
        raise SystemExit(f"{report.score:.1%} right, {len(report.unknown)} unknown names: asked are {options.least:.0%} and none")


if __name__ == "__main__":
    main()
