"""Answers on a terminal break at words, at any width and wherever the pieces are cut."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pseudo_terminal import lines_of

from edgellm.cli.terminal.output import say
from edgellm.cli.terminal.wrapping import NARROWEST, WordWrap

URL = "https://example.com/a/long/path/that/fits/into/no/line/of/forty/columns"


def wrapped(text: str, columns: int, step: int = 1) -> list[str]:
    wrap = WordWrap(lambda: columns)
    return lines_of("".join(wrap(text[at : at + step]) for at in range(0, len(text), step)), columns)


@pytest.mark.parametrize(
    "text, lines",
    [
        ("Here are some rather long sentences that need it.", ["Here are some rather long sentences", "that need it."]),
        (
            "- an item that is long enough to be broken twice, even at forty columns",
            ["- an item that is long enough to be", "  broken twice, even at forty columns"],
        ),
        ("  10. a nested item that is long enough to be broken", ["  10. a nested item that is long enough", "      to be broken"]),
        ("    indented text that goes on in the next line", ["    indented text that goes on in the", "    next line"]),
        (f"See {URL} and on.", ["See", URL[:40], f"{URL[40:]} and on."]),
        (
            "日本語の文章はどこでも改行できますが、句読点は行頭に来てはいけません。",
            ["日本語の文章はどこでも改行できますが、", "句読点は行頭に来てはいけません。"],
        ),
        ("日本語の文章はどこでも改行できます長長。", ["日本語の文章はどこでも改行できます長", "長。"]),
        ("one\n\n* two\nthree", ["one", "", "* two", "three"]),
        ("ends in spaces at the right margin 1234     5", ["ends in spaces at the right margin 1234", "5"]),
        ("e\u0301" * 38 + " next", ["e\u0301" * 38, "next"]),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_lines_break_at_words(text: str, lines: list[str], step: int) -> None:
    assert [line.rstrip() for line in wrapped(text, 40, step)] == lines


@pytest.mark.parametrize(
    "line",
    [
        'print("a line of code that is much longer than the screen is wide")',
        "    if x:  # four spaces, and a comment that is longer than the screen",
    ],
)
def test_code_is_left_as_it_is(line: str) -> None:
    wrap = WordWrap(lambda: 40)
    text = f"So:\n```python\n{line}\n```\n| a table row | that is longer than the screen is |\n"
    assert "".join(map(wrap, text)) == text
    after = "after the code words are broken at words again"
    assert "".join(map(wrap, after)).count("\n") == 1


WORDS = st.text(st.sampled_from("ab,-`*#"), min_size=1, max_size=12)


@given(st.lists(WORDS, max_size=40), st.integers(NARROWEST, 100), st.integers(1, 9))
@settings(deadline=None)
def test_no_word_is_broken_or_lost(words: list[str], columns: int, step: int) -> None:
    lines = wrapped(" ".join(words), columns, step)
    if not any(word.startswith("```") for word in words[:1]):
        assert [word for line in lines for word in line.split()] == words
        assert all(len(line) <= columns for line in lines)


@given(st.text(st.sampled_from("ab \n日、。（”\t-1.`|>"), max_size=200), st.integers(2, 120))
@settings(deadline=None)
def test_all_characters_arrive_in_order(text: str, columns: int) -> None:
    assert "".join("".join(wrapped(text, columns)).split()) == "".join(text.split())


def test_words_appear_before_they_end() -> None:
    wrap = WordWrap(lambda: 40)
    assert wrap("Hel") == "Hel" and wrap("lo") == "lo" and wrap(" ") == "" and wrap("y") == " y"


def test_a_terminal_that_gets_narrower() -> None:
    widths = iter([80, 40])
    wrap = WordWrap(lambda: next(widths))
    before = "one two three four five six seven eight nine ten eleven"
    sent = wrap(before) + wrap(" twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen")
    assert [line.rstrip() for line in lines_of(sent, 80)] == [
        before,
        "twelve thirteen fourteen fifteen",
        "sixteen seventeen eighteen nineteen",
    ]


def test_parts_between_dots_stay_together(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    parts = ("guide (built in)", "1024-token context", "/help lists commands")
    monkeypatch.setattr("edgellm.cli.terminal.output.columns", lambda stream: 51)
    for terminal, shown in ((False, " · ".join(parts)), (True, f"{' · '.join(parts[:2])} ·\n{parts[2]}")):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        say(" · ".join(parts))
        assert capsys.readouterr().err == f"{shown}\n"
