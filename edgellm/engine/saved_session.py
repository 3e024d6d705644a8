"""A session's conversation in a file: token ids, keys and values, so that another process resumes without computing them again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import struct
from array import array
from collections.abc import Iterator
from typing import Any  # Any: values of JSON; buffers

from edgellm.backends.base import Executable, State
from edgellm.engine.conversation import Conversation
from edgellm.errors import EdgeError, OptionValue, SessionError, shown
from edgellm.formats.whole_file import WholeFile
from edgellm.memory.layout import MemoryLayout
from edgellm.memory.sequence import Sequence
from edgellm.memory.state_ring import StateRing

MAGIC, VERSION = b"EDGESESS", 5
DIGEST = hashlib.sha256().digest_size  # over all before it, at the end
HEAD = struct.Struct("<8sIIQQ")  # magic, version, bytes of the facts (JSON), of the ids, of the state
MOST_FACTS = 1 << 16  # bytes; the checksum of all stands at the end


class _Hashed:
    """A file that is written, and the digest of what was."""

    def __init__(self, file: WholeFile) -> None:
        self._file, self.sum = file, hashlib.sha256()

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view)
        self.sum.update(view)
        return len(view)


class _Counted:
    """Counts what would be written."""

    def __init__(self) -> None:
        self.length = 0

    def write(self, data: Any) -> int:
        n = memoryview(data).nbytes
        self.length += n
        return n


class _Mapped:
    """A file in memory that reads like one on disk; the pages of the map are copied once, to where they are used."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._at = view, 0

    def read(self, n: int) -> bytes:
        data = bytes(self._view[self._at : self._at + max(0, n)])
        self._at += len(data)
        return data

    def readinto(self, target: Any) -> int:
        into = memoryview(target).cast("B")
        data = self._view[self._at : self._at + len(into)]
        into[: len(data)] = data
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at


def check_path(path: object) -> str:
    """A path as text. Raises SessionError for what no file can be called."""
    try:
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        possible = isinstance(name, str) and name != "" and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise SessionError(f"{shown(path)} is not the path of a file; give a text that names one, or a pathlib.Path.")
    return str(name)


def save(path: str | os.PathLike[str], conversation: Conversation, facts: dict[str, Any], *, sync: bool = True) -> None:
    """Write a conversation; `facts` say of which model. Whole under its name or not there. Without `sync` a power failure may
    damage it, which is found when it is read.

    Raises SessionError (a path that cannot be), BackendError where the back end cannot, Unwritable, and OSError where the disk is
    full.
    """
    name = check_path(path)
    state, sequence = conversation.state, conversation.sequence
    counted: Any = _Counted()
    state.save(counted)
    header, ids = header_of(sequence, facts), sequence.ids.tobytes()
    file = WholeFile(name)
    try:
        hashed: Any = _Hashed(file)
        hashed.write(HEAD.pack(MAGIC, VERSION, len(header), len(ids), counted.length))
        hashed.write(header)
        hashed.write(ids)
        state.save(hashed)
        file.write(hashed.sum.digest())
        if sync:
            file.finish()
        file.publish(sync=sync)
    finally:
        file.discard()


def header_of(sequence: Sequence, facts: dict[str, Any]) -> bytes:
    """`facts` and what else describes a sequence, as JSON."""
    ring = sequence.states
    states = {} if ring is None else {"states": [list(item) for item in ring.held.items()], "marked": list(ring.marked)}
    rings = [[memory.sinks, memory.window, memory.ring] for memory in sequence.layout.classes]
    return json.dumps({**facts, "oldest": list(sequence.oldest), "kept": sequence.kept, "rings": rings, **states}).encode()


def load(path: str | os.PathLike[str], executable: Executable, facts: dict[str, Any], n_vocab: int) -> Conversation:
    """The conversation that `save` wrote for the same model. Raises SessionError for any other file."""
    with mapped(path) as (view, name):
        return SavedFile(view, name).conversation(executable, facts, n_vocab)


@contextlib.contextmanager
def mapped(path: str | os.PathLike[str]) -> Iterator[tuple[memoryview, str]]:
    """The bytes of a file, and its name. Raises SessionError."""
    name = check_path(path)
    try:
        with open(name, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            yield view, name
    except ValueError as error:  # an empty file cannot be mapped
        raise SessionError(f"{name}: is not a saved session; give a file that session.save() wrote.") from error
    except OSError as error:
        raise SessionError(f"{name}: cannot be read ({error.strerror or error}); give a file that session.save() wrote.") from error


class SavedFile:
    """A saved session that is read."""

    magic, version = MAGIC, VERSION

    def __init__(self, view: memoryview, name: str) -> None:
        self._view, self._name = view, name

    def _damaged(self, what: str) -> SessionError:
        return SessionError(f"{self._name}: {what}; start a new session, or give a file that session.save() wrote.")

    def conversation(self, executable: Executable, facts: dict[str, Any], n_vocab: int) -> Conversation:
        """All of it. Nothing in it is believed before its digest was compared."""
        end, found = len(self._view) - DIGEST, hashlib.sha256()
        self._lengths()
        found.update(self._view[:end])
        if found.digest() != bytes(self._view[end:]):
            raise self._damaged("is damaged: its checksum is wrong")
        sequence = self.sequence(executable.layout, facts, n_vocab)
        state = self._state(executable)
        if self._file.tell() != end:
            raise self._damaged("is damaged: its keys and values are not as long as they should be")
        return Conversation(sequence, state)

    def sequence(self, layout: MemoryLayout, facts: dict[str, Any], n_vocab: int) -> Sequence:
        """Its tokens, which stand before keys and values."""
        n_header, n_ids = self._lengths()
        kept = self._facts(self._file.read(n_header), facts)
        ids = array("i", self._file.read(n_ids))
        if ids and max(ids) >= n_vocab:  # negative ones stand for rows of images
            raise self._damaged("has tokens that this model does not know")
        return self._sequence(layout, ids, kept)

    def _lengths(self) -> tuple[int, int]:
        """Bytes of the header and of the ids."""
        self._file: Any = _Mapped(self._view)
        head = self._file.read(HEAD.size)
        if len(head) < HEAD.size or not head.startswith(self.magic):
            raise self._damaged("is not a saved session")
        _, version, n_header, n_ids, n_state = HEAD.unpack(head)
        if version != self.version:
            raise self._damaged(f"was written in version {version} of the format, and this edgellm reads version {self.version}")
        if n_header > MOST_FACTS or n_ids % 4 or not self._is_length(HEAD.size + n_header + n_ids + n_state + DIGEST):
            raise self._damaged("is cut off or damaged")
        return n_header, n_ids

    def _is_length(self, n: int) -> bool:
        return n == len(self._view)

    def _facts(self, header: bytes, wanted: dict[str, Any]) -> dict[str, Any]:
        """The header's part about the sequence."""
        try:
            found = json.loads(header)
        except (ValueError, RecursionError) as error:
            raise self._damaged("is damaged") from error
        if not isinstance(found, dict):
            raise self._damaged("is damaged")
        kept = {name: found.pop(name, []) for name in ("oldest", "states", "marked", "kept", "rings")}
        kept["context"] = found.get("context")
        compared = wanted.keys() - ({"context"} if kept["rings"] else set())  # a context may be another where the tokens fit both
        other = sorted(key for key in compared if found.get(key) != wanted[key])
        if other:
            said = ", ".join(f"{key} {found.get(key)!r} instead of {wanted[key]!r}" for key in other)
            raise self._damaged(f"was saved with another model or other options ({said})")
        return kept

    def _sequence(self, layout: MemoryLayout, ids: array[int], kept: dict[str, Any]) -> Sequence:
        oldest, full = kept["oldest"], layout.classes[0]
        stay = kept["kept"] if kept["kept"] != [] else full.kept  # files of before have none
        if not isinstance(stay, int) or not full.kept <= stay <= full.sinks:
            raise self._damaged("is damaged")
        if not _are_integers(oldest):
            raise self._damaged("is damaged")
        if kept["rings"] and not self._fits(layout, len(ids), stay, kept):
            raise SessionError(
                f"{self._name}: was saved with a context of {kept['context']} tokens, and its {len(ids)} tokens do not fit "
                f"one of {layout.context} as they are; ",
                "load the model with ",
                OptionValue("context", kept["context"]),
                ", or start a new session",
            )
        firsts = [stay if memory.sinks else 0 for memory in layout.classes]
        if len(oldest) != len(layout.classes) or not all(
            first <= position <= max(len(ids), first) and position >= len(ids) - memory.ring
            for position, first, memory in zip(oldest, firsts, layout.classes, strict=False)
        ):
            raise self._damaged("is damaged")
        return Sequence.restored(layout, ids, oldest, self._states(layout, len(ids), kept["states"], kept["marked"]), stay)

    def _fits(self, layout: MemoryLayout, n: int, stay: int, kept: dict[str, Any]) -> bool:
        """True if `n` tokens lie in the same slots as where they were saved: in the same rings, or before the ends of both."""
        saved, rings = kept["rings"], [[memory.sinks, memory.window, memory.ring] for memory in layout.classes]
        if not isinstance(saved, list) or not all(_are_integers(ring) and len(ring) == 3 for ring in saved):
            raise self._damaged("is damaged")
        if len(saved) != len(rings) or [ring[0] for ring in saved] != [ring[0] for ring in rings]:
            return False
        firsts = [stay if sinks else 0 for sinks, _, _ in rings]
        return all(
            there == here or n - first <= min(there[1:] + here[1:]) for there, here, first in zip(saved, rings, firsts, strict=True)
        ) and all(
            there == here or oldest == first
            for there, here, oldest, first in zip(saved, rings, kept["oldest"], firsts, strict=False)
        )

    def _states(self, layout: MemoryLayout, n: int, held: Any, marked: Any) -> StateRing | None:
        """Where recurrent states are: one after each of some positions, the newest among them."""
        if not layout.state_slots:
            return None
        if not (isinstance(held, list) and all(_are_integers(pair) and len(pair) == 2 for pair in held) and _are_integers(marked)):
            raise self._damaged("is damaged")
        slots = dict(held)
        if (
            len(set(slots.values())) != len(held)
            or not all(0 <= slot < layout.state_slots for slot in slots.values())
            or sorted(slots) != list(slots)
            or (n and (min(slots, default=-1) < 0 or max(slots) != n - 1))
            or not set(marked) <= set(slots)
            or len(marked) > layout.snapshots
        ):
            raise self._damaged("is damaged")
        return StateRing.restored(layout.rolling, layout.snapshots, slots, marked)

    def _state(self, executable: Executable) -> State:
        try:
            return executable.load_state(self._file)
        except (EdgeError, ValueError, EOFError, struct.error) as error:
            raise self._damaged(f"is damaged ({error})") from error


def _are_integers(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)
