"""Output on a terminal: no control character of a model or file, however it is split, and all ordinary text."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import IMPORTED

from edgellm.cli.terminal.filter import Filter, clean

FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
SEQUENCES = {
    "colour": "\x1b[31m",
    "clear screen": "\x1b[2J",
    "home": "\x1b[H",
    "private mode": "\x1b[?1049h",
    "8-bit CSI": "\x9b2J",
    "title by BEL": "\x1b]0;owned\x07",
    "title by ST": "\x1b]2;owned\x1b\\",
    "icon": "\x1b]1;x\x9c",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "link": "\x1b]8;;http://x\x1b\\",
    "8-bit OSC": "\x9d0;owned\x9c",
    "DCS": "\x1bP1$r0m\x1b\\",
    "8-bit DCS": "\x90q\x9c",
    "APC": "\x1b_Gf=24;AAAA\x1b\\",
    "PM": "\x1b^x\x1b\\",
    "SOS": "\x1bXx\x1b\\",
    "reset": "\x1bc",
    "charset": "\x1b(0",
    "index": "\x1bD",
    "report": "\x1b[6n",
    "shift": "\x0e",
    "bell": "\x07",
    "backspace": "\x08",
    "delete": "\x7f",
    "NUL": "\x00",
    "return": "\r",
    "form feed": "\x0c",
    "next line": "\x85",
    "bidi override": "\u202e",
    "bidi isolate": "\u2067",
    "marks": "\u200e\u200f\u061c",
    "separators": "\u2028\u2029",
    "double escape": "\x1b\x1b[31m",
    "256 colours": "\x1b[38;5;196m",
    "string in string": "\x1b]0;a\x1b]0;b\x07",
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_vanish_whole_however_they_are_split(name: str) -> None:
    text = f"before{SEQUENCES[name]}after"
    for cut in range(len(text) + 1):
        keep = Filter()
        assert keep(text[:cut]) + keep(text[cut:]) == "beforeafter"
    keep = Filter()
    assert "".join(keep(char) for char in text) == "beforeafter"


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_no_stream_gets_a_control_character_through(count: int) -> None:
    text = st.text() | st.sampled_from(sorted(SEQUENCES.values())) | st.text("\x1b[]P\\;0m\x07\x9b\x9c\n a")

    @settings(max_examples=count, deadline=None)
    @given(st.lists(text, max_size=12))
    def check(pieces: list[str]) -> None:
        keep = Filter()
        assert not FORBIDDEN.search("".join(map(keep, pieces)))

    check()


BIDI = "".join(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))


@given(st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters=BIDI) | st.sampled_from("\n\t")))
def test_ordinary_text_stays(text: str) -> None:
    assert Filter()(text) == text


@pytest.mark.parametrize("start", ["\x1b]0;", "\x1bP", "\x9d", "\x1b[", "\x1b("])
def test_an_unfinished_sequence_does_not_swallow_the_answer(start: str) -> None:
    keep = Filter()
    assert keep(start + "x" * 3000 + "\nThe answer.").endswith("\nThe answer.")


def test_clean_is_one_line() -> None:
    assert clean("a\n\x1b[31mb\t c\r\n\u202ed") == "a b c d"


def test_names_that_the_locale_could_not_read_are_shown_as_utf8() -> None:
    """As Python reads the bytes of arguments where the locale is ASCII, written plainly or by repr()."""
    name = "/tmp/é→x.gguf".encode().decode("ascii", "surrogateescape")
    assert clean(name) == clean(f"{name!r}")[1:-1] == "/tmp/é→x.gguf"
    assert (
        clean("a\udcff\udcc3.gguf")
        == clean(repr("a\udcff\udcc3.gguf"))[1:-1]
        == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}.gguf"
    )


PROGRAM = """
import sys
sys.path[:0] = {folders!r}
from fake_model import FakeModel
from edgellm.cli import app, opening
opening.open_model = lambda name, options: FakeModel({answer!r})
raise SystemExit(app.run(["run", "evil\\x1b]0;owned\\x07.gguf", "prompt", *{more!r}]))
"""


@pytest.mark.parametrize("more", [[], ["--raw"], ["--stats"]])
def test_a_terminal_gets_no_control_bytes(more: list[str]) -> None:
    answer = "".join(f"{text}word\n" for text in SEQUENCES.values()) + "the end"
    program = PROGRAM.format(folders=IMPORTED, answer=answer, more=more)
    leader, follower = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL, stdout=follower, stderr=follower) as child:
        os.close(follower)
        seen = b""
        while chunk := _read(leader):
            seen += chunk
    os.close(leader)
    assert child.returncode == 0
    text = seen.decode().replace("\r\n", "\n")  # the terminal itself makes \\r\\n of \\n
    assert text.startswith("word\n" * len(SEQUENCES) + "the end\n") and not FORBIDDEN.search(text)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # Linux: the other side is closed
        return b""
