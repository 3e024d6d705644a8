"""Which saved chat is gone on with, and the keeper that saves the one that begins."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple  # Any: options of load()

from edgellm.errors import OptionError, SessionError

if TYPE_CHECKING:
    from edgellm.api.session_store import Record
    from edgellm.cli.chat.conversation import Conversation


class Before(NamedTuple):
    """A saved chat."""

    name: str
    record: Record

    @property
    def load(self) -> Mapping[str, Any]:
        """Options of `load` with which its state fits the model."""
        return self.record.load


def saved(last: bool, name: str | None) -> Before | None:
    """The chat of --continue or --resume, None without either. Raises SessionError, OptionError."""
    from edgellm.api.session_store import SessionStore

    if not last and name is None:
        return None
    if last and name is not None:
        raise OptionError("--continue goes on with the last chat and --resume with the one that you name; give one of them")
    store = SessionStore()
    names = store.names()
    if name is None and not names:
        raise SessionError("no chat was saved yet; start one with edgellm chat")
    name = name or names[0]
    return Before(name, store.read(name))


@contextlib.contextmanager
def keeper(chat: Conversation, before: Before | None, *, most: int) -> Iterator[None]:
    """While the block runs, a chat is saved; it begins where the one before stopped. Raises SessionError.

    `most`: bytes that the states of all sessions may take, 0 for a chat that is not saved.
    """
    from edgellm.api.session_store import SessionStore
    from edgellm.cli.chat.keeping import Keeper

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
