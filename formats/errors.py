"""Errors of model files: one class per kind of fault, all children of EdgeError."""

from __future__ import annotations

import os
from collections.abc import Callable


class EdgeError(Exception):
    """Every error that a user can cause. The text says what is wrong, where, and what to do."""

    exit_code = 3

    def __str__(self) -> str:
        return self.worded(str)

    def worded(self, word: Callable[[object], str]) -> str:
        """The text, with `word` for the parts that are no text, and with names in it that could steer a terminal as escapes."""
        text = "".join(part if isinstance(part, str) else word(part) for part in self.args)
        return text if text.isprintable() else "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


class FormatError(EdgeError):
    """A file that is not what it says it is.

    Attributes: `file` (path), `field` (metadata key, tensor name or part of the header), `offset` (bytes, or None).
    """

    def __init__(self, message: str, *, file: str | os.PathLike[str], field: str = "", offset: int | None = None) -> None:
        self.file, self.field, self.offset = os.fspath(file), field, offset
        where = f"{self.file}: " + (f"{_shown(field)}: " if field else "")
        super().__init__(where + message + (f" (at byte {offset})" if offset is not None else ""))

    def __reduce__(self) -> tuple[Callable[..., FormatError], tuple[object, ...]]:
        """For pickle: processes hand errors on."""
        return _same, (type(self), self.args, self.__dict__)


def _same(kind: type[FormatError], args: tuple[object, ...], attributes: dict[str, object]) -> FormatError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


def _shown(field: str) -> str:
    """A key or name from a file, short and without bytes that a terminal would obey."""
    short = field if len(field) <= 100 else field[:97] + "..."
    return short if short.isprintable() else ascii(short)


class Unreadable(FormatError):
    """A path that leads to no readable regular file: missing, a folder, a device, a pipe, or not permitted."""


class Unwritable(FormatError):
    """A path where no file can be written: no such folder, not permitted, a folder or a device, in use by another run."""


class Truncated(FormatError):
    """The file ends before what it declares."""


class BadMagic(FormatError):
    """Not this container at all."""


class BadVersion(FormatError):
    """A version of the container that we do not read."""


class BadType(FormatError):
    """A value, array or tensor type id that does not exist or does not fit its field."""


class BadTensorInfo(FormatError):
    """A tensor whose name, dimensions or offset break the rules."""


class BadAlignment(FormatError):
    """`general.alignment` is not a power of two, or the data is not laid out for it."""


class BadHParam(FormatError):
    """A metadata key that is empty or no UTF-8, or a value that is missing, of another type, or out of range."""


class BadVocab(FormatError):
    """A vocabulary that contradicts itself or the embedding."""


class ShapeMismatch(FormatError):
    """A tensor whose shape is not what the architecture needs."""


class LimitExceeded(FormatError):
    """A count or length beyond what any real file has."""


class Duplicate(FormatError):
    """A key or tensor name that occurs twice."""


class Unsupported(FormatError):
    """A sound file that edgellm cannot run: architecture, tensor type or feature."""
