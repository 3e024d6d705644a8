"""A file that appears under its name only when it is complete: written beside it as NAME.part, synced, then renamed."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Any

from .errors import Unwritable

try:
    import fcntl
except ImportError:  # Windows, which refuses to rename or delete a file that is open
    fcntl = None  # type: ignore[assignment]

PART = ".part"  # added to the name of a file until it is complete
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def check_place(path: str | os.PathLike[str]) -> None:
    """Find out now, not after long work, whether a file can be written there. Raises Unwritable."""
    WholeFile(path).discard()


def write_whole(path: str | os.PathLike[str], data: Any) -> None:
    """Write a file at once: the bytes of `data`, or nothing. Raises Unwritable, and the system's OSError."""
    file = WholeFile(path)
    try:
        file.write(data)
        file.finish()
        file.publish()
    finally:
        file.discard()


class WholeFile:
    """`write` appends; `finish` syncs; `publish` gives the file its name; `discard` deletes it.

    Whatever ends the program before `publish` leaves at most NAME.part, which the next run starts anew. One run at a time may
    write it. Raises Unwritable; a full disk is the system's OSError, with the file's name.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(path)  # through a link: the file it points to is replaced, not the link
        self._given, self.part, self.length = os.fspath(path), self.path + PART, 0
        if os.path.exists(self.path) and not os.path.isfile(self.path):
            raise Unwritable("is not a regular file; give the path of a file", file=self._given)
        self._descriptor = self._open()

    def write(self, data: Any) -> None:
        """Append bytes: anything with the buffer protocol, contiguous."""
        view = memoryview(data).cast("B")
        with self._named():
            while view:
                written = os.write(self._descriptor, view[: 1 << 30])
                self.length += written
                view = view[written:]

    def finish(self) -> None:
        """All bytes are on the disk when this returns."""
        with self._named():
            os.fsync(self._descriptor)

    def publish(self, *, sync: bool = True) -> None:
        """Rename to the final name, replacing what was there. `finish` has been called; `sync`: also the folder's entry."""
        if fcntl is None:
            self._close()
        os.replace(self.part, self.path)
        self._close()
        if sync:
            self._sync_folder()

    def discard(self) -> None:
        """Close and delete what was not published. Calling it again, or after `publish`, does nothing."""
        if self._descriptor < 0:
            return
        if fcntl is None:
            self._close()
        with contextlib.suppress(OSError):
            os.unlink(self.part)
        self._close()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename = self._given
            raise

    def _open(self) -> int:
        while True:
            try:
                descriptor = os.open(self.part, _FLAGS, 0o666)
            except OSError as error:
                raise Unwritable(
                    f"cannot be written: {error.strerror}; check the folder and its permissions", file=self._given
                ) from error
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise Unwritable("is not a regular file; delete it", file=self.part)
                if self._locked(descriptor):
                    os.ftruncate(descriptor, 0)
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # the run before renamed it between our open and our lock

    def _locked(self, descriptor: int) -> bool:
        """Take the lock; whether the file still has its name."""
        if fcntl is None:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Unwritable("is being written by another program; wait for it or choose another name", file=self._given) from error
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), os.stat(self.part))
        return False

    def _sync_folder(self) -> None:
        """The new name is on the disk, where folders can be synced."""
        with contextlib.suppress(OSError):
            folder = os.open(os.path.dirname(self.path), os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
