"""A chat on a pseudo-terminal: editing, type-ahead, pastes, Tab, Ctrl-C, Ctrl-Z, and what shows while a prompt is read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyte
import pytest
from pseudo_terminal import Terminal, lines_of, with_header
from tiny_models import tiny_model

from edgellm.cli.terminal.keyboard import as_text

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX")

PROGRAM = """
class Slow(FakeStream):
    def __iter__(self):
        for piece in super().__iter__():
            time.sleep(0.02)
            yield piece

class Held(Slow):                                # until there is a file, in the middle
    def __init__(self, text, file):
        super().__init__(text)
        self.file = file

    def __iter__(self):
        for k, piece in enumerate(super().__iter__()):
            while k == len(self._text) // 2 and not os.path.exists(self.file):
                time.sleep(0.01)
            yield piece

class Reading(FakeStream):
    def __iter__(self):
        for done in range(0, 4300, 100):
            while not self._closed and self._text == "never" and done == 2000:
                time.sleep(0.01)
            if self._closed:
                return
            model.progress(done, 4300)
            time.sleep(0.03)
        yield from super().__iter__()

model = FakeModel({answers})
opening.open_model = lambda name, options: model
raise SystemExit(app.run(["chat", "m"]))
"""
Start = Callable[..., Terminal]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    """Starts a chat whose model gives these answers (Python source)."""
    running: list[Terminal] = []

    def started(answers: str, columns: int = 80, rows: int = 40, **environment: str) -> Terminal:
        places = dict.fromkeys(("XDG_STATE_HOME", "LOCALAPPDATA", "HF_HUB_CACHE", "HOME"), str(home))
        running.append(Terminal(PROGRAM.format(answers=answers), columns, rows=rows, **places, **environment))
        running[-1].wait_for("commands\r\n")
        running[-1].wait_for(">")
        return running[-1]

    yield started
    for terminal in running:
        terminal.close()


def test_a_conversation(start: Start, home: Path) -> None:
    terminal = start("'first answer', Slow('x' * 5000), 'third answer'")
    terminal.type("one\x1b\rtwo\r")  # Alt-Enter, then Enter
    terminal.wait_for("first answer")
    terminal.wait_for(">")
    terminal.type("go on\r")
    terminal.wait_for("xxxxx")
    terminal.type("\x03")  # Ctrl-C stops the answer
    terminal.wait_for("(stopped)")
    terminal.wait_for(">")
    terminal.type("half a line\x03")  # Ctrl-C empties the line
    terminal.wait_for("Ctrl-C again or Ctrl-D leaves")
    terminal.wait_for(">")
    terminal.type("/nope\r")  # an error does not end the chat
    terminal.wait_for("error: /nope")
    terminal.wait_for(">")
    terminal.type("and now\r")
    terminal.wait_for("third answer")
    terminal.wait_for(">")
    terminal.type("\x04")  # Ctrl-D leaves
    assert terminal.child.wait(120) == 0
    history = (home / "edgellm" / "history").read_text()
    assert "+one\n+two\n" in history and "+and now\n" in history


def test_ctrl_c_twice_leaves(start: Start) -> None:
    terminal = start("")
    terminal.type("\x03")
    terminal.wait_for("Ctrl-C again")
    terminal.wait_for(">")
    terminal.type("\x03")
    assert terminal.child.wait(120) == 0


def test_lines_finished_during_an_answer_are_sent_after_it(start: Start, tmp_path: Path, home: Path) -> None:
    typed = tmp_path / "typed"
    terminal = start(f"Held('word ' * 15 + 'END', {str(typed)!r}), FakeStream('second'), FakeStream('third')")
    terminal.type("go\r")
    terminal.wait_for("word")
    terminal.type("next questiom\x7fn\x1b[A\r/set temp 0\rand one mo")  # Backspace, an arrow, Enter
    typed.touch()
    assert "next" not in terminal.wait_for("END")
    terminal.wait_for("next question")
    terminal.wait_for("second")
    terminal.wait_for("temp              0  set by you")
    terminal.wait_for("and one mo")
    assert not terminal.read(0.3) or "third" not in terminal.shown, "what is not finished waits"
    terminal.type("re\r")
    terminal.wait_for("third")
    terminal.wait_for(">")
    terminal.type("\x04")
    assert terminal.child.wait(120) == 0
    assert "+next question\n" in (home / "edgellm" / "history").read_text()


def test_a_paste_without_brackets_is_one_message(start: Start, home: Path) -> None:
    terminal = start("'got it', 'and again'")
    terminal.type("first line\r\rsecond line\rlast line\r")
    terminal.wait_for("got it")
    terminal.wait_for(">")
    assert "+first line\n+\n+second line\n+last line\n" in (home / "edgellm" / "history").read_text()
    terminal.type("x" * 90 + "\rä" * 3000 + "z")  # the last line waits for its Enter
    terminal.wait_for("z")
    assert not terminal.read(0.5) or "and again" not in terminal.shown
    terminal.type("\x03")
    terminal.wait_for("leaves")
    terminal.wait_for(">")
    terminal.type("/set temp 0\r/set seed 3\rhello\r")  # commands go one by one
    terminal.wait_for("temp              0  set by you")
    terminal.wait_for("seed              3  set by you")
    terminal.wait_for("and again")


def test_a_paste_taller_than_the_screen_is_one_message(start: Start, home: Path) -> None:
    """Its lines scroll in a window of the screen's height; what is sent stands there once, its last lines as far as they fit."""
    terminal = start("'got it', 'and again'", rows=8)
    lines = [f"line {i} of a paste" for i in range(30)]
    terminal.type("\x1b[200~" + "\r".join(lines) + "\x1b[201~")
    terminal.wait_for(lines[-1])
    assert "got it" not in terminal.all
    terminal.type("\r")
    terminal.wait_for("got it")
    terminal.wait_for(">")
    assert "+" + "\n+".join(lines) + "\n" in (home / "edgellm" / "history").read_text()
    screen = pyte.HistoryScreen(80, 8, history=1000, ratio=1)
    pyte.Stream(screen).feed(terminal.all)
    above = ["".join(row[x].data for x in range(80)).rstrip() for row in screen.history.top]
    shown = [*above, *(row.rstrip() for row in screen.display)]
    shown = [row.removeprefix("> ").strip() for row in shown if row.strip()]
    pasted = [row for row in shown if "of a paste" in row]
    assert pasted == lines[-len(pasted) :] and len(pasted) >= 6, shown
    assert shown[len(shown) - shown[::-1].index(lines[-1])] == "got it" and "/help lists commands" in shown[0], shown


def test_colours_in_a_paste_without_brackets(start: Start) -> None:
    terminal = start("'got it'")
    terminal.type("\x1b[1mbold\x1b[0m words\r")
    terminal.wait_for("got it")
    terminal.wait_for(">")
    assert "Unhandled" not in terminal.all and "bold words" in terminal.all


def test_what_was_typed_ahead_outlives_ctrl_c(start: Start) -> None:
    terminal = start("Slow('x' * 5000), 'the next answer'")
    terminal.type("one\r")
    terminal.wait_for("xxxxx")
    terminal.type("typed ahead")
    terminal.type("\x03")
    terminal.wait_for("(stopped)")
    terminal.wait_for("typed ahead")
    terminal.type("\r")
    terminal.wait_for("the next answer")


def test_enter_sends_while_the_terminal_says_where_its_cursor_is(start: Start) -> None:
    """It is asked at each prompt; its answer may come right behind a line that was typed early."""
    terminal = start("'got it', 'and again'")
    terminal.type("first line\r\x1b[3;1R")
    terminal.wait_for("got it")
    terminal.wait_for(">")
    terminal.type("second\r\x1b[5;1Rthird\r")
    terminal.wait_for("and again")


def test_tab_completes(start: Start) -> None:
    terminal = start("")
    terminal.type("/qu\t")
    terminal.wait_for("it")
    terminal.type("\x15/set tem\t")
    terminal.wait_for("tem")
    terminal.wait_for("p")
    terminal.type(" 0.25\r")
    terminal.wait_for("temp              0.25  set by you")


def test_reading_shows_life_and_ctrl_c_ends_it(start: Start) -> None:
    terminal = start("Reading('the answer'), Reading('unread'), Reading('never')")
    terminal.type("long\r")
    terminal.wait_for("read the end of it all the same? y/N")
    terminal.type("y")
    terminal.wait_for("\rreading ")
    terminal.wait_for(" / 4,300 tokens ...")
    before = terminal.wait_for("the answer")
    assert before.endswith("\r") and "reading" not in before.rpartition("\r")[0].rpartition("\r")[2], "erased"
    terminal.wait_for(">")
    terminal.type("no\r")
    terminal.wait_for("y/N")
    terminal.type("\x03")  # at the question: no
    assert "unread" not in terminal.wait_for("error: the prompt was not read")
    terminal.wait_for(">")
    terminal.type("again\r")
    terminal.wait_for("y/N")
    terminal.type("y")
    terminal.wait_for("reading 1,")
    terminal.type("\x03")
    assert "reading 4," not in terminal.wait_for("(stopped)")
    terminal.wait_for(">")


@pytest.mark.parametrize("key, code", [("n", 2), ("\x03", 2), ("y", 0)])
def test_run_asks_before_it_reads_what_the_context_cannot_hold(key: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("the river and the sea\n" * 500)
    command = ["run", "guide", "-f", str(tmp_path / "long.txt"), "-n", "1", "--context", "64"]
    terminal = Terminal([sys.executable, "-c", "from edgellm.cli import main; main()", *command])
    try:
        terminal.type("y")  # before the question, which it does not answer
        terminal.wait_for("of them; it was trained for")
        terminal.wait_for("y/N")
        terminal.type(key)
        assert terminal.child.wait(120) == code and terminal.echoes()
    finally:
        terminal.close()


def test_ctrl_c_while_kernels_are_compiled_says_so(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "m.gguf", tokenizer="spm")
    command = [sys.executable, "-c", "from edgellm.cli import main; main()", "chat", str(model)]
    terminal = Terminal(command, columns=500, EDGELLM_CACHE=str(tmp_path / "cache"), XDG_STATE_HOME=str(tmp_path))
    try:
        terminal.wait_for(f"loading {model} ...")
        while not psutil.Process(terminal.child.pid).children():  # the compilers
            assert terminal.child.poll() is None and "commands" not in terminal.shown, "nothing was compiled"
            terminal.read(0.05)
        terminal.type("\x03")
        terminal.wait_for("stopping ...")
        terminal.wait_for(f"(stopped while loading {model})")
        assert terminal.child.wait(120) == 130 and "Traceback" not in terminal.all
        assert terminal.echoes()
    finally:
        terminal.close()


def test_ctrl_z_suspends_and_hands_the_terminal_back(tmp_path: Path) -> None:
    script, resumed = tmp_path / "chat.py", tmp_path / "resumed"
    answers = f"Held('word ' * 20 + 'END', {str(resumed)!r}), Held('second' + ' word' * 50, {str(tmp_path / 'never')!r})"
    script.write_text(with_header(PROGRAM.format(answers=answers)))
    terminal = Terminal(["sh", "-i", "-m"], PS1="SHELL", XDG_STATE_HOME=str(tmp_path), ENV="")
    try:
        terminal.wait_for("SHELL")
        terminal.type(f"{sys.executable} {script}\r")
        terminal.wait_for("commands\r\n")
        terminal.wait_for(">")
        terminal.type("go\r")
        terminal.wait_for("word")
        assert not terminal.echoes()
        terminal.type("\x1a")
        terminal.wait_for("SHELL")
        assert terminal.echoes()
        terminal.type("fg\r")
        resumed.touch()
        terminal.wait_for("word")
        assert not terminal.echoes()
        terminal.wait_for("END")
        terminal.wait_for(">")
        terminal.type("\x1a")  # at the prompt
        terminal.wait_for("SHELL")
        assert terminal.echoes()
        terminal.type("fg\r")
        terminal.wait_for(">")
        terminal.type("more\r")
        terminal.wait_for("second")
        terminal.wait_for("word")
        assert not terminal.echoes()
        terminal.type("\x1a")
        terminal.wait_for("SHELL")
        terminal.type("kill %1; fg\r")  # SIGTERM comes when it goes on
        terminal.wait_for("erminated")
        terminal.wait_for("SHELL")
        assert terminal.echoes()
    finally:
        terminal.close()


def test_answers_break_at_words_as_wide_as_the_terminal_is(start: Start) -> None:
    terminal = start("'These are more words than the forty columns of this terminal hold.'", columns=40)
    terminal.type("go\r")
    terminal.wait_for("\x1b[?2004l")  # the editor is done
    shown = terminal.wait_for("hold.") + "hold."
    assert [line.rstrip() for line in lines_of(shown.replace("\r", ""), 40)] == [
        "These are more words than the forty",
        "columns of this terminal hold.",
    ]


def test_thinking_is_dimmed(start: Start) -> None:
    terminal = start("'<think>\\nHm, hm.\\n</think>\\n\\nParis.'")
    terminal.type("go\r")
    terminal.wait_for("\x1b[2mHm, hm.\x1b[22m\r\n\r\nParis.\r\n")
    terminal.wait_for(">")


def test_a_dumb_terminal_gets_no_escapes(start: Start) -> None:
    terminal = start("'<think>Hm.</think>Paris.'", TERM="dumb")
    terminal.type("go\r")
    terminal.wait_for("[thinking]\r\nHm.\r\n[answer]\r\nParis.\r\n")


@pytest.mark.parametrize(
    "keys, text",
    [
        ("hello\r", "hello\n"),
        ("a\r\r\nb", "a\n\nb"),
        ("helo\x7flo", "hello"),
        ("wrong\x15right", "right"),
        ("a\x1b[A\x1b[Db", "ab"),
        ("\x7f\x7fx", "x"),
        ("a\r\x7f\x7fb", "a\nb"),
        ("\x04", ""),
        ("", ""),
        ("\x1b[24;80R", ""),
    ],
)
def test_keys_become_text(keys: str, text: str) -> None:
    assert as_text(keys) == text
