"""The loop of a chat: a message in, an answer out, until somebody leaves."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

from edgellm.cli.chat.context_view import bar, used_tokens
from edgellm.cli.chat.conversation import Dialogue
from edgellm.cli.chat.lines import EditedLines, PlainLines, read_message
from edgellm.cli.chat.session_commands import pasted
from edgellm.cli.chat.slash_commands import Leave, Switch, carry_out, is_command
from edgellm.cli.options import worded
from edgellm.cli.terminal.answering import show
from edgellm.cli.terminal.filter import clean
from edgellm.cli.terminal.keyboard import asked
from edgellm.cli.terminal.output import DIM, NORMAL, complain, say
from edgellm.cli.terminal.progress import ReadingLine
from edgellm.cli.terminal.screen import columns, understands_escapes
from edgellm.errors import ContextFull, EdgeError

if TYPE_CHECKING:
    from edgellm.api.records import Event, Generation

NARROWEST_BAR = 5  # characters
CUT = {
    "length": "/set n sets another limit",
    "context": "the context is full; what comes next forgets the oldest messages",
    "loop": "it repeats itself over and over",
}
FULL = "(the context is full: the oldest messages are being forgotten; /clear starts afresh)"


def talk(conversation: Dialogue, switch: Callable[[str], None], *, interactive: bool, private: bool = False) -> int:
    """Run the loop; `switch` replaces the model. Returns the exit code.

    On a terminal an error or Ctrl-C ends one answer; over a pipe it ends everything, but a message that is too long is passed over,
    and a slash before anything but a command begins a message. `private`: input lines are not kept on the disk.
    """
    from edgellm.cli.chat.completer import complete

    lines = EditedLines(complete, is_command, keeps=not private) if interactive else PlainLines()
    code = 0
    while (text := read_message(lines)) is not None:
        if "\n" in text and isinstance(lines, EditedLines):
            lines.remember(text)
        try:
            if interactive and not is_command(text) and not (text := pasted(conversation, text)):
                continue
            command = text.startswith("/") if interactive else is_command(text.partition("\n")[0])
            events = carry_out(text, conversation) if command else _ask(conversation, text)
            if events is not None:
                _print(conversation, events, interactive)
        except Leave:
            break
        except Switch as wanted:
            _switch(switch, wanted.name, interactive)
        except EdgeError as error:
            if not interactive and not isinstance(error, ContextFull):
                raise
            complain(worded(error))
            code = 0 if interactive else error.exit_code
    return code


def _ask(conversation: Dialogue, text: str) -> Iterator[Event] | None:
    return conversation.ask(text) if text.strip() else None


def _switch(switch: Callable[[str], None], name: str, interactive: bool) -> None:
    """Another model; what goes wrong leaves a terminal with the one before."""
    try:
        switch(name)
    except KeyboardInterrupt:
        if not interactive:
            raise
    except EdgeError as error:
        if not interactive:
            raise
        complain(worded(error))


def _print(conversation: Dialogue, events: Iterator[Event], interactive: bool) -> None:
    """Stream an answer, and say what its text does not show."""
    again = bool(conversation.turns) and conversation.last is None  # a resumed chat is read without a question
    reading, full = (
        ReadingLine(conversation.model.info.context, conversation.model.info.context_train, asks=not again),
        conversation.full,
    )
    conversation.progress = reading.read
    with on_ctrl_c(conversation.stop) if interactive else contextlib.nullcontext(lambda: 0) as pressed:
        show(events, reading, plain=conversation.plain)
    result = conversation.last
    if result is not None:
        _remark(result, conversation.attached)
    if interactive and result is not None and result.stats.generated_tokens:
        _status(conversation, result)
    if conversation.full and not full:
        say(FULL)
    if conversation.keeper is not None:
        conversation.keeper.report()
    if pressed() > 1 and asked("leave the chat?", interrupted=True):
        raise Leave


def _status(conversation: Dialogue, result: Generation) -> None:
    """The model, its speed and how full the context is, in a dimmed line."""
    if not understands_escapes(sys.stderr):
        return
    of = conversation.model.info.context
    used, wide = used_tokens(conversation), columns(sys.stderr)
    speed = f" · {result.stats.tokens_per_second:.1f} tokens/s" if result.stats.generated_tokens else ""
    name, full = clean(conversation.model.info.path.stem), f" {used / of:.0%}"
    room = wide - 1 - len(f"{name}{speed} · []{full}")
    shown = f" [{bar(used, of, min(20, wide // 4, room))}]" if room >= NARROWEST_BAR else ""
    if (most := wide - 1 - len(f"{speed} ·{shown}{full}")) < len(name):
        name = name[: max(most - 3, 0)] + "..."
    print(f"{DIM}{name}{speed} ·{shown}{full}{NORMAL}", file=sys.stderr, flush=True)


def _remark(result: Generation, attached: str) -> None:
    """A note on an answer that did not end by itself. `attached`: files that now wait for the next message."""
    if result.stop_reason == "cancelled":
        say(f"(stopped; {attached} still comes with your next message, unless /undo takes it back)" if attached else "(stopped)")
    elif result.stop_reason in CUT:
        thinking = " of thinking" if not result.text and result.thinking else ""
        n = result.stats.generated_tokens
        say(f"(cut after {n} token{'s' if n != 1 else ''}{thinking}: {CUT[result.stop_reason]})")
    elif not result.text:
        say("(the model thought, and ended without an answer)" if result.thinking else "(the model ended its answer at once)")


@contextlib.contextmanager
def on_ctrl_c(stop: Callable[[], None]) -> Iterator[Callable[[], int]]:
    """While the block runs, Ctrl-C calls `stop`; if the block does not end, a second one breaks it off. Gives how many."""
    pressed = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 1:
            raise KeyboardInterrupt
        stop()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: pressed
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, before)
