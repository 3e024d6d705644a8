"""The form of an answer as the command line takes it: --schema, --choices, --regex, --grammar."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edgellm.cli.terminal.piped import file_bytes
from edgellm.errors import OptionError, shown


def form(chosen: Mapping[str, str]) -> dict[str, Any]:
    """The library's option, checked before a model is loaded; {} without any. Raises OptionError, SchemaError."""
    found = {name: read(chosen[name]) for name, read in _READ.items() if name in chosen}
    if found:
        from edgellm.api.forms.form import find_form

        find_form(found)
    return found


def _schema(given: str) -> Any:  # Any: JSON
    inline = given.lstrip()[:1] in ("{", "[", '"') or given.strip() in ("true", "false")
    text = given if inline else _read("--schema", Path(given))
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"--schema {shown(given)}: is not JSON ({error}); give a JSON schema or a file with one") from error


def _choices(given: str) -> list[str]:
    if not given.lstrip().startswith("["):
        return [text.strip() for text in given.split(",")]
    try:
        found: list[str] = json.loads(given)
    except ValueError as error:
        raise OptionError(f'--choices {shown(given)}: is not a JSON list ({error}); give e.g. ["yes", "no"], or yes,no') from error
    return found


def _grammar(given: str) -> str:
    return _read("--grammar", Path(given))


def _read(option: str, file: Path) -> str:
    try:
        return file_bytes(file).decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"{option} {file}: cannot be read ({reason}); give a text file") from error


_READ: dict[str, Callable[[str], Any]] = {"schema": _schema, "choices": _choices, "regex": str, "grammar": _grammar}
