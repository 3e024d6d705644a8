"""The state store: beginnings of prompts on the disk, so that neither a full memory nor a restart computes them again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any  # Any: values of JSON

import numpy as np

from edgellm.backends.base import Executable
from edgellm.catalogue.machine import memory
from edgellm.engine import saved_pages
from edgellm.engine.conversation import Conversation
from edgellm.engine.prompts import TokenIds
from edgellm.engine.saved_pages import Chunk
from edgellm.errors import BackendError, SessionError
from edgellm.folders import is_private, user_cache
from edgellm.formats.errors import FormatError
from edgellm.formats.whole_file import PART
from edgellm.memory.sequence import Sequence

LEAST = 256  # tokens: fewer are computed before a file is worth its place
GROWTH = 64  # a prefix is saved again once it has grown by one part in so many
MOST_FILES = 64  # of a model
MOST_PARTS = 16  # other files that one needs; then it is written without them
SPARE = 2  # a file is written only where the disk has so many times its length
UNPROVEN = 30.0  # seconds
CLOSING = 1.0  # seconds that closing waits for what is still to be saved
LAST = 16  # tokens: when closing, fewer are not worth a file, which has the new pages alone
AHEAD = 4  # the state that was used last is read ahead where so many of its size are free
SUFFIX = ".state"


class StateStore:
    """Saved states of one model, found by the tokens that they begin with; the oldest go where all take more than the budget.

    Files are those of sessions: checksummed, written atomically, and in a folder that nobody else may open. Conversations with
    images are left out. One thread writes, from forks, while the engine computes.
    """

    def __init__(
        self, executable: Executable, budget: int, facts: Mapping[str, Any], n_vocab: int, folder: Path | None = None
    ) -> None:
        """`budget`: bytes that all files may take. `facts`: what must be the same where a state is used."""
        self._executable, self._budget, self._facts, self._n_vocab = executable, budget, dict(facts), n_vocab
        self._folder = folder or user_cache() / "prefixes"
        named = {fact: value for fact, value in facts.items() if fact != "context"}  # others are read where their tokens fit
        self._stem = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]
        self._lock = threading.RLock()  # of all below; files are read and written without it
        self._loading = threading.Lock()  # one file at a time: requests that wait for it find the conversation of the first
        self._saved: OrderedDict[str, Sequence] | None = None  # by file name, the least recently used first; None: not looked yet
        self._chunks = dict[str, list[Chunk]]()  # by file name
        self._recalled = weakref.WeakValueDictionary[str, Conversation]()
        self._ahead: Conversation | None = None  # read before a request asks for it
        self._waiting: Conversation | None = None  # to be written next
        self._writer: threading.Thread | None = None
        self._unproven = -UNPROVEN  # when the last one was saved that no request had used again
        self._off = self._closed = False

    # --- reading -----------------------------------------------------------------------------------------------------------
    def length(self, ids: TokenIds, kept: int | None) -> int:
        """How many of the first tokens a file has."""
        with self._lock:
            return self._best(ids, kept)[1]

    def read_ahead(self) -> None:
        """Read the state that was used last, in a thread: the first request after a restart mostly continues it."""
        threading.Thread(target=self._read_ahead, name="edgellm-prefixes", daemon=True).start()

    def _read_ahead(self) -> None:
        with self._loading:
            with self._lock:
                parts = {each for name in self._all() for each in self._needed(name)}  # newer than what needs them
                name = next((each for each in reversed(self._all()) if each not in parts), "")
                size = sum(chunk.length for chunk in self._chunks.get(name, ()))
            if not name or self._closed or AHEAD * size > memory().available:
                return
            with contextlib.suppress(SessionError, MemoryError):  # a request that needs it deals with these
                self._ahead = self._recalled[name] = saved_pages.load(
                    self._folder / name, self._executable, self._facts, self._n_vocab
                )

    def recall(self, ids: TokenIds, kept: int | None) -> Conversation | None:
        """The conversation that has most of the first tokens. Damaged files are deleted."""
        with self._loading:
            while True:
                with self._lock:
                    name, length = self._best(ids, kept)
                    known = self._recalled.get(name)
                if not length:
                    return None
                self._ahead = None  # `known` keeps it where it is the one
                if known is not None and known.useful(ids, kept) >= length:
                    return known
                try:
                    found = saved_pages.load(self._folder / name, self._executable, self._facts, self._n_vocab)
                    break
                except SessionError:
                    self._drop(name)
                except MemoryError:
                    return None
            with self._lock:
                self._recalled[name] = found
            self._used(name)
            return found

    def _used(self, name: str) -> None:
        """The file was used, and those that it needs: they are newer than it, so that it goes first."""
        now = time.time_ns()
        with self._lock:
            for n, each in enumerate((name, *self._needed(name))):
                if each in self._all():
                    self._all().move_to_end(each)
                with contextlib.suppress(OSError):
                    os.utime(self._folder / each, ns=(now + n * 10**6, now + n * 10**6))

    def _needed(self, name: str) -> list[str]:
        """The other files that have pages of a file."""
        return sorted({chunk.file for chunk in self._chunks.get(name, ())} - {name})

    def _best(self, ids: TokenIds, kept: int | None) -> tuple[str, int]:
        """The file with most of the first tokens, and how many they are."""
        found = ((name, sequence.useful(ids, kept)) for name, sequence in self._all().items())
        return max(found, key=lambda each: each[1], default=("", 0))

    def _all(self) -> OrderedDict[str, Sequence]:
        """The tokens in this model's files."""
        if self._saved is None:
            self._saved = OrderedDict()
            for path in self._listed()[-MOST_FILES:]:
                if path.name.startswith(self._stem):
                    with contextlib.suppress(SessionError):
                        layout, name = self._executable.layout, path.name
                        self._saved[name], self._chunks[name] = saved_pages.head(path, layout, self._facts, self._n_vocab)
        return self._saved

    def _listed(self) -> list[Path]:
        """All files, of other models too, the least recently used first; what a run that ended left half is deleted."""
        found = list[tuple[int, Path]]()
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                with contextlib.suppress(OSError):
                    written = path.stat().st_mtime_ns
                    if path.suffix == SUFFIX:
                        found.append((written, path))
                    elif path.suffix == PART and time.time_ns() - written > 3600 * 10**9:
                        path.unlink()
        return [path for _, path in sorted(found)]

    def _drop(self, name: str) -> None:
        """Delete a file, and those that need it."""
        with self._lock:
            names = {name}
            while more := {other for other in self._chunks if not names.isdisjoint(self._needed(other))} - names:
                names |= more
            for each in names:
                self._chunks.pop(each, None)
                if self._saved is not None:
                    self._saved.pop(each, None)
        for each in names:
            with contextlib.suppress(OSError):
                (self._folder / each).unlink()

    # --- writing -----------------------------------------------------------------------------------------------------------
    def offer(self, conversation: Conversation, *, last: bool = False) -> None:
        """Save a conversation if that is worth it; `last`: it is about to be forgotten. The driver calls this between two steps.

        Beginnings that later requests have used again are saved; of others one in `UNPROVEN` seconds, for most never come again.
        """
        new = self._new(conversation)
        if new < (LEAST if last else max(LEAST, len(conversation) // GROWTH)) or (self._waiting is not None and not last):
            return
        if conversation.reused - (len(conversation) - new) < LEAST:
            now = time.monotonic()
            if now - self._unproven < UNPROVEN:
                return
            self._unproven = now
        self._write_next(conversation)

    def _new(self, conversation: Conversation) -> int:
        """Tokens that no file has; 0 for a conversation that cannot be saved."""
        if self._off or self._closed or conversation.adapters or len(conversation) < LEAST:
            return 0
        ids = np.frombuffer(conversation.sequence.ids[:], np.int32)
        if len(ids) > self._executable.layout.context:
            return 0
        with self._lock:
            return len(ids) - max((each.useful(ids, last=True) for each in self._all().values()), default=0)

    def _write_next(self, conversation: Conversation) -> None:
        with self._lock:
            self._waiting = conversation.fork()
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_all, name="edgellm-prefixes", daemon=True)
                self._writer.start()

    def close(self, idle: Iterable[Conversation]) -> None:
        """Save what is not saved yet, the newest first, as far as that takes `CLOSING` seconds at most."""
        until = time.monotonic() + CLOSING
        for conversation in sorted(idle, key=lambda one: -one.used):
            if time.monotonic() < until and self._new(conversation) >= LAST:
                self._write_next(conversation)
            while (writer := self._writer) is not None and time.monotonic() < until:
                writer.join(0.01)
        with self._loading:
            self._closed, self._ahead = True, None

    def _write_all(self) -> None:
        while True:
            with self._lock:
                conversation, self._waiting = self._waiting, None
                if conversation is None:
                    self._writer = None
                    return
            try:
                self._write(conversation)
            except BackendError:  # one that cannot
                self._off = True
            except (OSError, FormatError):  # a full disk, or another process writes the same file
                pass
            del conversation

    def _write(self, conversation: Conversation) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        needed = conversation.state.nbytes
        if not is_private(self._folder) or needed > self._budget or SPARE * needed > shutil.disk_usage(self._folder).free:
            return
        self._ahead = None
        sequence = conversation.sequence
        name = f"{self._stem}-{hashlib.sha256(sequence.ids.tobytes()).hexdigest()[:16]}{SUFFIX}"
        chunks = saved_pages.save(self._folder / name, conversation, self._facts, self._shareable(sequence, name))
        with self._lock:
            known, ids = self._all(), np.frombuffer(sequence.ids[:], np.int32)
            known[name], self._chunks[name] = sequence, chunks
            shorter = {
                other
                for other, each in known.items()
                if other != name and each.common_prefix(ids) == len(each) and sequence.can_truncate(len(each))
            }
            while parts := {each for other in known if other not in shorter for each in self._needed(other)} & shorter:
                shorter -= parts
            self._used(name)
            others = [other for other in known if other not in shorter]
        for other in (*shorter, *others[: max(0, len(others) - MOST_FILES)]):
            self._drop(other)
        self._prune(name)

    def _shareable(self, sequence: Sequence, name: str) -> dict[str, Chunk]:
        """Chunks of other files that a new one need not have, by their digests: none where it would need too many files."""
        ids, found = np.frombuffer(sequence.ids[:], np.int32), dict[str, Chunk]()
        with self._lock:
            alike = [other for other, each in self._all().items() if other != name and each.common_prefix(ids) >= LEAST]
            for other in alike:
                found.update((chunk.digest, chunk) for chunk in self._chunks[other])
        files = {chunk.file for chunk in found.values()}
        there = {each for each in files if (self._folder / each).exists()}
        return {digest: chunk for digest, chunk in found.items() if chunk.file in there} if len(files) < MOST_PARTS else {}

    def _prune(self, keep: str) -> None:
        """Delete the files that were used longest ago until the others fit into the budget."""
        total = 0
        for path in reversed(self._listed()):
            with contextlib.suppress(OSError):
                total += path.stat().st_size
            if total > self._budget and path.name != keep:
                self._drop(path.name)
