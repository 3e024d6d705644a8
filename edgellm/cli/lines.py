"""Where a chat's messages come from: an editor line on a terminal, plain lines otherwise."""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from edgellm.cli.output import say
from edgellm.cli.state import private_file

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

ReadLine = Callable[[str], str | None]       # prompt -> line without its newline, None at the end
BLOCK = '"""'


def read_message(read_line: ReadLine) -> str | None:
    """The next message: one line, several after a backslash at the end of a line, or a block between triple quotes."""
    line = read_line("> ")
    if line is None or (not line.startswith(BLOCK) and not line.endswith("\\")):
        return line
    if line.startswith(BLOCK):
        return _block(line.removeprefix(BLOCK), read_line)
    lines = []
    while line is not None and line.endswith("\\"):
        lines.append(line[:-1])
        line = read_line(". ")
    return "\n".join([*lines, line or ""])


def _block(first: str, read_line: ReadLine) -> str:
    lines = [first]
    while not lines[-1].rstrip().endswith(BLOCK):
        line = read_line(". ")
        if line is None:
            break
        lines.append(line)
    return "\n".join(lines).rstrip().removesuffix(BLOCK).strip("\n")


def plain_lines(prompt: str) -> str | None:
    """Lines from a pipe or file: nothing is echoed or prompted."""
    line = sys.stdin.readline()
    return line.rstrip("\r\n") if line else None


class EditedLines:
    """Lines from a terminal, with editing and history. Ctrl-D ends; Ctrl-C empties the line, twice it ends too."""

    def __init__(self) -> None:
        self._session = _editor()
        self._interrupted = False

    def __call__(self, prompt: str) -> str | None:
        while True:
            try:
                line = self._session.prompt(prompt)
                self._interrupted = False
                return line
            except EOFError:
                return None
            except KeyboardInterrupt:
                if self._interrupted:
                    return None
                self._interrupted = True
                say("Ctrl-C again or Ctrl-D leaves")


def _editor() -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    file = private_file("history")
    return PromptSession(history=FileHistory(str(file)) if file else InMemoryHistory(), key_bindings=keys)
