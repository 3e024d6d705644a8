"""Markdown on a terminal: what it means is shown, wherever the text is cut, and nothing that was said gets lost."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.cli.terminal.emphasis import BOLD, CODE, ITALIC, LONGEST_WAIT, PLAIN_COLOUR, PLAIN_WEIGHT, UPRIGHT
from edgellm.cli.terminal.markdown import DIM, Markdown
from edgellm.cli.terminal.wrapping import WordWrap

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
    ("**open", "**open"),
    ("a `b and **c\n`d` *e", f"a `b and **c\n{CODE}d{PLAIN_COLOUR} *e"),
    ("这是**重点**吧", f"这是{BOLD}重点{PLAIN_WEIGHT}吧"),
    ("这是**“重点”**吧", f"这是{BOLD}“重点”{PLAIN_WEIGHT}吧"),
    ("**a *b* c**", f"{BOLD}a {ITALIC}b{UPRIGHT} c{PLAIN_WEIGHT}"),
    ("**`x`**: y", f"{BOLD}{CODE}x{PLAIN_COLOUR}{PLAIN_WEIGHT}: y"),
    ("# a **b** c\nd", f"{BOLD}a {BOLD}b c{PLAIN_WEIGHT}\nd"),
    ("__Note:__ a", f"{BOLD}Note:{PLAIN_WEIGHT} a"),
    ("**a *b** c", f"{BOLD}a *b{PLAIN_WEIGHT} c"),
    ("**Note**s", f"{BOLD}Note{PLAIN_WEIGHT}s"),
    ("(**a b** c)", "(**a b** c)"),
    ("f(**kwargs) is **bold**", f"f(**kwargs) is {BOLD}bold{PLAIN_WEIGHT}"),
    ("```\n**x**\n```\n", f"{DIM}```{PLAIN_WEIGHT}\n**x**\n{DIM}```{PLAIN_WEIGHT}\n"),
    ("-", "-"),
    ("", ""),
    ("---\n", "---\n"),
    ("1. one", "1. one"),
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


@pytest.mark.parametrize(
    "text",
    [
        "2**10 is 1024",
        "x**2 + y**2 = z**2",
        "(a + b)**2 + (c + d)**2",
        "name__contains=x and age__gte",
        "f(**a) and g(**b)",
        "f(x,**kwargs) **",
        "*args and **kwargs",
        "f(*args, **kwargs) takes any arguments, whatever they are called, and passes them on",
        "print(*a) or print(*b)",
        "__init__.py and __name__ are",
        "2*(a + b)*c",
        "(a + b)*(c + d)*e",
        "__a __b",
        "5**",
        "a ** b ** c",
    ],
)
def test_program_text_keeps_its_characters(text: str) -> None:
    assert rendered(text) == rendered(*text) == text


def test_long_emphasis_does_not_wait_for_its_end() -> None:
    markdown, words = Markdown(), "many words " * 20
    shown = "".join("".join(markdown(char)) for char in f"**{words}")
    assert shown == f"{BOLD}{words}" and "".join(markdown("end** x")) == f"end{PLAIN_WEIGHT} x"
    markdown = Markdown()
    assert "".join(markdown("**" + "a" * (LONGEST_WAIT - 2))) == ""
    assert "".join(markdown("**.")) == f"{BOLD}{'a' * (LONGEST_WAIT - 2)}{PLAIN_WEIGHT}."


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
