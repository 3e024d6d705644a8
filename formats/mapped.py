"""Read-only memory maps of regular files, refused cleanly when a path is anything else, and the tensors in them."""

from __future__ import annotations

import contextlib
import ctypes
import io
import mmap
import os
import stat
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from .closing import Closing
from .errors import Truncated, Unreadable

Bytes = npt.NDArray[np.uint8]
PIECE = 16 << 20  # bytes that are read at a time

# O_NONBLOCK: opening a FIFO without a writer would wait for ever; it has no meaning for regular files.
_OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class MappedFile:
    """One file mapped for reading: `path`, `size` in bytes, `data` (the bytes as an uint8 array) until `close()`. `copied`: whether
    they are in memory of this process's own instead.

    No page is touched before it is read. Linux is asked for huge pages: a file system that has them (XFS, ext4 since 6.16) reads
    what is not in the page cache 2 MiB at a time, and the processor walks page tables less often. A file that another program cuts
    short while it is mapped kills the process with SIGBUS on the next read: `changed()` before each use keeps that window small,
    nothing closes it.
    Raises Unreadable (missing, a folder, a device, a pipe, not permitted) and Truncated (0 bytes).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._descriptor = _open_regular(self.path)
        try:
            status = os.fstat(self._descriptor)
            self.size, self._stamp = status.st_size, (status.st_size, status.st_mtime_ns)
            if self.size == 0:
                raise Truncated("the file is empty; download it again", file=self.path, offset=0)
            self._map: mmap.mmap | None = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            os.close(self._descriptor)
            raise Unreadable(f"cannot be mapped into memory: {error}", file=self.path) from error
        except Truncated:
            os.close(self._descriptor)
            raise
        self.copied = False
        _ask_for_huge_pages(self._map)
        self._data: Bytes | None = np.frombuffer(self._map, np.uint8)
        self._close_descriptor = weakref.finalize(self, os.close, self._descriptor)  # also where nobody closes the file

    @property
    def buffer(self) -> mmap.mmap:
        """The map itself. ValueError after `close()`."""
        if self._map is None:
            raise ValueError(f"{self.path} was closed")
        return self._map

    @property
    def own(self) -> Bytes:
        """All bytes of the copy, (size,) uint8, which can be written to. ValueError where there is none."""
        if not self.copied:
            raise ValueError(f"{self.path} is not in memory of this process's own")
        return np.frombuffer(self.buffer, np.uint8)

    @property
    def data(self) -> Bytes:
        """All bytes, (size,) uint8, read-only. ValueError after `close()`."""
        if self._data is None:
            raise ValueError(f"{self.path} was closed")
        return self._data

    def copy(self, progress: Callable[[int], None] = lambda done: None) -> None:
        """Read all bytes into memory of this process's own, in huge pages where Linux has them; `data` is that copy from now on.
        Views that were handed out keep the map. `progress(done)` is called with bytes.

        Raises MemoryError, Truncated and Unreadable (an error of the disk, a file that was written to meanwhile); `data` is then
        what it was.
        """
        private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if sys.platform != "win32" else {}
        try:
            copy = mmap.mmap(-1, self.size, **private)
        except OSError as error:
            raise MemoryError(f"{self.size / 1e9:.2f} GB for the weights") from error
        _ask_for_huge_pages(copy)
        done = 0
        with io.FileIO(self._descriptor, closefd=False) as file, memoryview(copy) as view:
            while done < self.size:
                with view[done : done + PIECE] as piece:
                    try:
                        file.seek(done)
                        n = file.readinto(piece)
                    except OSError as error:
                        raise Unreadable(f"cannot be read: {error.strerror or error}", file=self.path, offset=done) from error
                if not n:
                    raise Truncated("the file ends where it had more bytes before; download it again", file=self.path, offset=done)
                done += n
                progress(done)
        if self.changed():
            raise Unreadable("was written to while it was read; load it again", file=self.path)
        data = np.frombuffer(copy, np.uint8)
        data.flags.writeable = False
        self._data, kept, self._map, self.copied = data, self._map, copy, True
        if kept is not None:
            with contextlib.suppress(BufferError):  # views are alive
                kept.close()

    def lock(self) -> None:
        """Keep all bytes in physical memory until they are unmapped. OSError where the system does not allow that."""
        if sys.platform == "win32":
            raise OSError("not available on Windows")
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mlock(ctypes.c_void_p(self.data.ctypes.data), ctypes.c_size_t(self.size)):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def drop(self, offset: int, nbytes: int) -> None:
        """Give the pages of these bytes back to the system, where it can be told; they are read again when touched. Copies stay."""
        if hasattr(mmap, "MADV_DONTNEED") and nbytes and not self.copied:
            start = offset // mmap.PAGESIZE * mmap.PAGESIZE
            self.buffer.madvise(mmap.MADV_DONTNEED, start, offset + nbytes - start)

    def changed(self) -> bool:
        """True if the file was written to or cut since it was opened. A file put in its place does not count, and nothing does
        after `copy()`.
        """
        if self._map is None or self.copied:
            return False
        status = os.fstat(self._descriptor)
        return (status.st_size, status.st_mtime_ns) != self._stamp

    def close(self) -> None:
        """Unmap now, or as soon as the last view that was handed out dies. Closing twice does nothing."""
        if self._map is None:
            return
        self._data, kept, self._map = None, self._map, None
        self._close_descriptor()
        with contextlib.suppress(BufferError):  # views are alive: they keep the map, and it goes with the last
            kept.close()


def _ask_for_huge_pages(memory: mmap.mmap) -> None:
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)


def _open_regular(path: str) -> int:
    try:
        descriptor = os.open(path, _OPEN_FLAGS)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreadable(f"cannot be opened: {reason}; check the path and its permissions", file=path) from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    kind = next((text for test, text in _KINDS if test(mode)), "no regular file")
    raise Unreadable(f"is {kind}; give the path of a model file", file=path)


class Placed(Protocol):
    """The place of a tensor's bytes: in file number `part`, from `offset` on."""

    @property
    def part(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=Placed)


class TensorFiles(Closing, Generic[T]):
    """Open files with tensors in them. A context manager, which closes them."""

    def __init__(self, files: Sequence[MappedFile], tensors: dict[str, T]) -> None:
        self.files, self.tensors = files, tensors
        self.paths = tuple(file.path for file in files)

    def raw(self, name: str) -> Bytes:
        """The bytes of a tensor, (nbytes,) uint8, a read-only view on the map. KeyError if there is no such tensor."""
        info = self.tensors[name]
        return self.files[info.part].data[info.offset : info.offset + info.nbytes]

    def drop(self, name: str) -> None:
        """Give the pages of a tensor back to the system: its values have been copied elsewhere."""
        info = self.tensors[name]
        self.files[info.part].drop(info.offset, info.nbytes)

    def changed(self) -> bool:
        """True if a file was written to or cut since it was opened; reading it then may kill the process."""
        return any(file.changed() for file in self.files)

    def close(self) -> None:
        """Unmap; views that are still alive keep the map until they die. Strings and arrays of metadata can no longer be read."""
        for file in self.files:
            file.close()
