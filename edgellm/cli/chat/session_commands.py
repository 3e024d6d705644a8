"""The commands inside a chat that change what was said or where it is kept: /undo, /fork, /file, /save, /load, /copy, /mcp."""

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
from edgellm.cli.chat.conversation import CLIP_SUFFIXES
from edgellm.cli.chat.resuming import saved_lines
from edgellm.cli.options import typed
from edgellm.cli.terminal.keyboard import asked
from edgellm.cli.terminal.output import fitting, say
from edgellm.cli.terminal.screen import understands_escapes
from edgellm.errors import OptionError

if TYPE_CHECKING:
    from edgellm.api.records import Event
    from edgellm.cli.chat.conversation import Dialogue, Keeper

MOST_COPIED = 74_994  # bytes: what xterm takes of a clipboard's escape sequence
MOST_FILE = 16 << 20  # bytes; more than any context
PICTURES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8")  # how their files begin
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif")


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
    if path.suffix.lower() in CLIP_SUFFIXES and path.is_file():
        attach_medium(chat, path)
        return
    try:
        with path.open("rb") as opened:  # its size may be 0 though it has no end, as /dev/zero's
            data = opened.read(MOST_FILE + 1)
        if len(data) > MOST_FILE:
            raise OptionError(f"/file {rest}: is longer than {MOST_FILE >> 20} MiB; give a part of it")
        if data.startswith(PICTURES) or (data[:4], data[8:12]) == (b"RIFF", b"WEBP"):
            attach_medium(chat, path)
            return
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise OptionError(f"/file {rest}: cannot be read ({reason}); give a text file, a picture or a clip") from error
    if not text.strip():
        raise OptionError(f"/file {rest}: is empty; give a text file")
    _attach(chat, f"/file {rest}", path.name, text)


def servers(chat: Dialogue, rest: str) -> Iterator[Event] | None:
    """List MCP servers, attach a resource of one, or ask its prompt. Raises OptionError, BackendError."""
    if chat.servers is None:
        raise OptionError("/mcp: there are no servers; start the chat with --mcp FILE")
    try:
        name, *given = shlex.split(rest) or [""]
    except ValueError as error:
        raise OptionError(f"/mcp {rest}: {str(error).lower()}; put texts with blanks into quotes") from error
    if not name:
        for row in chat.servers.lines:
            print(fitting(f"  {row[0]:<24} {row[1]}", 27), file=sys.stderr, flush=True)
        return None
    if (text := chat.servers.resource(name)) is not None:
        _attach(chat, f"/mcp {name}", name, text)
        return None
    arguments = {key: value for key, equals, value in (each.partition("=") for each in given) if equals}
    return chat.ask(chat.servers.prompt(name, arguments))


def _attach(chat: Dialogue, command: str, name: str, text: str) -> None:
    """Let a text come with the next message, as much of it as the user wants. Raises OptionError."""
    if (name, text) in chat.files:
        say(f"{name} is attached already")
        return
    ids = chat.model.tokenizer.encode(text)
    n, context = len(ids), chat.model.info.context
    if n >= context:
        text, n = _cut(chat, command, ids), context // 2
    chat.attach(name, text)
    say(f"{name}, {n:,} token{'s' if n != 1 else ''}, comes with your next message and stays in the context")
    if "files" in chat.notes:
        say(chat.notes["files"])


def attach_medium(chat: Dialogue, path: Path) -> None:
    """Let a picture or clip come with the next message. Raises OptionError, ImageError, AudioError."""
    if path.suffix.lower() in CLIP_SUFFIXES:
        _attach_clip(chat, path)
    else:
        _attach_picture(chat, path)


def _attach_clip(chat: Dialogue, path: Path) -> None:
    from edgellm.audio_spec import RATE
    from edgellm.chat.audio import Audio, read

    if chat.model.info.audio is None:
        raise OptionError(
            f"{path.name} is audio, and {chat.model.info.path.name} takes none: there is no projector (mmproj-*.gguf) with an "
            "audio encoder beside it; download it, or name one with --mmproj"
        )
    seconds = len(read(Audio(path))) / RATE
    if (place := str(path.absolute())) not in chat.pictures:
        chat.pictures.append(place)
    say(f"{path.name}, {seconds:.3g} seconds, comes with your next message")


def _attach_picture(chat: Dialogue, path: Path) -> None:
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
    """A message without the path of a picture or clip that it begins with, as terminals paste one that is dropped: it is attached.

    Raises OptionError, ImageError, AudioError.
    """
    stream = io.StringIO(text)
    lexer = shlex.shlex(stream, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        word = lexer.get_token() or ""
    except ValueError:  # a quotation that does not end
        return text
    path = Path(os.path.expanduser(word.removeprefix("file://")))
    if path.suffix.lower() not in (*PICTURE_SUFFIXES, *CLIP_SUFFIXES) or not path.is_file():
        return text
    attach_medium(chat, path)
    return stream.read().strip()


def _cut(chat: Dialogue, command: str, ids: Sequence[int]) -> str:
    """The first half context of a document, if the user wants that. Raises OptionError."""
    from edgellm.api.context_policy import context_for

    context = chat.model.info.context
    long = f"has {len(ids):,} tokens, and the context holds {context:,}"
    if not asked(f"{command} {long}; attach its first {context // 2:,}?"):
        larger = context_for(len(ids), chat.model.info.context_train)
        raise OptionError(
            f"{command}: {long}; give a part of it" + (f", or start the chat with {typed('context', larger)}" if larger else "")
        )
    return chat.model.tokenizer.decode(list(ids[: context // 2]))


def save(chat: Dialogue, rest: str) -> None:
    """Save now, or under a name."""
    kept = _keeper(chat, "/save")
    with _disk("/save"):
        trouble = kept.save_as(chat, rest)
    say(f"saved as {kept.name}")
    if trouble:
        say(trouble)


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
