"""Paths as they are typed in a chat: plain to the end of the line, or quoted and escaped as in a shell."""

from __future__ import annotations

import os
import shlex


def meant(typed: str) -> str:
    """A path as it was typed; where nothing is there, with quotes and backslashes read as a shell does, if that path exists."""
    path = os.path.expanduser(unquoted(typed))
    return path if os.path.exists(path) and not os.path.exists(os.path.expanduser(typed)) else typed


def unquoted(typed: str) -> str:
    """One word as a shell reads it, whose quotation may still be open; the text itself where it is more than a word."""
    for closing in ("", "'", '"'):
        try:
            words = shlex.split(typed + closing)
        except ValueError:  # a quotation or an escape that does not end
            continue
        return words[0] if len(words) == 1 else typed
    return typed


def quoted(path: str) -> str:
    """A path as it may be typed: in quotes where it has blanks. Those of a folder stay open, for what follows."""
    if not any(character.isspace() for character in path):
        return path
    return shlex.quote(path).removesuffix("'") if path.endswith(os.sep) else shlex.quote(path)
