"""The files of pictures and clips in a conversation: paths, bytes, and data URIs."""

from __future__ import annotations

import base64
import binascii
import os

from edgellm.errors import EdgeError, OptionError, shown


def bytes_of_medium(
    source: object, noun: str, example: str, kinds: str, error: type[EdgeError], *, most: int = 0
) -> tuple[bytes, str]:
    """The bytes of a file, and its name for messages. `noun`: "image"; `example`: of a type in a data URI; `kinds`: what may be
    given; `most`: bytes that are read, 0: all. Raises `error`, OptionError.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source), f"the {noun}"
    if isinstance(source, str) and source[:5].lower() == "data:":
        head, _, body = source.partition(",")
        if not head.lower().endswith(";base64"):
            raise error(f"the data URI begins with {shown(head[:40])}; give data:{example};base64,...")
        return decoded(body, "the data URI", error), "the data URI"
    if isinstance(source, str) and source.partition("://")[0].lower() in ("http", "https", "ftp"):
        raise error(f"{shown(source[:80])} is a remote address; download the {noun}, then give its path or bytes.")
    if not isinstance(source, str | os.PathLike):
        raise OptionError(f"an {noun} can't be {type(source).__name__}; give {kinds}.")
    path = os.fspath(source)
    try:
        with open(path, "rb") as file:
            data = file.read(most + 1 if most else -1)
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise error(f"can't read the {noun} {shown(str(path))}: {reason}; check the path.") from problem
    if most and len(data) > most:
        raise error(f"{shown(str(path))} has more than {most >> 20} MiB; give a shorter {noun}.")
    return data, str(path)


def decoded(text: str, name: str, error: type[EdgeError]) -> bytes:
    """The bytes of base64. Raises `error`."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as problem:
        raise error(f"{name} isn't valid base64: {problem}.") from problem
