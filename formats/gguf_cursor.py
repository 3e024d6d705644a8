"""A checked position in a GGUF header: nothing is read, and no count believed, beyond the bytes that are there."""

from __future__ import annotations

from struct import Struct
from typing import Any, NoReturn

from .errors import FormatError, LimitExceeded, Truncated
from .mapped import MappedFile

MAX_KEYS_BYTES = 8 << 20  # all keys together: bounds what a header costs in memory
MAX_STRINGS = 2 << 20  # of all arrays together; the largest vocabulary and its merges have 0.8 million

AGAIN = "; the file is damaged or incomplete, download it again"
MADE = "; the program that made the file is wrong, make it again"

U32, U64 = Struct("<I"), Struct("<Q")


class Cursor:
    """A place in `file`; `at` bytes from the start. What it reads is checked against the file's size first."""

    def __init__(self, file: MappedFile) -> None:
        self.file, self.at, self.size, self._buffer = file, 0, file.size, file.buffer
        self.strings_left, self.key_bytes_left = MAX_STRINGS, MAX_KEYS_BYTES

    @property
    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return self.size - self.at

    def fail(self, kind: type[FormatError], message: str, field: str, offset: int | None = None) -> NoReturn:
        """Raise `kind` about `field` at `offset`, or here."""
        raise kind(message, file=self.file.path, field=field, offset=self.at if offset is None else offset)

    def need(self, n: int, field: str, what: str) -> None:
        """Raise Truncated unless `n` bytes follow."""
        if n > self.left:
            self.fail(Truncated, f"{what} needs {n} bytes and {self.left} are left{AGAIN}", field)

    def number(self, layout: Struct, field: str, what: str) -> Any:
        """The next value of that layout: an int or a float."""
        self.need(layout.size, field, what)
        value = layout.unpack_from(self._buffer, self.at)[0]
        self.at += layout.size
        return value

    def take(self, n: int, field: str, what: str) -> bytes:
        """The next `n` bytes."""
        self.need(n, field, what)
        self.at += n
        return self._buffer[self.at - n : self.at]

    def skip(self, n: int, field: str, what: str) -> int:
        """Pass over `n` bytes without touching them; where they begin."""
        self.need(n, field, what)
        self.at += n
        return self.at - n

    def count(self, field: str, most: int, least_bytes: int) -> int:
        """A count of entries of `least_bytes` or more. LimitExceeded over `most`, Truncated if they do not fit."""
        at = self.at
        n = int(self.number(U64, field, "the count"))
        if n > most:
            self.fail(LimitExceeded, f"{n} is more than any real file has ({most}){AGAIN}", field, at)
        if n * least_bytes > self.left:
            self.fail(Truncated, f"{n} entries do not fit in the {self.left} bytes left{AGAIN}", field, at)
        return n
