"""The commands inside a chat: /help and its kin, one function each."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgellm.cli.chat import session_commands, settings, typed_path
from edgellm.cli.chat.conversation import Dialogue
from edgellm.cli.terminal.format_stats import summary
from edgellm.cli.terminal.output import fitting, say
from edgellm.cli.terminal.screen import columns
from edgellm.errors import OptionError

if TYPE_CHECKING:
    from edgellm.api.records import Event

INDENT = 20  # columns of the names in a list
HELP = {  # topics beside the commands
    '"""': "begins and ends a multi-line message; a backslash at a line's end, or Alt-Enter, adds a line",
    "Tab": "completes commands, options, models and paths",
    "Ctrl-C": "stops an answer; twice at the prompt, or Ctrl-D, leaves",
}


class Leave(Exception):
    """The user wants to end the chat."""


class Switch(Exception):
    """The user wants to talk to another model."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True)
class Command:
    """One command: what follows its name, what it does in a line, and the function; an answer to print comes back."""

    arguments: str
    help: str
    act: Callable[[Dialogue, str], Iterator[Event] | None]


def carry_out(line: str, chat: Dialogue) -> Iterator[Event] | None:
    """Do what a line that starts with "/" says. Returns an answer's events for /regen.

    Raises Leave for /exit, Switch for /model, OptionError for what cannot be done.
    """
    name, _, rest = line[1:].strip().partition(" ")
    command = COMMANDS.get(ALIASES.get(name.lower(), name.lower()))
    if command is None:
        near = difflib.get_close_matches(name.lower(), [*COMMANDS, *ALIASES], n=1)
        hint = f"did you mean /{near[0]}? " if near else ""
        raise OptionError(f"/{name}: no such command; {hint}/help lists them, and a space before the slash makes it text")
    if rest.strip() and not command.arguments and command.act is not _leave:
        raise OptionError(f"/{name} takes no argument; leave out {rest.strip()[:40]!r}")
    return command.act(chat, rest.strip())


def is_command(text: str) -> bool:
    """True if a text is one line that begins with a command."""
    name = text[1:].split(" ", 1)[0].lower()
    return text.startswith("/") and "\n" not in text and (name in COMMANDS or name in ALIASES)


def _help(chat: Dialogue, rest: str) -> None:
    for name, command in COMMANDS.items():
        also = [f"/{alias}" for alias, meant in ALIASES.items() if meant == name and alias != "?"]
        _row(f"/{name} {command.arguments}".strip(), command.help + (f"; also {', '.join(also)}" if also else ""))
    for name, text in HELP.items():
        _row(name, text)
    say("Lines that you finish while an answer streams are sent after it, one by one.")


def _leave(chat: Dialogue, rest: str) -> None:
    raise Leave


def _clear(chat: Dialogue, rest: str) -> None:
    chat.clear()
    say("forgotten: the next message starts afresh")


def _regenerate(chat: Dialogue, rest: str) -> Iterator[Event]:
    return chat.again()


def _system(chat: Dialogue, rest: str) -> None:
    if rest:
        chat.system = None if rest == '""' else rest
    say(f"system prompt: {chat.system}" if chat.system else "no system prompt; /system TEXT sets one")
    if chat.system and "system" in chat.notes:
        say(chat.notes["system"])


def _set(chat: Dialogue, rest: str) -> None:
    name, _, value = rest.partition(" ")
    if value:
        settings.change(chat, name, value.strip())
    for each in [name] if name else settings.SETTINGS:
        _row(each, settings.shown(chat, each))


def _model(chat: Dialogue, rest: str) -> None:
    if rest:
        raise Switch(typed_path.meant(rest))
    say(f"{chat.model.info.path}; /model NAME switches to another one")


def _think(chat: Dialogue, rest: str) -> None:
    if rest:
        settings.change(chat, "think", rest)
    _row("think", settings.shown(chat, "think"))


def _stats(chat: Dialogue, rest: str) -> None:
    if chat.last is None:
        say("nothing was answered yet")
        return
    say(summary(chat.last))
    for name in settings.SAMPLING_NAMES:
        _row(name, settings.shown(chat, name) if name != "seed" else str(chat.last.seed))


def _context(chat: Dialogue, rest: str) -> None:
    from edgellm.cli.chat.context_view import lines

    width = columns(sys.stderr)
    for line in lines(chat, width):
        print(line if len(line) <= width else fitting(line), file=sys.stderr, flush=True)


COMMANDS = {
    "help": Command("", "list the commands", _help),
    "exit": Command("", "leave", _leave),
    "clear": Command("", "forget the conversation", _clear),
    "regen": Command("", "regenerate the last answer", _regenerate),
    "undo": Command("[N]", "remove the last question and its answer, or the last N; or a file not yet sent", session_commands.undo),
    "fork": Command("[NAME]", "continue in a copy of this chat; this one stays saved as it is", session_commands.fork),
    "file": Command("[PATH]", "attach a text file or a picture to the next message, or list those attached", session_commands.file),
    "save": Command("[NAME]", "save this chat now, or under a name", session_commands.save),
    "load": Command("[NAME]", "resume a saved chat", session_commands.load),
    "mcp": Command("[NAME [X=TEXT]]", "list MCP servers, attach a resource of one, or ask its prompt", session_commands.servers),
    "copy": Command("", "copy the last answer", session_commands.copy),
    "think": Command("[on|off]", "show or set whether the model thinks before it answers", _think),
    "system": Command("[TEXT]", 'show or set the system prompt ("" for none)', _system),
    "set": Command("[NAME [X]]", f"show or set an option, or its default: {', '.join(settings.SETTINGS)}", _set),
    "model": Command("[NAME]", "show the model, or switch to another one", _model),
    "context": Command("", "show what is in the context, and which messages have been dropped", _context),
    "stats": Command("", "tokens and speed of the last answer, its seed, and where sampling options come from", _stats),
}
ALIASES = {"quit": "exit", "bye": "exit", "?": "help"}


def _row(name: str, text: str) -> None:
    """A line of a two-column list; a name that is too long for its column has one of its own."""
    if len(name) > INDENT - 3:
        print(f"  {name}", file=sys.stderr, flush=True)
        name = ""
    print(fitting(f"  {name:<{INDENT - 3}} {text}", INDENT), file=sys.stderr, flush=True)
