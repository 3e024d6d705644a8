"""A chat that is saved by itself: what was said after each answer, its state beside it, and how both come back."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from edgellm.api.session_store import Held, Record, SessionStore, name_of
from edgellm.cli.options import typed
from edgellm.cli.terminal.output import Answer, say
from edgellm.errors import EdgeError, OptionError, SessionError

if TYPE_CHECKING:
    from edgellm.cli.chat.conversation import Conversation, Turns

STATE_SECONDS = 30.0  # at least between two states of a chat that goes on: they may be large


class Keeper:
    """The session that a chat is saved in. It has a name once something was said."""

    def __init__(self, store: SessionStore, most: int) -> None:
        """`most`: bytes that the states of all sessions may take."""
        self.store = store
        self._most = most
        self._held: Held | None = None
        self._created = time.time()
        self._text: Turns | None = None  # as they are in the file
        self._state: Turns | None = None
        self._state_time = -STATE_SECONDS
        self.trouble = ""  # what the last answer's saving met
        self._told = ""

    @property
    def name(self) -> str:
        """The session's name, "" where nothing was saved yet."""
        return self._held.name if self._held else ""

    def note(self, chat: Conversation) -> None:
        """An answer has ended; `tell` says what went wrong, once the answer stands on the screen."""
        self.trouble = self._saved(chat, state=time.monotonic() - self._state_time >= STATE_SECONDS)

    def taken_back(self, chat: Conversation) -> None:
        """The last exchange is gone: on the disk as well. Says what goes wrong."""
        self.trouble = self._saved(chat, state=False)
        self.tell()

    def tell(self) -> None:
        """Say what the last answer's saving met, unless it was said before."""
        if self.trouble and self.trouble != self._told:
            say(self.trouble)
        self._told = self.trouble

    def _saved(self, chat: Conversation, *, state: bool) -> str:
        """Write the text if it is new, and the `state`; what went wrong, "" if nothing did."""
        lost = "this chat is not saved"
        try:
            if chat.turns != (self._text or []):
                self._write(chat)
            lost = "the text is saved, but will be processed again when the chat is resumed"
            if state:
                self._write_state(chat)
        except (EdgeError, OSError) as error:
            return f"{lost}: {getattr(error, 'strerror', None) or error}"
        return ""

    def close(self, chat: Conversation, *, quiet: bool = False) -> None:
        """The chat ends: write what is not written yet, and say under which name unless `quiet`."""
        self.trouble = self._saved(chat, state=bool(chat.turns))
        if self.trouble:
            say(self.trouble)
        if self._text and self._text == chat.turns and self._held is not None and not quiet:
            say(f"saved as {self.name}; edgellm chat --continue resumes it")
        self.leave()

    def leave(self) -> None:
        """Let others have the session; what is said from now on is another one."""
        if self._held is not None:
            self._held.close()
        self._held, self._text, self._state, self._created = None, None, None, time.time()

    def save_as(self, chat: Conversation, name: str) -> None:
        """Save at once; with a name, under that one from now on. Raises SessionError, Unwritable, OSError."""
        if not chat.turns:
            raise OptionError("/save: nothing was said yet")
        if name and name != self.name:
            if self.store.text_path(name).exists():
                raise SessionError(f"there is a session {name} already; choose another name, or /load {name}")
            held = self.store.claim(name)
            try:
                self.store.write(held.name, _record(chat, time.time()))
            except BaseException:  # the chat stays what it was
                held.close()
                raise
            self.leave()
            self._held, self._text = held, list(chat.turns)
        else:
            self._write(chat)
        self._write_state(chat)

    def fork(self, chat: Conversation, name: str) -> None:
        """Save, and go on as another session. Raises SessionError, Unwritable, OSError."""
        self._write(chat)
        held = self.store.claim(name or self.name)
        self.close(chat, quiet=True)
        self._held = held
        self._write(chat)

    def take(self, chat: Conversation, name: str, record: Record) -> None:
        """Go on with a saved session: its text, and its state where that fits the model."""
        self.leave()
        chat.turns, chat.system, chat.last, chat.full = [dict(turn) for turn in record.turns], record.system, None, False
        chat.drop_session()
        self._held = self.store.lock(name)
        if self._held is None:
            self._held = self.store.claim(name)
            say(f"{name} is open in another terminal, so this chat continues as {self.name}")
        else:
            self._text = list(chat.turns)
        self._created = record.created or self._created
        say(f"resumed {name} ({len(chat.turns)} messages). {self._revive(chat, name, record)}")
        _show_last(chat)

    def _revive(self, chat: Conversation, name: str, record: Record) -> str:
        """Read the state; a sentence that says whether the text has to be processed again, and why."""
        path = self.store.state_path(name)
        if not path.exists():
            return "Its KV cache is not on the disk, so the text is processed again."
        try:
            chat.session = chat.model.resume(path)
        except SessionError:
            return f"Its KV cache {_mismatch(chat, record)}, so the text is processed again."
        with contextlib.suppress(OSError):
            os.utime(path)  # it was used: others go first
        self._state = list(chat.turns) if name == self.name else None
        return f"Its {chat.session.n_tokens:,} tokens are cached."

    def _write(self, chat: Conversation) -> None:
        if not chat.turns:  # all was taken back
            if self._held is not None:
                self.store.empty(self._held.name)
            self._text = self._state = None
            return
        if self._held is None:
            self._held = self.store.claim(name_of(chat.turns[0]["content"]))
        self.store.write(self._held.name, _record(chat, self._created))
        self._text = list(chat.turns)

    def _write_state(self, chat: Conversation) -> None:
        if chat.session is None or self._state == chat.turns or self._held is None:
            return
        chat.session.save(self.store.state_path(self._held.name), sync=False)
        self._state, self._state_time = list(chat.turns), time.monotonic()
        self.store.prune(self._most, keep=self._held.name)


def _mismatch(chat: Conversation, record: Record) -> str:
    """Why a saved state does not suit the model as it is loaded."""
    if chat.called and record.model != chat.called:
        return f"belongs to {Path(record.model).name}"
    now = _record(chat, 0).load
    other = [typed(name, now[name]) for name in now if name in record.load and record.load[name] != now[name]]
    return f"doesn't match {' '.join(other)}" if other else "is damaged, or of another version of the model"


def _show_last(chat: Conversation) -> None:
    """The last exchange, as it stood on the terminal."""
    if len(chat.turns) < 2 or not sys.stdout.isatty():
        return
    question, answer = chat.turns[-2:]
    say(f"> {question.get('asked', question['content'])}")
    shown = Answer(reply=True, plain=chat.plain)
    shown.write(answer["content"])
    shown.end()


def _record(chat: Conversation, created: float) -> Record:
    info = chat.model.info
    load = {"backend": info.backend, "context": info.context, "sinks": info.sinks, "kv_type": info.kv_type}
    load |= {"pinned": info.pinned} if info.pinned > info.sinks else {}
    return Record(chat.called, tuple(chat.turns), chat.system, load, created)
