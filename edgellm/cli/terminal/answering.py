"""Shows an answer while it is being written: how far the prompt is read, what is thought, what is said."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from edgellm.cli.terminal.output import AnswerPrinter, say
from edgellm.cli.terminal.progress import ReadingLine

if TYPE_CHECKING:
    from edgellm.api.records import Event, Generation


def thought_only(result: Generation) -> bool:
    """True for an answer that was cut before it began, while the model was thinking."""
    return bool(result.thinking) and not result.text and result.stop_reason in ("length", "context", "loop", "cancelled")


def show(events: Iterable[Event], reading: ReadingLine, *, raw: bool = False, reply: bool = True, plain: bool = False) -> None:
    """Print an answer on stdout. `reading` gets the stream's progress; `raw`, `reply` and `plain` are those of AnswerPrinter.

    Thinking is shown on a terminal, dimmed. Elsewhere stdout has the answer alone.
    """
    answer = AnswerPrinter(raw=raw, reply=reply, plain=plain)
    seen = sys.stdout.isatty()
    try:
        with reading:
            for kind, text, *_ in events:
                if kind not in ("thinking", "text"):
                    continue
                if kind == "thinking" and not seen:
                    reading.thought()
                    continue
                reading.erase()
                if kind == "thinking":
                    answer.think(text)
                else:
                    answer.write(text)
    except KeyboardInterrupt:
        answer.end()
        say("(stopped)")
        raise
    answer.end()
