"""Records docs/images/chat.svg: a real chat with the guide in a pseudo-terminal, typed by this script.

.venv/bin/python scripts/record_chat.py [--check]        # --check: only say whether the same chat gives the same picture's text
"""

from __future__ import annotations

import fcntl
import html
import itertools
import os
import pty
import re
import select
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "chat.svg"
COLUMNS, LINES = 88, 60  # lines: more than are used, so that nothing scrolls away
COMMAND = ("edgellm", "chat", "guide", "--temp", "0")
MESSAGES = ("how do I get a bigger model?", "which one fits 8 GB?", "what does Q4_K_M mean?")
PROMPT = "> "
WHERE = b"\x1b[6n"  # asks a terminal where its cursor is
SECONDS = 900  # the first start of a machine compiles kernels


class Terminal:
    """A program in a pseudo-terminal, and what its screen shows."""

    def __init__(self, command: tuple[str, ...], environment: dict[str, str], columns: int = COLUMNS, lines: int = LINES) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.said = b""  # all that the program wrote
        self._stream = pyte.ByteStream(self.screen)
        self._stream.feed(f"$ {' '.join(command)}\r\n".encode())
        self._process, self._file = pty.fork()
        if self._process == 0:
            os.execvpe(command[0], list(command), environment)
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        for char in text:
            os.write(self._file, char.encode())
            self.read(0.02)

    def read(self, seconds: float) -> bool:
        """Take what comes within that time; False at the program's end."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._file], [], [], left)[0]:
                break
            try:
                data = os.read(self._file, 65536)
            except OSError:  # the program has ended
                return False
            self.said += data
            first, *others = data.split(WHERE)
            self._stream.feed(first)
            for part in others:
                os.write(self._file, f"\x1b[{self.screen.cursor.y + 1};{self.screen.cursor.x + 1}R".encode())
                self._stream.feed(part)
        return True

    def ask(self, message: str) -> None:
        """At a prompt; each key is waited for, however slow the machine is."""
        self.wait(self.at_prompt)
        self.type(message)
        self.wait(lambda: self.screen.display[self.screen.cursor.y].rstrip() == PROMPT + message)
        row = self.screen.cursor.y
        self.type("\r")
        self.wait(lambda: self.screen.cursor.y > row)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Read until it is true."""
        end = time.monotonic() + SECONDS
        while not condition():
            if time.monotonic() > end or not self.read(0.3):
                raise SystemExit("the chat does not go on; its screen:\n" + "\n".join(self.screen.display).rstrip())

    def at_prompt(self) -> bool:
        cursor = self.screen.cursor
        return cursor.x == len(PROMPT) and self.screen.display[cursor.y].rstrip() == PROMPT.strip()

    def close(self) -> None:
        os.write(self._file, b"\x04")
        while self.read(5):
            pass
        os.waitpid(self._process, 0)


def main() -> None:
    text = record()
    picture = draw(text)
    if "--check" not in sys.argv:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(picture, encoding="utf-8")
    elif not PICTURE.is_file() or words(picture) != words(PICTURE.read_text(encoding="utf-8")):
        raise SystemExit(f"{PICTURE.name} shows another chat than edgellm has now: run scripts/record_chat.py\n{text.plain}")


def record() -> Text:
    """The screen after all messages were answered."""
    with tempfile.TemporaryDirectory(prefix="edgellm-chat-") as home:
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "HOME": home,
            "XDG_STATE_HOME": home,
            "LC_ALL": "C.UTF-8",
            "COLUMNS": str(COLUMNS),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        environment.setdefault("EDGELLM_CACHE", str(Path.home() / ".cache" / "edgellm"))
        environment.pop("NO_COLOR", None)
        terminal = Terminal(COMMAND, environment)
        for message in MESSAGES:
            terminal.ask(message)
        terminal.wait(terminal.at_prompt)
        text = shown(terminal.screen)
        terminal.close()
    return text


def shown(screen: pyte.Screen) -> Text:
    """The screen with its colours, down to the cursor."""
    lines = []
    for row in range(screen.cursor.y + 1):
        line = Text()
        cells = [screen.buffer[row][column] for column in range(COLUMNS)]
        for style, run in itertools.groupby(cells, key=look):
            line.append("".join(cell.data for cell in run), style)
        line.rstrip()
        lines.append(line)
    return Text("\n").join(lines)


def look(cell: pyte.screens.Char) -> Style:
    """How a character of the screen looks."""
    colour = None if cell.fg == "default" else f"#{cell.fg}" if re.fullmatch("[0-9a-f]{6}", cell.fg) else cell.fg
    return Style(color=colour, bold=cell.bold, italic=cell.italics)


def draw(text: Text) -> str:
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(text, highlight=False)
    return console.export_svg(title="edgellm", unique_id="chat")


def words(picture: str) -> list[str]:
    """The text of a picture, whatever version of rich has drawn it, but for the machine's speed and number of threads."""
    text = " ".join(html.unescape(part) for part in re.findall(r"<text[^>]*>([^<]*)</text>", picture)).replace("\xa0", " ")
    return re.sub(r"[\d.,]+ (tokens/s|threads?)", r"\1", " ".join(text.split())).replace("threads", "thread").split()


if __name__ == "__main__":
    main()
