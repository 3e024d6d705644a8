"""Markdown on a terminal: what it means is shown, wherever the text is cut, and nothing that was said gets lost."""
from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.cli.markdown import BOLD, CODE, DIM, ITALIC, PLAIN_COLOUR, PLAIN_WEIGHT, UPRIGHT, Markdown
from edgellm.cli.wrapping import WordWrap

CASES = [
    ("plain text\n", "plain text\n"),
    ("a **b** c", f"a {BOLD}b{PLAIN_WEIGHT} c"),
    ("a *b* c", f"a {ITALIC}b{UPRIGHT} c"),
    ("`x = 1`", f"{CODE}x = 1{PLAIN_COLOUR}"),
    ("2 * 3 * 4 and 2*3", "2 * 3 * 4 and 2*3"),
    ("snake_case_name", "snake_case_name"),
    ("# Title\ntext", f"{BOLD}Title{PLAIN_WEIGHT}\ntext"),
    ("- one\n* two\n", "• one\n• two\n"),
    ("#hashtag", "#hashtag"),
    ("**open", f"{BOLD}open{PLAIN_WEIGHT}"),
    ("```\n**x**\n```\n", f"{DIM}```{PLAIN_WEIGHT}\n**x**\n{DIM}```{PLAIN_WEIGHT}\n"),
    ("-", "-"), ("", ""), ("---\n", "---\n"), ("1. one", "1. one"),
]


def rendered(*pieces: str) -> str:
    markdown = Markdown()
    return "".join("".join(markdown(piece)) for piece in pieces) + "".join(markdown.end())


@pytest.mark.parametrize("text, wanted", CASES)
def test_what_it_means_wherever_it_is_cut(text: str, wanted: str) -> None:
    assert rendered(text) == wanted
    for at in range(len(text) + 1):
        assert rendered(text[:at], text[at:]) == wanted
    assert rendered(*text) == wanted


def test_code_is_coloured_line_by_line() -> None:
    shown = rendered("```python\ndef f(x):\n    return x\n```\nend")
    assert "\x1b[" in shown.splitlines()[1] and bare(shown) == "```python\ndef f(x):\n    return x\n```\nend"


def bare(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(alphabet="ab *_`#-\n~", max_size=60))
def test_no_letter_gets_lost(text: str) -> None:
    assert re.sub(r"[^ab]", "", bare(rendered(text))) == re.sub(r"[^ab]", "", text)
    assert rendered(*text) == rendered(text)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_styles_do_not_count_when_lines_are_broken(columns: int) -> None:
    pyte = pytest.importorskip("pyte")
    text = "some **bold words** and `code` here " * 12
    shown = []
    for styled in (True, False):
        screen = pyte.Screen(columns, 40)
        stream, markdown, wrap = pyte.Stream(screen), Markdown(), WordWrap(lambda: columns)
        screen.set_mode(pyte.modes.LNM)
        source = text if styled else bare(rendered(text))
        for char in source:
            stream.feed(wrap(markdown(char) if styled else char))
        stream.feed(wrap(markdown.end()) if styled else "")
        shown.append([line.rstrip() for line in screen.display])
    assert shown[0] == shown[1] and len(shown[0][1]) > columns // 2
