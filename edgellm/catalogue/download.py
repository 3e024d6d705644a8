"""The bytes of one file from the hub to the disk: resumed where they stopped, checked while they come, right or not there."""

from __future__ import annotations

import re
from collections.abc import Callable

from edgellm.catalogue.hub import Hub, RemoteFile
from edgellm.catalogue.partial_file import PartialFile
from edgellm.catalogue.web import Interrupted, OutOfRange, Response
from edgellm.errors import DownloadError

Progress = Callable[[str, int, int], None]  # (file, bytes here, bytes of it)
PROGRESS_MADE = 1 << 18  # bytes after which a broken connection counts as the first one again
RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")


class WrongBytes(DownloadError):
    """All bytes came and they are not the file's: the server changed it, or they were damaged on the way."""


def download(hub: Hub, file: RemoteFile, sha256: str, part: PartialFile, progress: Progress) -> None:
    """Fill `part` until it is `file`, whatever the connection does in between.

    Raises DownloadError when the server fails too often in a row (the part stays, to be resumed), and WrongBytes when the
    finished file is not the one with that sha256 (nothing of it stays).
    """
    failures, reached, validator = 0, part.length, None
    progress(file.path, part.length, part.size)
    while part.length < part.size:
        try:
            with hub.open(file, part.length, validator=validator) as answer:
                validator = _strong(answer)
                _receive(answer, part, file, progress)
        except Interrupted as fault:
            if isinstance(fault, OutOfRange):
                part.restart()
            failures = 1 if part.length >= reached + PROGRESS_MADE else failures + 1
            reached = max(reached, part.length)
            if failures >= hub.limits.tries:
                raise DownloadError(
                    f"{file.path} stopped at {part.length} of {part.size} bytes after {failures} tries: {fault}; "
                    "run the command again later, it resumes from there"
                ) from fault
            hub.wait(fault, failures)
    if not part.is_right(sha256):
        part.restart()
        raise WrongBytes(f"{file.path} came with other bytes than {hub.host} announced, and was deleted; run the command again")


def _receive(answer: Response, part: PartialFile, file: RemoteFile, progress: Progress) -> None:
    """One answer's bytes. Raises Interrupted when they end too early."""
    if answer.status == 200:  # the whole file: the server cannot resume, or it has another one now
        part.restart()
        length = answer.headers.get("Content-Length")
        if length is not None and length != str(part.size):
            raise Interrupted(f"the server offers {length[:20]} bytes instead of {part.size}")
    else:
        match = RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != part.length or match[3] not in ("*", str(part.size)):
            part.restart()
            raise Interrupted("the server sent another piece than it was asked for")
    while block := answer.read():
        part.append(block)
        progress(file.path, part.length, part.size)
    if part.length < part.size:
        raise Interrupted("the connection ended too early")


def _strong(answer: Response) -> str | None:
    """The answer's ETag, if it vouches for every byte."""
    etag = answer.headers.get("ETag", "")
    return etag if re.fullmatch(r'"[^"\s]{1,200}"', etag) else None
