"""The commands inside a chat that change what was said or where it is kept: /undo, /fork, /file, /save, /load, /copy."""

from __future__ import annotations

import base64
import contextlib
import io
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgellm.cli.chat import typed_path
from edgellm.cli.chat.resuming import saved_lines
from edgellm.cli.options import typed
from edgellm.cli.terminal.keyboard import asked
from edgellm.cli.terminal.output import say
from edgellm.cli.terminal.screen import understands_escapes
from edgellm.errors import OptionError

if TYPE_CHECKING:
    from edgellm.cli.chat.conversation import Dialogue, Keeper

MOST_COPIED = 74_994  # bytes: what xterm takes of a clipboard's escape sequence
MOST_FILE = 16 << 20  # bytes; more than any context
PICTURES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8")  # how their files begin
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif")


def undo(chat: Dialogue, rest: str) -> None:
    """Take the last exchange back, or the last `rest` of them. Raises OptionError."""
    if rest and (not rest.isdecimal() or int(rest) == 0):
        raise OptionError(f"/undo {rest}: give a number of exchanges, 1 or more")
    for _ in range(int(rest or 1)):
        say(f"taken back: {chat.undo()[:200]}")
        if not chat.turns:
            break
    if chat.keeper is not None:
        chat.keeper.taken_back(chat)


def fork(chat: Dialogue, rest: str) -> None:
    """Go on as another chat; the one so far stays as it is."""
    kept = _keeper(chat, "/fork")
    if not chat.turns:
        raise OptionError("/fork: nothing was said yet")
    before = kept.name or "this chat"
    with _disk("/fork"):
        kept.fork(chat, rest)
    say(f"{before} stays as it is; this chat continues as {kept.name}")


def file(chat: Dialogue, rest: str) -> None:
    """Let the next message come with a document."""
    if not rest:
        say(f"comes with your next message: {chat.attached}" if chat.attached else "no file is attached; /file PATH attaches one")
        return
    path = Path(os.path.expanduser(typed_path.meant(rest)))
    try:
        with path.open("rb") as opened:  # its size may be 0 though it has no end, as /dev/zero's
            data = opened.read(MOST_FILE + 1)
        if len(data) > MOST_FILE:
            raise OptionError(f"/file {rest}: is longer than {MOST_FILE >> 20} MiB; give a part of it")
        if data.startswith(PICTURES) or (data[:4], data[8:12]) == (b"RIFF", b"WEBP"):
            attach_picture(chat, path)
            return
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise OptionError(f"/file {rest}: cannot be read ({reason}); give a text file or a picture") from error
    if not text.strip():
        raise OptionError(f"/file {rest}: is empty; give a text file")
    if (path.name, text) in chat.files:
        say(f"{path.name} is attached already")
        return
    ids = chat.model.tokenizer.encode(text)
    n, context = len(ids), chat.model.info.context
    if n >= context:
        text, n = _cut(chat, rest, ids), context // 2
    chat.attach(path.name, text)
    say(f"{path.name}, {n:,} token{'s' if n != 1 else ''}, comes with your next message and stays in the context")


def attach_picture(chat: Dialogue, path: Path) -> None:
    """Let a picture come with the next message. Raises OptionError, ImageError."""
    from edgellm.chat.images import read

    if chat.model.info.vision is None:
        raise OptionError(
            f"{path.name} is a picture, and {chat.model.info.path.name} takes none: there is no projector (mmproj-*.gguf) beside "
            "it; download it, or name one with --mmproj"
        )
    height, width = read(path).shape[:2]
    if (place := str(path.absolute())) not in chat.pictures:
        chat.pictures.append(place)
    say(f"{path.name}, {width} x {height} pixels, comes with your next message")


def pasted(chat: Dialogue, text: str) -> str:
    """A message without the path of a picture that it begins with, as terminals paste one that is dropped: it is attached.

    Raises OptionError, ImageError.
    """
    stream = io.StringIO(text)
    lexer = shlex.shlex(stream, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        word = lexer.get_token() or ""
    except ValueError:  # a quotation that does not end
        return text
    path = Path(os.path.expanduser(word.removeprefix("file://")))
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return text
    attach_picture(chat, path)
    return stream.read().strip()


def _cut(chat: Dialogue, rest: str, ids: Sequence[int]) -> str:
    """The first half context of a document, if the user wants that. Raises OptionError."""
    context = chat.model.info.context
    long = f"has {len(ids):,} tokens, and the context holds {context:,}"
    if not asked(f"{rest} {long}; attach its first {context // 2:,}?"):
        larger = typed("context", (len(ids) // 1024 + 2) * 1024)
        raise OptionError(f"/file {rest}: {long}; give a part of it, or start the chat with {larger}")
    return chat.model.tokenizer.decode(list(ids[: context // 2]))


def save(chat: Dialogue, rest: str) -> None:
    """Save now, or under a name."""
    kept = _keeper(chat, "/save")
    with _disk("/save"):
        kept.save_as(chat, rest)
    say(f"saved as {kept.name}")


def load(chat: Dialogue, rest: str) -> None:
    """Go on with another saved chat."""
    kept = _keeper(chat, "/load")
    if not rest:
        lines = saved_lines(kept.store)
        for line in lines or ["no chat was saved yet"]:
            print(line, file=sys.stderr, flush=True)
        if lines:
            say("/load NAME resumes one")
        return
    record = kept.store.read(rest)
    kept.close(chat, quiet=True)
    kept.take(chat, rest, record)


def copy(chat: Dialogue, rest: str) -> None:
    """The last answer to the clipboard, by the terminal's own means: that works over ssh as well."""
    answers = [turn["content"] for turn in chat.turns if turn["role"] == "assistant"]
    if not answers:
        raise OptionError("/copy: there is no answer yet")
    data = answers[-1].encode()
    if len(data) > MOST_COPIED:
        raise OptionError(f"/copy: the answer has {len(data):,} bytes, and terminals take {MOST_COPIED:,} at most")
    if not understands_escapes(sys.stderr):
        raise OptionError("/copy: this is not a terminal with a clipboard")
    sys.stderr.write(f"\x1b]52;c;{base64.b64encode(data).decode()}\a")
    sys.stderr.flush()
    say(f"{len(answers[-1]):,} characters went to the clipboard, if your terminal lets programs write it")


@contextlib.contextmanager
def _disk(command: str) -> Iterator[None]:
    """Report errors of the disk like any other error."""
    try:
        yield
    except OSError as error:
        raise OptionError(f"{command}: cannot be written ({error.strerror or error}); make room") from error


def _keeper(chat: Dialogue, command: str) -> Keeper:
    if chat.keeper is None:
        raise OptionError(f"{command}: this chat is not saved (--no-save, EDGELLM_SESSIONS=off, or a pipe)")
    return chat.keeper
