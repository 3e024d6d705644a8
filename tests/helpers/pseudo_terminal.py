"""A program on a pseudo-terminal, typed into and read; and the screen that its output makes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import selectors
import signal
import struct
import subprocess
import sys
import termios
import time

from places import IMPORTED

HEADER = """
import os, sys, time
sys.path[:0] = {folders!r}
from fake_model import FakeModel, FakeStream
from edgellm.cli import app, opening
"""


class Terminal:
    """A program on a pseudo-terminal: type into it, wait for what it shows."""

    def __init__(self, program: str | list[str], columns: int = 80, rows: int = 40, **environment: str) -> None:
        """`program`: Python source with the fake model at hand, or a command line."""
        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.all = self.shown = ""  # everything; what came after what was waited for last
        self.child = subprocess.Popen(
            [sys.executable, "-c", with_header(program)] if isinstance(program, str) else program,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=os.environ | {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"} | environment,
            preexec_fn=lambda: _own_terminal(follower),
        )
        os.close(follower)

    def type(self, keys: str) -> None:
        os.write(self._leader, keys.encode())

    def wait_for(self, text: str, seconds: float = 120) -> str:
        """Read until `text` is shown after what was waited for before; returns what came before it."""
        end = time.monotonic() + seconds
        while text not in self.shown:
            assert self.read(end - time.monotonic()), f"no {text!r} in {self.shown!r}"
        before, _, self.shown = self.shown.partition(text)
        return before

    def read(self, seconds: float) -> bool:
        """Read what is shown within some seconds; whether there was anything."""
        with selectors.DefaultSelector() as selector:  # select() takes no number above 1023
            selector.register(self._leader, selectors.EVENT_READ)
            shown = selector.select(max(0.0, seconds))
        if not shown:
            return False
        try:
            new = os.read(self._leader, 4096).decode(errors="replace")
        except OSError:
            raise AssertionError(f"the program ended; it showed {self.shown!r}") from None
        self.shown += new
        self.all += new
        return True

    def echoes(self) -> bool:
        """True if the terminal shows what is typed."""
        return bool(termios.tcgetattr(self._leader)[3] & termios.ECHO)

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        os.close(self._leader)


def with_header(program: str) -> str:
    """A program that finds the fake model."""
    return HEADER.format(folders=IMPORTED) + program


def _own_terminal(follower: int) -> None:
    """As a terminal's shell starts a program; where the tests run in the background, Ctrl-C may be ignored, which is inherited."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    fcntl.ioctl(follower, termios.TIOCSCTTY, 0)


def lines_of(output: str, columns: int) -> list[str]:
    """The lines of a screen after `output`: new lines, cursor to the left, erasing to the right, going on in the next line."""
    from rich.cells import cell_len

    lines: list[list[str]] = [[]]  # cells; a wide character is followed by ""
    column = 0
    for count, action, char in re.findall(r"\x1b\[(\d*)([A-Za-z])|(.)", output, re.DOTALL):
        if action == "D":
            column -= int(count or 1)
        elif action == "K":
            del lines[-1][column:]
        elif char == "\n":
            lines.append([])
            column = 0
        elif char:
            width = cell_len(char)
            if not width and column:  # an accent of the character before
                lines[-1][column - 1] += char
                continue
            if column + width > columns:
                lines.append([])
                column = 0
            lines[-1][column:] = [char, *[""] * (width - 1)]
            column += width
    return ["".join(line) for line in lines]
