"""The turns of one chat: asked, answered, undone, and saved in a session on the disk."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from edgellm.api.records import Event
from edgellm.cli.chat.session_store import LockedChat, SavedChat, SessionStore, name_of
from edgellm.cli.options import typed
from edgellm.cli.terminal.output import AnswerPrinter, say
from edgellm.errors import ContextFull, EdgeError, OptionError, SessionError
from edgellm.options.table import TABLE

if TYPE_CHECKING:
    from edgellm.api.generation_options import PromptProgress
    from edgellm.api.model import Model, Session
    from edgellm.api.records import Generation
    from edgellm.api.stream import Stream
    from edgellm.cli.chat.mcp_tools import ChatServers
    from edgellm.sampling import ResolvedOptions, SamplingKeywords

Settings = dict[str, Any]  # Any: options of Model.chat, of many types
Messages = list[dict[str, str]]
STATE_SECONDS = 30.0  # at least between two saved states of a chat: they may be large
NGRAM = "ngram"  # the draft that needs no model
CLIP_SUFFIXES = (".wav", ".flac", ".mp3", ".ogg")  # of files that come as audio


class Dialogue:
    """Holds what was said and streams the next answer.

    `chosen` are the user's options, `recommended` those that hold where the user has none; `last` is the last answer's Generation.
    `full`: the context has begun to lose what was said first. `progress` is called as the prompt is read. `refuse` may answer a
    message in the model's place.
    """

    def __init__(self, model: Model, chosen: Settings, system: str | None = None, recommended: Settings | None = None) -> None:
        self.model, self.chosen, self.system, self.recommended = model, chosen, system, recommended or {}
        self.turns: Messages = []
        self.last: Generation | None = None
        self.full = False
        self.notes: Mapping[str, str] = {}  # what is worth knowing of this model about "system" prompts and "files"
        self.progress: PromptProgress | None = None
        self.refuse: Callable[[str], str | None] = lambda text: None
        self.called = ""  # the name or path by which the model was opened
        self.keeper: Keeper | None = None  # None: nothing is saved
        self.session: Session | None = None  # what holds the computed conversation
        self.plain = False  # Markdown is shown as it is written
        self.servers: ChatServers | None = None  # of MCP
        self._stream: Stream | None = None
        self._files: list[tuple[str, str]] = []  # that come with the next message: their names and texts
        self.pictures: list[str] = []  # that come with it: their paths

    @property
    def settings(self) -> Settings:
        """The options for the next answer."""
        return {**self.recommended, **self.chosen}

    def sampling(self) -> ResolvedOptions:
        """The sampling options that hold, those of the model and the library included."""
        return self.model.sampling_options(**_sampling(self.settings))

    def check(self, option: str, value: object) -> None:
        """Raises OptionError where the next answer could not have this option."""
        if option == "think":
            from edgellm.chat import switch

            switch(self.model.thinking, cast(bool, value))
        elif option == "draft":
            if value != NGRAM:
                self.model.load_draft(cast(str, value))
        elif TABLE[option].part == "sampling":
            self.model.sampling_options(**_sampling({option: value}))

    def ask(self, text: str) -> Iterator[Event]:
        """The answer to `text`. Stopped early, the part that was said counts as the answer.

        Raises ContextFull where the message alone is too long for a context that may not slide.
        """
        turns, files, pictures = [*self.turns, self._with_files(text)], list(self._files), list(self.pictures)
        if (refusal := self.refuse(text)) is not None:
            self.turns, self.last, self._files = [*turns, {"role": "assistant", "content": refusal}], None, []
            self.pictures = []
            return iter([Event("text", refusal)])
        return self._answer(turns, files, pictures)

    def attach(self, name: str, text: str) -> None:
        """Let a document come with the next message that is answered."""
        self._files.append((name, text))

    @property
    def files(self) -> Sequence[tuple[str, str]]:
        """The files that come with the next message: their names and texts."""
        return self._files

    @property
    def attached(self) -> str:
        """The names of the files that come with the next message."""
        return ", ".join((*(name for name, _ in self._files), *map(os.path.basename, self.pictures)))

    def _with_files(self, text: str) -> dict[str, str]:
        if not self.attached:
            return {"role": "user", "content": text}
        documents = "".join(f"{name}:\n\n{document.strip()}\n\n" for name, document in self._files)
        turn = {"role": "user", "content": documents + text, "files": self.attached, "asked": text}
        return turn | ({"images": "\n".join(self.pictures)} if self.pictures else {})

    def _drop(self, files: Sequence[tuple[str, str]], pictures: Sequence[str]) -> None:
        """They do not come with the next message."""
        self._files = [file for file in self._files if file not in files]
        self.pictures = [picture for picture in self.pictures if picture not in pictures]

    def again(self) -> Iterator[Event]:
        """Another answer to the last question. Raises OptionError when nothing was asked."""
        if not self.turns:
            raise OptionError("/regen: there is no answer yet to make again")
        return self._answer(self.turns[:-1])

    def stop(self) -> None:
        """End the answer that is being streamed, from wherever; its iterator then ends."""
        if self._stream is not None:
            self._stream.close()

    def clear(self) -> None:
        """Forget all turns; the system prompt stays."""
        self.turns, self.last, self.full = [], None, False
        if self.keeper is not None:
            self.keeper.leave()

    def undo(self) -> str:
        """Take files back that wait for the next message, else the last question and its answer; what that was. Raises OptionError
        where there is nothing.
        """
        if names := self.attached:
            self._files, self.pictures = [], []
            return names
        asked = [k for k, turn in enumerate(self.turns) if turn["role"] == "user"]
        if not asked:
            raise OptionError("/undo: nothing was said yet")
        turn = self.turns[asked[-1]]
        self.turns, self.last = self.turns[: asked[-1]], None
        return f"{turn['asked']} (with {turn['files']})" if "asked" in turn else turn["content"]

    def drop_session(self) -> None:
        """Go on without what was computed: another model, or another conversation."""
        if self.session is not None:
            self.session.close()
        self.session = None

    @property
    def policy(self) -> str:
        """The policy for a full context: the user's choice, else turns are dropped where the context cannot slide."""
        usual = "ring" if self.model.info.slides else "drop-oldest-turns"
        return str(self.settings.get("context_policy") or usual)

    def messages(self, turns: Messages | None = None) -> list[dict[str, Any]]:
        """The messages for the model: the system prompt, then the turns; documents are pinned."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *(_message(turn) for turn in (self.turns if turns is None else turns))]

    def prompt(self) -> list[int]:
        """The token ids of the messages so far; many templates refuse a system prompt alone."""
        if not self.turns:
            return []
        tools = self.servers.options_for(self.model).get("tools") if self.servers else None
        return list(self.model.chat_prompt(self.messages(), tools=tools))

    def _answer(self, turns: Messages, files: Sequence[tuple[str, str]] = (), pictures: Sequence[str] = ()) -> Iterator[Event]:
        """`files` and `pictures` have come with the last turn once something is said to it."""
        try:
            self._stream = stream = self._chat(turns)
        except ContextFull as error:
            if not files and not pictures:
                raise
            self._drop(files, pictures)
            raise ContextFull(f"{error} The next message comes without {turns[-1]['files']}.") from error
        try:
            yield from stream.events()
        finally:
            stream.close()
            self._stream, self.last = None, stream.result
            if said := stream.result.text:  # otherwise the turns stay as they were
                stats = stream.result.stats
                self.full = self.full or stats.evicted_tokens > 0 or bool(stats.forgotten_messages)
                self.turns = [*turns, {"role": "assistant", "content": said}]
                self._drop(files, pictures)
                if self.keeper is not None:
                    self.keeper.note(self)

    def _chat(self, turns: Messages) -> Stream:
        settings = self.settings if self.policy == "ring" else {**self.settings, "context_policy": self.policy}
        self.session = self.session or self.model.session()
        options: Settings = {**settings, **(self.servers.options_for(self.model) if self.servers else {})}
        stream: Stream = self.session.chat(self.messages(turns), stream=True, progress=self.progress, **options)
        return stream


def _message(turn: dict[str, str]) -> dict[str, Any]:
    if "files" not in turn:
        return turn
    content: Any = turn["content"]
    if "images" in turn:
        paths = turn["images"].split("\n")
        content = [_part(path) if os.path.exists(path) else _gone(path) for path in paths]
        content.append({"type": "text", "text": turn["content"]})
    pinned = {"pinned": True} if turn["content"] != turn["asked"] else {}  # a document came with it
    return {"role": turn["role"], "content": content, **pinned}


def _part(path: str) -> dict[str, str]:
    kind = "audio" if path.lower().endswith(CLIP_SUFFIXES) else "image"
    return {"type": kind, kind: path}


def _gone(path: str) -> dict[str, str]:
    """A placeholder for a picture of a saved chat that is no longer on the disk."""
    return {"type": "text", "text": f"({os.path.basename(path)}, a picture that is gone)\n"}


def text_of(message: dict[str, Any]) -> str:
    """The text of a message that may have pictures."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "[picture] ") for part in content)


def _sampling(settings: Settings) -> SamplingKeywords:
    return cast("SamplingKeywords", {name: value for name, value in settings.items() if TABLE[name].part == "sampling"})


class Keeper:
    """The session that a chat is saved in. It has a name once something was said."""

    def __init__(self, store: SessionStore, most: int) -> None:
        """`most`: bytes that the states of all sessions may take."""
        self.store = store
        self._most = most
        self._held: LockedChat | None = None
        self._created = time.time()
        self._text: Messages | None = None  # as they are in the file
        self._state: Messages | None = None
        self._state_time = -STATE_SECONDS
        self.trouble = ""  # what the last answer's saving met
        self._reported = ""

    @property
    def name(self) -> str:
        """The session's name, "" where nothing was saved yet."""
        return self._held.name if self._held else ""

    def note(self, chat: Dialogue) -> None:
        """An answer has ended; `tell` says what went wrong, once the answer stands on the screen."""
        self.trouble = self._saved(chat, state=time.monotonic() - self._state_time >= STATE_SECONDS)

    def taken_back(self, chat: Dialogue) -> None:
        """Delete the last exchange in the session and on the disk as well, and report a failure."""
        if chat.session is not None:
            chat.session.truncate(chat.prompt())
        elif self._held is not None:
            with contextlib.suppress(OSError):
                self.store.state_path(self.name).unlink(missing_ok=True)
        self.trouble = self._saved(chat, state=bool(chat.turns) and self._state is not None)
        self.report()

    def report(self) -> None:
        """Print why the last answer could not be saved, once."""
        if self.trouble and self.trouble != self._reported:
            say(self.trouble)
        self._reported = self.trouble

    def _saved(self, chat: Dialogue, *, state: bool) -> str:
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

    def close(self, chat: Dialogue, *, quiet: bool = False) -> None:
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

    def save_as(self, chat: Dialogue, name: str) -> str:
        """Save at once; with a name, under that one from now on. Returns why the state could not be saved, "" if it was.

        Raises SessionError, Unwritable, OSError; the chat then stays what it was.
        """
        if not chat.turns:
            raise OptionError("/save: nothing was said yet")
        if name and name != self.name:
            if self.store.text_path(name).exists():
                raise SessionError(f"there is a session {name} already; choose another name, or /load {name}")
            held = self._claimed(chat, name)
            self.leave()
            self._held, self._text = held, list(chat.turns)
        else:
            self._write(chat)
        return self._saved(chat, state=True)

    def fork(self, chat: Dialogue, name: str) -> None:
        """Save, and continue as another session. Raises SessionError, Unwritable, OSError; the chat then stays what it was."""
        self._write(chat)
        held = self._claimed(chat, name or self.name)
        self.close(chat, quiet=True)
        self._held, self._text = held, list(chat.turns)

    def _claimed(self, chat: Dialogue, name: str) -> LockedChat:
        """A new session with the chat's text. Raises SessionError, Unwritable, OSError."""
        held = self.store.claim(name)
        try:
            self.store.write(held.name, _record(chat, time.time()))
        except BaseException:
            held.close()
            raise
        return held

    def take(self, chat: Dialogue, name: str, record: SavedChat) -> None:
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

    def _revive(self, chat: Dialogue, name: str, record: SavedChat) -> str:
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

    def _write(self, chat: Dialogue) -> None:
        if not chat.turns:  # all was taken back
            if self._held is not None:
                self.store.empty(self._held.name)
            self._text = self._state = None
            return
        if self._held is None:
            self._held = self.store.claim(name_of(chat.turns[0]["content"]))
        self.store.write(self._held.name, _record(chat, self._created))
        self._text = list(chat.turns)

    def _write_state(self, chat: Dialogue) -> None:
        if chat.session is None or self._state == chat.turns or self._held is None:
            return
        chat.session.save(self.store.state_path(self._held.name), sync=False)
        self._state, self._state_time = list(chat.turns), time.monotonic()
        self.store.prune(self._most, keep=self._held.name)


def _mismatch(chat: Dialogue, record: SavedChat) -> str:
    """Why a saved state does not suit the model as it is loaded."""
    if chat.called and record.model != chat.called:
        return f"belongs to {Path(record.model).name}"
    now = _record(chat, 0).load
    other = [typed(name, now[name]) for name in now if name in record.load and record.load[name] != now[name]]
    return f"doesn't match {' '.join(other)}" if other else "is damaged, or of another version of the model"


def _show_last(chat: Dialogue) -> None:
    """The last exchange, as it stood on the terminal."""
    if len(chat.turns) < 2 or not sys.stdout.isatty():
        return
    question, answer = chat.turns[-2:]
    say(f"> {question.get('asked', question['content'])}")
    shown = AnswerPrinter(reply=True, plain=chat.plain)
    shown.write(answer["content"])
    shown.end()


def _record(chat: Dialogue, created: float) -> SavedChat:
    info = chat.model.info
    load = {"backend": info.backend, "context": info.context, "sinks": info.sinks, "kv_type": info.kv_type}
    load |= {"pinned": info.pinned} if info.pinned > info.sinks else {}
    return SavedChat(chat.called, tuple(chat.turns), chat.system, load, created)
