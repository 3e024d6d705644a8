"""Text from standard input, when something other than a keyboard is connected to it."""

from __future__ import annotations

import codecs
import os
import sys
import threading
import time
from pathlib import Path

from edgellm.cli.terminal.output import say
from edgellm.errors import OptionError

UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
MOST_TEXT = 256 << 20  # bytes of a text; a device may have no end
FIRST_BYTE = 3.0  # seconds for the first byte: some programs start others with a pipe that they never close


class PipedText:
    """Reads stdin in the background from the moment it is made, so that a model loads meanwhile."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._length = 0
        self._something = threading.Event()  # the first byte, or the end
        self._started = time.monotonic()
        self._reader: threading.Thread | None = None
        if sys.stdin is not None and not sys.stdin.isatty():
            self._reader = threading.Thread(target=self._read, args=(sys.stdin.fileno(),), daemon=True)
            self._reader.start()

    @property
    def connected(self) -> bool:
        """True if stdin is a file or pipe."""
        return self._reader is not None

    def _read(self, descriptor: int) -> None:
        try:
            # not sys.stdin: Python aborts at its end when a thread waits in a buffered reader
            while self._length <= MOST_TEXT and (chunk := os.read(descriptor, 1 << 16)):
                self._chunks.append(chunk)
                self._length += len(chunk)
                self._something.set()
        except OSError:
            pass  # a closed descriptor has no text
        self._something.set()

    def text(self, *, wait: bool) -> str | None:
        """All of it, up to its end. Without `wait`, None if no byte came within `FIRST_BYTE` seconds of the start.

        Raises OptionError for a text without end.
        """
        if self._reader is None:
            return ""
        timeout = None if wait else max(0.0, self._started + FIRST_BYTE - time.monotonic())
        if not self._something.wait(timeout):
            return None
        self._reader.join()
        if self._length > MOST_TEXT:
            raise OptionError(f"standard input: is longer than {MOST_TEXT >> 20} MiB; give a part of it")
        return decoded(b"".join(self._chunks), "standard input")


def file_bytes(file: Path) -> bytes:
    """A text file's bytes. Raises OSError, ValueError; also for one without end."""
    with file.open("rb") as opened:  # its size may be 0 though it has no end, as /dev/zero's
        data = opened.read(MOST_TEXT + 1)
    if len(data) > MOST_TEXT:
        raise ValueError(f"it is longer than {MOST_TEXT >> 20} MiB")
    return data


def decoded(data: bytes, source: str) -> str:
    """A prompt's bytes as text, which are UTF-8, or UTF-16 after its byte order mark; a note where they are neither."""
    encoding, name = ("utf-16", "UTF-16") if data.startswith(UTF16_MARKS) else ("utf-8", "UTF-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        say(
            f"note: {source} is not {name} at byte {error.start}: what cannot be read became \ufffd "
            "(iconv -f latin1 -t utf-8 converts, if it is Latin-1)"
        )
        text = data.decode(encoding, errors="replace")
    return text.removeprefix("\ufeff")
