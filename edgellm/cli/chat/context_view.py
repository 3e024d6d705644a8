"""`/context`: the contents of a chat's context as a bar with a list below it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from edgellm.cli.chat.conversation import text_of

if TYPE_CHECKING:
    from edgellm.cli.chat.conversation import Dialogue

FULL, EMPTY, LOST = "#", ".", "-"
WIDEST = 72  # columns of the bar


def bar(used: int, of: int, width: int) -> str:
    """How full the context is, in `width` characters."""
    filled = min(width, -(-used * width // of)) if of else 0
    return FULL * filled + EMPTY * (width - filled)


def used_tokens(chat: Dialogue) -> int:
    """Tokens of the conversation that the model saw at the end of the last answer. Where none came yet, or the last was taken back:
    those kept that the messages still hold."""
    if chat.last is not None and chat.last.stats.generated_tokens:
        held = chat.last.stats.prompt_tokens + chat.last.stats.generated_tokens
    elif chat.session is not None and chat.turns:
        held = min(chat.session.n_tokens, len(chat.prompt()))
    else:
        held = 0
    return min(chat.model.info.context, held)


def picture_tokens(chat: Dialogue, message: dict[str, Any]) -> int:
    """Tokens of a message's pictures and clips, each of which is encoded already."""
    parts = [part for part in message["content"] if isinstance(part, dict)]
    images = sum(len(chat.model.embed_image(part["image"])) for part in parts if part["type"] == "image")
    return images + sum(len(chat.model.embed_audio(part["audio"])) for part in parts if part["type"] == "audio")


def lines(chat: Dialogue, columns: int) -> list[str]:
    """The whole view, for a terminal of so many columns."""
    info, used = chat.model.info, used_tokens(chat)
    width = max(10, min(WIDEST, columns - 12))
    trained = f" (trained for {info.context_train:,})" if info.context_train > info.context else ""
    shown = [
        f"[{bar(used, info.context, width)}] {used / info.context:4.0%}",
        f"{used:,} of {info.context:,} tokens{trained}; when it is full: {chat.policy}",
    ]
    if chat.policy == "ring":
        more = f", and of the system prompt up to {info.pinned:,}" if info.pinned > info.sinks else ""
        shown.append(f"the first {info.sinks} tokens always stay{more}")
    if chat.last is not None:
        stats = chat.last.stats
        shown.append(
            f"last answer: {stats.cached_tokens:,} cached, {stats.computed_tokens:,} computed, "
            f"{stats.evicted_tokens:,} evicted tokens" + (f", {stats.forgotten_images} pictures" if stats.forgotten_images else "")
        )
    return shown + _messages(chat, columns)


def _messages(chat: Dialogue, columns: int) -> list[str]:
    """A line for each message: its length, its beginning, and whether the model still sees it."""
    from rich.cells import set_cell_size

    from edgellm.cli.terminal.filter import clean

    forgotten = set(chat.last.stats.forgotten_messages) if chat.last is not None else set()
    shown = []
    for k, message in enumerate(chat.messages()):
        text = text_of(message)
        n = len(chat.model.tokenizer.encode(text)) + picture_tokens(chat, message)
        head = f"{LOST if k in forgotten else FULL} {message['role']:<9} {n:>6,}  "
        text = clean(text[: 4 * columns])
        room = max(8, columns - len(head) - 1)
        shown.append(head + (text if len(text) < room else set_cell_size(text, room - 3) + "..."))
    for name, document in chat.files:
        n = len(chat.model.tokenizer.encode(document))
        shown.append(f"+ file      {n:>6,}  {clean(name)}, comes with the next message")
    shown += [f"+ picture           {clean(os.path.basename(path))}, comes with the next message" for path in chat.pictures]
    if forgotten:
        shown.append(f"{LOST} the model no longer sees these {len(forgotten)} messages")
    return shown
