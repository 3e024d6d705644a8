"""The commands inside a chat: /help and its kin, one function each."""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from edgellm.cli.conversation import Conversation
from edgellm.cli.format_stats import summary
from edgellm.cli.output import say
from edgellm.errors import OptionError

Pieces = Iterator[str]
NUMBERS: dict[str, tuple[str, type[int] | type[float]]] = {      # name in /set: (generation option, type)
    "temp": ("temperature", float), "top-k": ("top_k", int), "top-p": ("top_p", float), "min-p": ("min_p", float),
    "seed": ("seed", int), "n": ("max_tokens", int),
}


class Leave(Exception):
    """The user wants to end the chat."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: what follows its name, what it does in a line, and the function; an answer to print comes back."""

    arguments: str
    help: str
    act: Callable[[Conversation, str], Pieces | None]


def carry_out(line: str, chat: Conversation) -> Pieces | None:
    """Do what a line that starts with "/" says. Returns an answer's pieces for /regen.

    Raises Leave for /exit, OptionError for what cannot be done.
    """
    name, _, rest = line[1:].strip().partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        raise OptionError(f"/{name} is no command: /help lists them; a space before the slash makes it text")
    return command.act(chat, rest.strip())


def _help(chat: Conversation, rest: str) -> None:
    for name, command in COMMANDS.items():
        _row(f"/{name} {command.arguments}".strip(), command.help)
    _row('"""', 'begins and ends a message of several lines; so does a backslash at a line\'s end, or Alt-Enter')
    _row("Ctrl-C", "stops an answer; twice at the prompt, or Ctrl-D, leaves")


def _leave(chat: Conversation, rest: str) -> None:
    raise Leave


def _clear(chat: Conversation, rest: str) -> None:
    chat.clear()
    say("forgotten: the next message starts afresh")


def _regenerate(chat: Conversation, rest: str) -> Pieces:
    return chat.again()


def _system(chat: Conversation, rest: str) -> None:
    if rest:
        chat.system = None if rest == '""' else rest
    say(f"system prompt: {chat.system}" if chat.system else "no system prompt; /system TEXT sets one")


def _set(chat: Conversation, rest: str) -> None:
    name, _, value = rest.partition(" ")
    if name:
        option, kind = NUMBERS.get(name.replace("_", "-"), ("", int))
        if not option:
            raise OptionError(f"/set {name}: there is {', '.join(NUMBERS)}")
        try:
            number = kind(value)
        except ValueError:
            raise OptionError(f"/set {name} {value}: give a number") from None
        unlimited = option == "max_tokens" and number < 0
        chat.settings = {**chat.settings, option: None if unlimited else number}
    for name, (option, _) in NUMBERS.items():
        value = chat.settings.get(option, "default")
        _row(name, "no limit" if value is None else str(value))


def _stats(chat: Conversation, rest: str) -> None:
    say(summary(chat.last) if chat.last else "nothing was answered yet")


COMMANDS = {
    "help": Command("", "list the commands", _help),
    "exit": Command("", "leave", _leave),
    "clear": Command("", "forget the conversation", _clear),
    "regen": Command("", "make the last answer again", _regenerate),
    "system": Command("[TEXT]", 'show or set the system prompt ("" for none)', _system),
    "set": Command("[NAME N]", f"show or set an option: {', '.join(NUMBERS)}", _set),
    "stats": Command("", "tokens and speed of the last answer", _stats),
}


def _row(name: str, text: str) -> None:
    """A line of a two-column list."""
    print(f"  {name:<16} {text}", file=sys.stderr, flush=True)
