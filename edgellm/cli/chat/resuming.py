"""Which saved chat is gone on with, and the keeper that saves the one that begins."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple  # Any: options of load()

from edgellm.cli.terminal.filter import clean
from edgellm.cli.terminal.screen import columns
from edgellm.errors import OptionError, SessionError

PICKED = 20  # chats in a list to pick from

if TYPE_CHECKING:
    from edgellm.cli.chat.conversation import Dialogue
    from edgellm.cli.chat.session_store import SavedChat, SessionStore


class Before(NamedTuple):
    """A saved chat."""

    name: str
    record: SavedChat

    @property
    def load(self) -> Mapping[str, Any]:
        """Options of `load` with which its state fits the model."""
        return self.record.load


def saved(last: bool, name: str | None) -> Before | None:
    """The chat of --continue or --resume, None without either. Raises SessionError, OptionError."""
    from edgellm.cli.chat.session_store import SessionStore

    if not last and name is None:
        return None
    if last and name is not None:
        raise OptionError("--continue resumes the last chat and --resume the one that you name; give one of them")
    store = SessionStore()
    names = store.names()
    if not name and not names:
        raise SessionError("no chat was saved yet; start one with edgellm chat")
    name = _picked(store) if name == "" else name or names[0]
    return Before(name, store.read(name))


def saved_lines(store: SessionStore) -> list[str]:
    """The newest chats, numbered, with dates and first words, as wide as the terminal."""
    names, width, lines = store.names()[:PICKED], columns(sys.stderr), list[str]()
    widest = max(map(len, names), default=0)
    for number, name in enumerate(names, 1):
        with contextlib.suppress(SessionError):
            record = store.read(name)
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.updated))
            line = f"{number:>3}  {when}  {name:<{widest}}  {clean(record.title)}"
            lines.append(line if len(line) < width else line[: width - 4] + "...")
    return lines


def _picked(store: SessionStore) -> str:
    """The chat that the user picks from a list. Raises OptionError without a terminal."""
    names = store.names()[:PICKED]
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise OptionError(f"--resume: give a name, such as {names[0]}; edgellm sessions list shows them")
    for line in saved_lines(store):
        print(line, file=sys.stderr, flush=True)
    print("resume which (number or name)? ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    if answer.isdecimal() and 0 < int(answer) <= len(names):
        return names[int(answer) - 1]
    if not answer:
        raise OptionError("--resume: no chat was picked")
    return answer


@contextlib.contextmanager
def keeper(chat: Dialogue, before: Before | None, *, most: int) -> Iterator[None]:
    """While the block runs, a chat is saved; it begins where the one before stopped. Raises SessionError.

    `most`: bytes that the states of all sessions may take, 0 for a chat that is not saved.
    """
    from edgellm.cli.chat.conversation import Keeper
    from edgellm.cli.chat.session_store import SessionStore

    kept = Keeper(SessionStore(), most)
    if before is not None:
        kept.take(chat, before.name, before.record)
    if not most:
        kept.leave()
        yield
        return
    chat.keeper = kept
    try:
        yield
    finally:
        chat.keeper = None
        kept.close(chat)
