"""The guide as it ships: its answers to the held-out questions, its conversations, its card, and that nothing else is special."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator

import pytest
from places import ROOT

import edgellm
from edgellm.catalogue import resolve
from edgellm.catalogue.registry import bundled, entries

sys.path.append(str(ROOT / "scripts" / "guide"))

from corpus.commands import unknown_names  # the folder of scripts is not a package
from evaluate import HERE, Report, known_commands, mark, talk
from rubric import read_questions

LARGEST = 9e6  # bytes: every installation carries it
LEAST = 0.85  # of the held-out questions; the card has the figure


@pytest.fixture(scope="module")
def guide() -> Iterator[edgellm.Model]:
    with edgellm.load("guide") as model:
        yield model


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_the_held_out_questions_are_answered(guide: edgellm.Model, every: int) -> None:
    report = Report()
    questions = read_questions(HERE / "questions.toml")
    assert len(questions) >= 150
    mark(guide, questions[::every], report)
    assert report.score >= LEAST, report.misses
    assert not report.unknown  # no answer names a command that does not exist


def test_ten_turns_of_five_conversations(guide: edgellm.Model) -> None:
    report = Report()
    talk(guide, report)
    assert len(report.transcripts) >= 5 and not report.unknown
    for transcript in report.transcripts.values():
        assert len(transcript) >= 10
        assert all(answer and answer[-1] in ".!?`)" for _, answer in transcript), transcript  # no answer stops in mid-sentence


def test_a_conversation_longer_than_the_context_continues(guide: edgellm.Model) -> None:
    messages: list[dict[str, str]] = []
    for number in range(60):
        messages.append({"role": "user", "content": "what is gguf?" if number % 2 else "which model fits 8 GB?"})
        answer = guide.chat(messages, temperature=0, max_tokens=60)
        messages.append({"role": "assistant", "content": answer.text})
    assert answer.stats.evicted_tokens > 0 and answer.text.strip()


def test_the_card_is_of_this_file() -> None:
    file = resolve("guide")
    card = file.with_suffix(".md").read_text(encoding="utf-8")
    assert hashlib.sha256(file.read_bytes()).hexdigest() in card
    assert file.stat().st_size <= LARGEST
    assert not unknown_names(card.partition("## Scores")[2], known_commands())


def test_the_catalogue_says_how_large_it_is() -> None:
    ((entry, file, path),) = bundled()
    assert entries()[entry.name] is entry and path == resolve(entry.name) and file.size == path.stat().st_size


def test_no_code_knows_its_name() -> None:
    sources = [path for folder in ("edgellm", "formats") for path in (ROOT / folder).rglob("*.py")]
    assert not [path for path in sources if "guide.gguf" in path.read_text(encoding="utf-8")]
