"""Saved conversations that share pages: a file has those that no other file has, and says where the rest is."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple  # Any: values of JSON; buffers

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import Executable
from edgellm.engine.conversation import Conversation
from edgellm.engine.saved_session import DIGEST, HEAD, SavedFile, header_of, mapped
from edgellm.formats.whole_file import WholeFile
from edgellm.memory.layout import MemoryLayout
from edgellm.memory.sequence import Sequence

MAGIC, VERSION = b"EDGEPAGE", 1
LEAST_SHARED = 4096  # bytes: shorter writes belong to the file itself
HASHING = 2  # threads
PLAIN = re.compile(r"(?!\.)[A-Za-z0-9_.-]*")  # names of files in the same folder


class Chunk(NamedTuple):
    """Bytes of a state: their digest, where they are, and how many. `file`: "" for the file itself."""

    digest: str
    file: str
    offset: int
    length: int


class _Collected:
    """A state's bytes as it writes them: each page as it is, what is between pages together."""

    def __init__(self) -> None:
        self.parts: list[memoryview] = []
        self._small = bytearray()

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if len(view) < LEAST_SHARED:
            self._small += view
        else:
            self.end()
            self.parts.append(view)
        return len(view)

    def end(self) -> None:
        if self._small:
            self.parts.append(memoryview(bytes(self._small)))
            self._small.clear()


def save(path: Path, conversation: Conversation, facts: dict[str, Any], known: Mapping[str, Chunk]) -> list[Chunk]:
    """Write a conversation, but for the chunks that other files of the folder have, `known` by their digests. Returns all chunks.

    The file is complete under its name, or absent. A power failure may damage it, which is found when it is read. Raises what
    `saved_session.save` raises.
    """
    sequence, collected = conversation.sequence, _Collected()
    target: Any = collected
    conversation.state.save(target)
    collected.end()
    header, ids = header_of(sequence, facts), sequence.ids.tobytes()
    chunks, own, at = list[Chunk](), list[memoryview](), 0
    for part in collected.parts:
        digest = hashlib.sha256(part).hexdigest()
        if len(part) >= LEAST_SHARED and (there := known.get(digest)) is not None and there.length == len(part):
            chunks.append(there)
        else:
            chunks.append(Chunk(digest, "", at, len(part)))
            own.append(part)
            at += len(part)
    table = json.dumps(chunks).encode()
    head = HEAD.pack(MAGIC, VERSION, len(header), len(ids), len(table)) + header + ids + table
    file = WholeFile(path)
    try:
        for data in (head, hashlib.sha256(head).digest(), *own):
            file.write(data)
        file.publish(sync=False)
    finally:
        file.discard()
    return _placed(chunks, path.name, len(head) + DIGEST)


def head(path: Path, layout: MemoryLayout, facts: dict[str, Any], n_vocab: int) -> tuple[Sequence, list[Chunk]]:
    """The tokens that a file of `save` has, and its chunks, whose digests are compared by `load`. Raises SessionError."""
    with mapped(path) as (view, name):
        reading = _SavedPages(view, name)
        return reading.sequence(layout, facts, n_vocab), reading.chunks()


def load(path: Path, executable: Executable, facts: dict[str, Any], n_vocab: int) -> Conversation:
    """The conversation that `save` wrote for the same model. Raises SessionError for any other file, or where one is missing."""
    with mapped(path) as (view, name), ThreadPoolExecutor(HASHING) as pool:
        return _SavedPages(view, name).loaded(executable, facts, n_vocab, pool)


def _placed(chunks: Iterable[Chunk], name: str, data: int) -> list[Chunk]:
    """Chunks as other files name them. `data`: where the file's own begin."""
    return [chunk if chunk.file else chunk._replace(file=name, offset=data + chunk.offset) for chunk in chunks]


def _is_possible(chunk: Chunk) -> bool:
    """True for bytes of the file itself or of one beside it."""
    numbers = all(type(n) is int and 0 <= n < 1 << 60 for n in (chunk.offset, chunk.length))
    return numbers and isinstance(chunk.digest, str) and isinstance(chunk.file, str) and PLAIN.fullmatch(chunk.file) is not None


class _SavedPages(SavedFile):
    """A file of `save`: the head with its checksum, then chunks."""

    magic, version = MAGIC, VERSION

    def _is_length(self, n: int) -> bool:
        self._data = n
        return n <= len(self._view) and hashlib.sha256(self._view[: n - DIGEST]).digest() == bytes(self._view[n - DIGEST : n])

    def chunks(self) -> list[Chunk]:
        """All chunks in order."""
        n_header, n_ids = self._lengths()
        try:
            found = [Chunk(*each) for each in json.loads(bytes(self._view[HEAD.size + n_header + n_ids : self._data - DIGEST]))]
        except (ValueError, TypeError) as error:
            raise self._damaged("is damaged") from error
        if not all(map(_is_possible, found)):
            raise self._damaged("is damaged: it names bytes that no file of its folder can have")
        return _placed(found, Path(self._name).name, self._data)

    def loaded(self, executable: Executable, facts: dict[str, Any], n_vocab: int, pool: ThreadPoolExecutor) -> Conversation:
        sequence = self.sequence(executable.layout, facts, n_vocab)
        reader = _ChunkReader(Path(self._name).parent, self.chunks(), pool)
        self._file = reader
        try:
            state = self._state(executable)
        except OSError as error:
            raise self._damaged(f"cannot be read ({error})") from error
        if not reader.is_complete():
            raise self._damaged("is damaged: a checksum is wrong")
        return Conversation(sequence, state)


class _ChunkReader:
    """Reads the bytes of a state from the files that have them; other threads compare digests meanwhile."""

    def __init__(self, folder: Path, chunks: Iterable[Chunk], pool: ThreadPoolExecutor) -> None:
        self._folder, self._chunks, self._pool = folder, iter(chunks), pool
        self._small, self._checks = b"", list[Future[bool]]()

    def read(self, n: int) -> bytes:
        """Some of the bytes between pages."""
        if not self._small and (chunk := next(self._chunks, None)) is not None:
            if chunk.length > (self._folder / chunk.file).stat().st_size:
                raise EOFError("a file is too short")
            found = np.empty(chunk.length, np.uint8)
            self._fill(chunk, found)
            self._small = found.tobytes()
        part, self._small = self._small[:n], self._small[n:]
        return part

    def readinto(self, target: Any) -> int:
        """A page, or some of the bytes between pages."""
        into = np.frombuffer(target, np.uint8)
        if self._small or len(into) < LEAST_SHARED:
            data = self.read(len(into))
            into[: len(data)] = np.frombuffer(data, np.uint8)
            return len(data)
        chunk = next(self._chunks, None)
        if chunk is None or chunk.length != len(into):
            raise ValueError("a page has another length")
        self._fill(chunk, into)
        return chunk.length

    def _fill(self, chunk: Chunk, into: npt.NDArray[np.uint8]) -> None:
        view, done = into.data, 0
        with open(self._folder / chunk.file, "rb", buffering=0) as file:
            file.seek(chunk.offset)
            while done < chunk.length and (n := file.readinto(view[done:])):
                done += n
        if done < chunk.length:
            raise EOFError("a file is too short")
        self._checks.append(self._pool.submit(lambda: hashlib.sha256(view).hexdigest() == chunk.digest))

    def is_complete(self) -> bool:
        """True if all was read, and is what was written."""
        return not self._small and next(self._chunks, None) is None and all(check.result() for check in self._checks)
