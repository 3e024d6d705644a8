"""Completions inside a chat: commands, names of options, models, paths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from edgellm.cli.chat.settings import NAMES, SETTINGS, words
from edgellm.cli.chat.slash_commands import ALIASES, COMMANDS
from edgellm.cli.chat.typed_path import quoted, unquoted
from edgellm.cli.completion import session_names
from edgellm.cli.terminal.filter import Filter


def complete(text: str) -> tuple[str, Sequence[str]]:
    """The word before the cursor, and all that it may become; nothing outside commands."""
    if not text.startswith("/") or "\n" in text:
        return "", []
    command, space, rest = text[1:].partition(" ")
    if not space:
        return text, _matching(text, (f"/{name}" for name in (*COMMANDS, *ALIASES)))
    name, more, value = rest.partition(" ")
    if command == "set" and not more:
        return name, _matching(name, SETTINGS)
    if command == "set" and name in NAMES:
        return value, _matching(value, words(name))
    if command == "file":
        return rest.lstrip(), _typed_paths(rest.lstrip(), any_file=True)
    if command == "load" and not more:
        return name, session_names(name)
    if command == "think" and not more:
        return name, _matching(name, words("think"))
    if command == "model":
        return rest.lstrip(), _models(rest.lstrip())
    return "", []


def _matching(begun: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(begun)]


def _models(begun: str) -> list[str]:
    """Names of models on this machine; folders and .gguf files where a path was begun."""
    from edgellm.catalogue.names import installed
    from edgellm.catalogue.registry import bundled

    names = [entry.name for entry, _, _ in bundled()] + [name for name, _ in installed()]
    return [*_matching(begun, names), *_typed_paths(begun)]


def _typed_paths(typed: str, *, any_file: bool = False) -> list[str]:
    """Paths as the commands take them. What was typed is read as they read it: as it stands, else as a shell would."""
    found = _paths(typed, any_file=any_file) or _paths(unquoted(typed), any_file=any_file)
    return [quoted(path) for path in found]


def _paths(begun: str, *, any_file: bool = False) -> list[str]:
    folder, name = os.path.split(begun)
    try:
        inside = sorted(Path(os.path.expanduser(folder) or ".").iterdir())
    except (OSError, ValueError):
        return []
    return [
        os.path.join(folder, path.name) + (os.sep if path.is_dir() else "")
        for path in inside
        if path.name.startswith(name)
        and not (path.name.startswith(".") and not name.startswith("."))
        and "\n" not in path.name
        and Filter()(path.name) == path.name  # no name that could not be typed
        and (any_file or path.suffix == ".gguf" or (path.is_dir() and begun))
    ]
