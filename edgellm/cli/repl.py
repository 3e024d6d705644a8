"""The loop of a chat: a message in, an answer out, until somebody leaves."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator

from edgellm.cli.commands import Leave, carry_out
from edgellm.cli.conversation import Conversation
from edgellm.cli.interrupt import on_ctrl_c
from edgellm.cli.lines import EditedLines, plain_lines, read_message
from edgellm.cli.output import Answer, complain, say
from edgellm.errors import EdgeError


def talk(conversation: Conversation, *, interactive: bool) -> None:
    """Run the loop. On a terminal an error or Ctrl-C ends one answer; over a pipe it ends everything."""
    lines = EditedLines() if interactive else plain_lines
    while (text := read_message(lines)) is not None:
        try:
            pieces = carry_out(text, conversation) if text.startswith("/") else _ask(conversation, text)
            if pieces is not None:
                _print(conversation, pieces, interactive)
        except Leave:
            return
        except EdgeError as error:
            if not interactive:
                raise
            complain(str(error))


def _ask(conversation: Conversation, text: str) -> Iterator[str] | None:
    return conversation.ask(text) if text.strip() else None


def _print(conversation: Conversation, pieces: Iterator[str], interactive: bool) -> None:
    """Stream an answer, and say what its text does not show."""
    answer = Answer(reply=True)
    with on_ctrl_c(conversation.stop) if interactive else contextlib.nullcontext():
        for piece in pieces:
            answer.write(piece)
    answer.end()
    result = conversation.last
    if result is None:
        return
    if result.stop_reason == "cancelled":
        say("(stopped)")
    elif not result.text:
        say("(the model ended its answer at once)")
    elif result.stop_reason in ("length", "context"):
        say(f"(cut after {result.stats.generated_tokens} tokens: {CUT[result.stop_reason]})")
    if result.stats.evicted_tokens:
        say("(the context is full: the oldest messages are being forgotten; /clear starts afresh)")


CUT = {"length": "/set n sets another limit", "context": "the context is full; /clear starts afresh"}
