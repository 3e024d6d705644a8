"""A session's conversation in a file: token ids, keys and values, so that another process goes on without computing them again."""
from __future__ import annotations

import hashlib
import json
import os
import struct
from array import array
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol, runtime_checkable  # Any: values of JSON; buffers

from edgellm.backends.base import Executable, State
from edgellm.engine.conversation import Conversation
from edgellm.errors import EdgeError, SessionError
from edgellm.formats.whole_file import WholeFile
from edgellm.memory.sequence import Sequence

MAGIC, VERSION = b"EDGESESS", 1
HEAD = struct.Struct("<8sIIQQ")                  # magic, version, bytes of the facts (JSON), of the ids, of the state
DIGEST = hashlib.sha256().digest_size            # over all before it, at the end
MOST_FACTS = 1 << 16                             # bytes
BLOCK = 1 << 20


@runtime_checkable
class Savable(Protocol):
    """A state that can be written to a file."""

    def save(self, file: BinaryIO) -> None: ...


@runtime_checkable
class Loading(Protocol):
    """An executable that reads back what its states write."""

    def load_state(self, file: BinaryIO) -> State: ...


class _Hashed:
    """A file that is written, and the digest of what was."""

    def __init__(self, file: WholeFile) -> None:
        self._file, self.sha = file, hashlib.sha256()

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view)
        self.sha.update(view)
        return len(view)


class _Counted:
    """Counts what would be written."""

    def __init__(self) -> None:
        self.length = 0

    def write(self, data: Any) -> int:
        n = memoryview(data).nbytes
        self.length += n
        return n


def save(path: str | os.PathLike[str], conversation: Conversation, facts: dict[str, Any], backend: str) -> None:
    """Write a conversation; `facts` say of which model. Whole under its name or not there.

    Raises SessionError where the back end cannot, Unwritable, and OSError where the disk is full.
    """
    state, sequence = conversation.state, conversation.sequence
    if not isinstance(state, Savable):
        raise SessionError(f"the {backend} back end cannot save sessions; load the model with backend=\"cpu\".")
    counted: Any = _Counted()
    state.save(counted)
    header = json.dumps({**facts, "oldest": list(sequence.oldest)}).encode()
    ids = sequence.ids.tobytes()
    file = WholeFile(path)
    try:
        hashed: Any = _Hashed(file)
        hashed.write(HEAD.pack(MAGIC, VERSION, len(header), len(ids), counted.length))
        hashed.write(header)
        hashed.write(ids)
        state.save(hashed)
        file.write(hashed.sha.digest())
        file.finish()
        file.publish()
    finally:
        file.discard()


def load(path: str | os.PathLike[str], executable: Executable, facts: dict[str, Any], n_vocab: int) -> Conversation:
    """What `save` wrote for the same model. Raises SessionError for all else."""
    name = os.fspath(path)
    if not isinstance(executable, Loading):
        raise SessionError(f"the {executable.backend} back end cannot load sessions; load the model with backend=\"cpu\".")
    try:
        with open(path, "rb") as file:
            return _Reading(file, name).conversation(executable, facts, n_vocab)
    except OSError as error:
        raise SessionError(f"{name}: cannot be read ({error.strerror or error}); give a file that session.save() wrote.") from error


class _Reading:
    """A saved session that is read: nothing in it is believed before its digest was compared."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name

    def _damaged(self, what: str) -> SessionError:
        return SessionError(f"{self._name}: {what}; start a new session, or give a file that session.save() wrote.")

    def conversation(self, executable: Executable, facts: dict[str, Any], n_vocab: int) -> Conversation:
        head = self._file.read(HEAD.size)
        if len(head) < HEAD.size or not head.startswith(MAGIC):
            raise self._damaged("is not a saved session")
        _, version, n_header, n_ids, n_state = HEAD.unpack(head)
        if version != VERSION:
            raise self._damaged(f"was written in version {version} of the format, and this edgellm reads version {VERSION}")
        size = os.fstat(self._file.fileno()).st_size
        if n_header > MOST_FACTS or HEAD.size + n_header + n_ids + n_state + DIGEST != size or n_ids % 4:
            raise self._damaged("is cut off or damaged")
        self._compare(size - DIGEST)
        self._file.seek(HEAD.size)
        oldest = self._facts(self._file.read(n_header), facts)
        ids = array("i", self._file.read(n_ids))
        if ids and not 0 <= min(ids) <= max(ids) < n_vocab:
            raise self._damaged("has tokens that this model does not know")
        return Conversation(self._sequence(executable, ids, oldest), self._state(executable, size - DIGEST))

    def _compare(self, end: int) -> None:
        sha = hashlib.sha256()
        for block in self._blocks(end):
            sha.update(block)
        if sha.digest() != self._file.read(DIGEST):
            raise self._damaged("is damaged: its checksum is wrong")

    def _blocks(self, end: int) -> Iterator[bytes]:
        self._file.seek(0)
        while end > 0 and (block := self._file.read(min(BLOCK, end))):
            end -= len(block)
            yield block

    def _facts(self, header: bytes, wanted: dict[str, Any]) -> list[int]:
        try:
            found = json.loads(header)
            oldest = found.pop("oldest")
        except (ValueError, KeyError, AttributeError) as error:
            raise self._damaged("is damaged") from error
        other = sorted(key for key in wanted if found.get(key) != wanted[key])
        if other:
            said = ", ".join(f"{key} {found.get(key)!r} instead of {wanted[key]!r}" for key in other)
            raise self._damaged(f"was saved with another model or other options ({said})")
        if not isinstance(oldest, list) or not all(isinstance(position, int) for position in oldest):
            raise self._damaged("is damaged")
        return oldest

    def _sequence(self, executable: Executable, ids: array[int], oldest: list[int]) -> Sequence:
        layout = executable.layout
        if len(oldest) != len(layout.classes) or not all(
                memory.sinks <= position <= max(len(ids), memory.sinks) and position >= len(ids) - memory.ring
                for position, memory in zip(oldest, layout.classes, strict=False)):
            raise self._damaged("is damaged")
        return Sequence.restored(layout, ids, oldest)

    def _state(self, executable: Executable, end: int) -> State:
        assert isinstance(executable, Loading)
        try:
            state: State = executable.load_state(self._file)
        except (EdgeError, ValueError, EOFError, struct.error) as error:
            raise self._damaged(f"is damaged ({error})") from error
        if self._file.tell() != end:
            raise self._damaged("is damaged: its keys and values are not as long as they should be")
        return state
