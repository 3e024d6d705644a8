"""Where a chat's messages come from: an editor line on a terminal, plain lines otherwise."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from edgellm.cli.state import private_file
from edgellm.cli.terminal.keyboard import MOST, as_text, more_comes, typed_ahead
from edgellm.cli.terminal.output import say
from edgellm.cli.terminal.piped import UTF16_MARKS, decoded

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

ReadLine = Callable[[str], str | None]  # prompt -> line without its newline, None at the end
Complete = Callable[[str], tuple[str, Sequence[str]]]  # text before the cursor -> its last word, what it may become
BLOCK, ENTER = '"""', ("\r", "\n")
PASTE_GAP = 0.03  # seconds: what comes sooner after Enter was not typed


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


class PlainLines:
    """Lines from a pipe or file, in UTF-8 or, after its byte order mark, UTF-16: nothing is echoed or prompted."""

    def __init__(self) -> None:
        self._utf16: io.StringIO | None = None  # all of it
        self._begun = self._noted = False

    def __call__(self, prompt: str) -> str | None:
        line = self._next()
        return line.rstrip("\r\n") if line else None

    def _next(self) -> str:
        stream = getattr(sys.stdin, "buffer", None)
        if stream is None:  # an app gave a stream of its own
            return sys.stdin.readline()
        if self._utf16 is not None:
            return self._utf16.readline()
        data: bytes = stream.readline()
        if not self._begun and data.startswith(UTF16_MARKS):
            self._utf16 = io.StringIO(decoded(data + stream.read(), "standard input"))
            return self._utf16.readline()
        self._begun, first = True, not self._begun
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data.decode(errors="replace") if self._noted else decoded(data, "a line of standard input")
            self._noted = True
        return text.removeprefix("\ufeff") if first else text


class EditedLines:
    """Lines from a terminal, with editing and history. Ctrl-D ends; Ctrl-C empties the line, twice it ends too.

    Lines that were finished since the last one come one by one, what was begun stands in the next. Lines that are pasted at a
    prompt stay together as one text.
    """

    def __init__(self, complete: Complete, is_command: Callable[[str], bool], *, keeps: bool = True) -> None:
        """`complete`: what may stand in place of the last word of a text. `is_command`: a line that is one, also within a paste.
        `keeps`: lines are kept on the disk for later chats.
        """
        self._session = _editor(complete, is_command, keeps=keeps)
        self._interrupted = False
        self._queue: list[str] = []  # lines that were finished during the last answer
        self._begun = ""  # and the one that was not

    def __call__(self, prompt: str) -> str | None:
        *finished, self._begun = (self._begun + typed_ahead()).split("\n")
        self._queue += finished
        if self._queue:
            line = self._queue.pop(0)
            print(f"{prompt}{line}", file=sys.stderr, flush=True)
            self.remember(line)
            return line
        while True:
            try:
                begun, self._begun = self._begun, ""
                line = self._session.prompt(prompt, default=begun)
                self._interrupted = False
                return line
            except EOFError:
                return None
            except KeyboardInterrupt:
                if self._interrupted:
                    return None
                self._interrupted = True
                say("Ctrl-C again or Ctrl-D leaves")

    def remember(self, text: str) -> None:
        """Let Up bring a text back, all its lines at once."""
        if text.strip() and text not in self._session.history.get_strings()[-1:]:
            self._session.history.append_string(text)


def _editor(complete: Complete, is_command: Callable[[str], bool], *, keeps: bool) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class Words(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            begun, words = complete(document.text_before_cursor)
            for word in words:
                yield Completion(word, start_position=-len(begun))

    file = private_file("history") if keeps else None
    return PromptSession(
        history=FileHistory(str(file)) if file else InMemoryHistory(),
        key_bindings=_keys(is_command),
        completer=Words(),
        complete_while_typing=False,
        enable_suspend=True,
    )


def _keys(is_command: Callable[[str], bool]) -> KeyBindings:
    from prompt_toolkit.enums import DEFAULT_BUFFER
    from prompt_toolkit.filters import has_focus
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("enter", filter=has_focus(DEFAULT_BUFFER))
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if not is_command(buffer.text) and (more := _pasted(event)):  # in a terminal that does not bracket what is pasted
            buffer.insert_text("\n" + as_text(more).removesuffix("\n"))
            if not more.endswith(ENTER):
                return
        buffer.validate_and_handle()

    @keys.add(Keys.Vt100MouseEvent)
    def colour(event: KeyPressEvent) -> None:
        """Codes of colours in pasted text look like a mouse's, which nobody asked the terminal for."""

    return keys


def _pasted(event: KeyPressEvent) -> str:
    """All keys that come right behind this one; taken in one go, since the editor needs a moment for each."""
    from prompt_toolkit.keys import Keys

    queue = event.key_processor.input_queue
    keys = [key for key in queue if key.data != "_Flush"]  # a mark of prompt_toolkit's own
    queue.clear()
    while len(keys) < MOST and more_comes(PASTE_GAP) and (read := event.app.input.read_keys()):
        keys += read
    for key in keys:
        if key.key == Keys.CPRResponse:  # where the cursor is, which prompt_toolkit asks the terminal at each prompt
            event.key_processor.feed(key)
    return "".join(key.data for key in keys if key.key != Keys.CPRResponse)
