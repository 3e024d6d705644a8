"""Saved chats in a folder: what was said in a small file of its own, and beside it the state that saves computing it again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any  # options of a model, of many types

from filelock import FileLock, Timeout

from edgellm.arguments import bytes_of
from edgellm.errors import SessionError
from edgellm.folders import SESSIONS, state_folder
from edgellm.formats.whole_file import write_whole

BUDGET = 4 << 30  # bytes, where the variable says nothing
TEXT, STATE, LOCK = ".json", ".state", ".lock"
VERSION = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
ROLES = ("system", "user", "assistant", "tool")
WORDS = 5  # of the first message, in a session's name


@dataclass(frozen=True, slots=True)
class SavedChat:
    """The messages of a saved chat, and its model. `load`: options of `edgellm.load` that its state depends on."""

    model: str  # a path or a name of the catalogue
    turns: tuple[Mapping[str, str], ...] = ()
    system: str | None = None
    load: Mapping[str, Any] = field(default_factory=dict)
    created: float = 0.0  # seconds since 1970
    updated: float = 0.0

    @property
    def title(self) -> str:
        """How it began."""
        return next((" ".join(turn["content"].split()) for turn in self.turns if turn["role"] == "user"), "")


def budget() -> int:
    """Bytes that states may take on the disk; 0: nothing is saved. Raises SessionError for a setting that says nothing."""
    text = os.environ.get(SESSIONS, "").strip()
    found = bytes_of(text)
    if text and found is None:
        raise SessionError(f"{SESSIONS}={text!r} is not a size; use off, or e.g. 500M or 4G.")
    return BUDGET if found is None else found


class SessionStore:
    """The sessions of a folder, by name. Several programs may use it: each keeps to the sessions that it has locked."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or state_folder() / "sessions"

    def text_path(self, name: str) -> Path:
        """Raises SessionError for a name that cannot be one."""
        if not NAME.fullmatch(name):
            raise SessionError(f"{name!r} cannot be a session's name; give letters, digits, '.', '_' and '-', 80 at most.")
        return self.folder / (name + TEXT)

    def state_path(self, name: str) -> Path:
        """Where the state of a session is, or would be."""
        return self.text_path(name).with_name(name + STATE)

    def names(self) -> list[str]:
        """Newest first."""
        found = []
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                if path.suffix == TEXT and NAME.fullmatch(path.stem):
                    with contextlib.suppress(OSError):
                        found.append((path.stat().st_mtime_ns, path.stem))
        return [name for _, name in sorted(found, reverse=True)]

    def state_bytes(self, name: str) -> int:
        """Length of a session's state; 0 where it has none."""
        try:
            return self.state_path(name).stat().st_size
        except OSError:
            return 0

    def read(self, name: str) -> SavedChat:
        """The messages. Raises SessionError where there is no such session, or its text is damaged."""
        path = self.text_path(name)
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError as error:
            there = ", ".join(self.names()[:5])
            raise SessionError(f"there is no session {name!r}; {f'saved: {there}' if there else 'none was saved yet'}") from error
        except (OSError, ValueError, RecursionError) as error:
            raise SessionError(f"{path}: cannot be read ({error}); delete it with edgellm sessions rm {name}.") from error
        checked = _record(found)
        if checked is None:
            raise SessionError(f"{path}: is damaged; delete it with edgellm sessions rm {name}.")
        return checked

    def write(self, name: str, record: SavedChat) -> None:
        """Save what was said: the old text or the new one is there, whatever happens. Raises OSError, Unwritable."""
        self._make()
        content = asdict(replace(record, updated=time.time()))
        body = {"version": VERSION, **content, "turns": [dict(turn) for turn in record.turns], "load": dict(record.load)}
        text = json.dumps({**body, "sha256": _digest(body)}, ensure_ascii=False, indent=1)
        write_whole(self.text_path(name), text.encode(errors="surrogatepass"))  # an argument's bytes may not be UTF-8
        _private(self.text_path(name))

    def remove(self, name: str) -> None:
        """Delete text and state. Raises SessionError: no such session, or it is open."""
        path = self.text_path(name)
        lock = self.lock(name)
        if lock is None:
            raise SessionError(f"the session {name!r} is open in another terminal; end that chat first.")
        with contextlib.closing(lock):
            if not path.exists():
                self.read(name)
            self.empty(name)

    def empty(self, name: str) -> None:
        """Delete text and state of a session that the caller has locked."""
        path = self.text_path(name)
        for suffix in (STATE, TEXT, STATE + ".part", TEXT + ".part"):
            with contextlib.suppress(OSError):
                path.with_name(name + suffix).unlink()

    def lock(self, name: str) -> LockedChat | None:
        """Take a session for this program, until it is closed or the program ends; None where another one has it."""
        self._make()
        held = FileLock(self.text_path(name).with_name(name + LOCK), timeout=0)
        try:
            held.acquire()
        except Timeout:
            return None
        return LockedChat(name, held, self.text_path(name))

    def claim(self, wanted: str) -> LockedChat:
        """A session that nobody has and that is not there yet: `wanted`, or that with a number behind it."""
        for k in range(1, 10_000):
            name = wanted if k == 1 else f"{wanted[:70]}-{k}"
            if not self.text_path(name).exists() and (held := self.lock(name)) is not None:
                if not self.text_path(name).exists():
                    return held
                held.close()
        raise SessionError(f"{self.folder} has too many sessions that begin like {wanted!r}; give another name.")

    def prune(self, most: int, keep: str = "") -> None:
        """Delete the states that were used longest ago until the others fit into `most` bytes. Texts stay."""
        found = []
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                if path.suffix == STATE:
                    with contextlib.suppress(OSError):
                        status = path.stat()
                        found.append((path.stem != keep, -status.st_mtime_ns, status.st_size, path))
        total = 0
        for others, _, size, path in sorted(found):
            total += size
            if others and total > most:
                with contextlib.suppress(OSError):
                    path.unlink()
                total -= size

    def _make(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)


class LockedChat:
    """A session that this program has to itself."""

    def __init__(self, name: str, lock: FileLock, text: Path) -> None:
        self.name, self._lock, self._text = name, lock, text

    def close(self) -> None:
        """Let others have it. Where nothing was saved, nothing is left."""
        if not self._text.exists():
            with contextlib.suppress(OSError):
                os.unlink(self._lock.lock_file)
        self._lock.release()


def name_of(text: str) -> str:
    """A session's name, of the first words that were said in it."""
    words = re.findall(r"[a-z0-9]+", text.lower())[:WORDS]
    return "-".join(words)[:50].strip("-") or time.strftime("chat-%Y-%m-%d")


def markdown(name: str, record: SavedChat) -> str:
    """A session as a page."""

    def parts() -> Iterator[str]:
        yield f"# {record.title or name}"
        yield f"{record.model}, {time.strftime('%Y-%m-%d %H:%M', time.localtime(record.updated))}"
        if record.system:
            yield f"> {record.system}".replace("\n", "\n> ")
        for turn in record.turns:
            yield f"## {turn['role'].capitalize()}"
            yield turn["content"].strip()

    return "\n\n".join(parts()) + "\n"


def as_json(name: str, record: SavedChat) -> str:
    """A session as JSON, in the form of chat messages."""
    system = [{"role": "system", "content": record.system}] if record.system else []
    return json.dumps(
        {
            "name": name,
            "model": record.model,
            "created": record.created,
            "updated": record.updated,
            "messages": [*system, *map(dict, record.turns)],
        },
        ensure_ascii=False,
        indent=2,
    )


def _record(found: Any) -> SavedChat | None:
    """A record from what a file says, None where that is damaged."""
    if (
        not isinstance(found, dict)
        or found.pop("version", None) != VERSION
        or found.pop("sha256", None) != _digest({"version": VERSION, **found})
    ):
        return None
    try:
        record = SavedChat(**{**found, "turns": tuple(found["turns"])})
    except (TypeError, KeyError):
        return None
    turns_whole = all(
        isinstance(turn, dict) and turn.get("role") in ROLES and isinstance(turn.get("content"), str) for turn in record.turns
    )
    dated = all(isinstance(moment, int | float) and 0 <= moment < 1 << 36 for moment in (record.created, record.updated))
    whole = turns_whole and dated and isinstance(record.model, str) and isinstance(record.load, dict)
    return record if whole and isinstance(record.system, str | None) else None


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _private(path: Path) -> None:
    """Nobody else may read what was said."""
    with contextlib.suppress(OSError):
        path.chmod(0o600)
