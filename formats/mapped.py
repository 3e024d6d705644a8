"""A read-only memory map of one regular file, refused cleanly when the path is anything else."""
from __future__ import annotations

import contextlib
import mmap
import os
import stat
import weakref

import numpy as np
import numpy.typing as npt

from .errors import Truncated, Unreadable

Bytes = npt.NDArray[np.uint8]

# O_NONBLOCK: opening a FIFO without a writer would wait for ever; it has no meaning for regular files.
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0) \
    | getattr(os, "O_BINARY", 0)

_KINDS = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class MappedFile:
    """One file mapped for reading: `path`, `size` in bytes, `data` (the bytes as an uint8 array) until `close()`.

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
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):      # a kernel without them
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self._data: Bytes | None = np.frombuffer(self._map, np.uint8)
        self._close_descriptor = weakref.finalize(self, os.close, self._descriptor)      # also where nobody closes the file

    @property
    def buffer(self) -> mmap.mmap:
        """The map itself. ValueError after `close()`."""
        if self._map is None:
            raise ValueError(f"{self.path} was closed")
        return self._map

    @property
    def data(self) -> Bytes:
        """All bytes, (size,) uint8, read-only. ValueError after `close()`."""
        if self._data is None:
            raise ValueError(f"{self.path} was closed")
        return self._data

    def drop(self, offset: int, nbytes: int) -> None:
        """Give the pages of these bytes back to the system, where it can be told; they are read again when touched."""
        if hasattr(mmap, "MADV_DONTNEED") and nbytes:
            start = offset // mmap.PAGESIZE * mmap.PAGESIZE
            self.buffer.madvise(mmap.MADV_DONTNEED, start, offset + nbytes - start)

    def changed(self) -> bool:
        """Whether the file was written to or cut since it was opened. A file put in its place does not count."""
        if self._map is None:
            return False
        status = os.fstat(self._descriptor)
        return (status.st_size, status.st_mtime_ns) != self._stamp

    def close(self) -> None:
        """Unmap now, or as soon as the last view that was handed out dies. Closing twice does nothing."""
        if self._map is None:
            return
        self._data, kept, self._map = None, self._map, None
        self._close_descriptor()
        with contextlib.suppress(BufferError):      # views are alive: they keep the map, and it goes with the last
            kept.close()


def _open_regular(path: str) -> int:
    try:
        descriptor = os.open(path, _OPEN_FLAGS)
    except (OSError, ValueError) as error:          # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreadable(f"cannot be opened: {reason}; check the path and its permissions", file=path) from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    kind = next((text for test, text in _KINDS if test(mode)), "no regular file")
    raise Unreadable(f"is {kind}; give the path of a model file", file=path)
