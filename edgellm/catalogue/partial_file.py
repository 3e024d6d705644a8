"""A file that is still being downloaded: it grows at its end only, so that the download can be resumed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from edgellm.catalogue.web import BLOCK
from edgellm.errors import DownloadError
from edgellm.folders import DISK_FULL
from edgellm.formats.closing import Closing


class PartialFile(Closing):
    """The beginning of a file of `size` bytes, and the running sha256 of what is there.

    The hash of an earlier run's bytes is made from the disk: it cannot disagree with them. Raises DownloadError where the disk
    cannot be written; what is there stays.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size, self.length = path, size, 0
        self._hash = hashlib.sha256()
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            self._file = os.fdopen(os.open(path, flags, 0o644), "r+b", buffering=0)
        except OSError as error:
            raise self._refusal(error) from error
        while block := self._file.read(BLOCK):
            self._hash.update(block)
            self.length += len(block)
        if self.length > size:
            self.restart()

    def append(self, block: bytes) -> None:
        """Write at the end. Raises DownloadError where the disk is full or the file would grow past its size."""
        if self.length + len(block) > self.size:
            raise DownloadError(f"the server sends more than the {self.size} bytes that {self.path.name} has; try again later")
        view = memoryview(block)
        while view:
            try:
                written = self._file.write(view)
            except OSError as error:
                raise self._refusal(error) from error
            self._hash.update(view[:written])
            self.length += written
            view = view[written:]

    def restart(self) -> None:
        """Forget all bytes."""
        self._file.truncate(0)
        self._file.seek(0)
        self._hash, self.length = hashlib.sha256(), 0

    def is_right(self, sha256: str) -> bool:
        """True if all bytes are here, on the disk, and the right ones."""
        if self.length != self.size or self._hash.hexdigest() != sha256:
            return False
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._refusal(error) from error
        return True

    def close(self) -> None:
        self._file.close()

    def _refusal(self, error: OSError) -> DownloadError:
        if error.errno in DISK_FULL:
            return DownloadError(
                f"the disk of {self.path.parent} is full after {self.length} of {self.size} bytes; make room and "
                "run the command again, it resumes from there"
            )
        return DownloadError(f"{self.path} cannot be written ({error.strerror}); check the folder's permissions")
