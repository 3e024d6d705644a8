"""The command line's memory between starts, in files that only the user can read."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from edgellm.folders import state_folder

__all__ = ["last_model", "private_file", "remember_model", "state_folder"]


def private_file(name: str) -> Path | None:
    """A file of the state folder, made with mode 0600 if it is new; None where nothing can be written."""
    try:
        folder = state_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if sys.platform != "win32" and os.fstat(descriptor).st_mode & 0o077:  # an older version, or somebody, made it
                os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
        return folder / name
    except OSError:
        return None


def last_model() -> str | None:
    """The name or path of the model that the last chat used."""
    try:
        return (state_folder() / "last-model").read_text(encoding="utf-8").strip() or None
    except (OSError, ValueError):
        return None


def remember_model(name: str) -> None:
    """Keep the name for the next `edgellm chat`; an unwritable folder only costs the convenience."""
    path = private_file("last-model")
    if path is not None:
        with contextlib.suppress(OSError, ValueError):
            path.write_text(name + "\n", encoding="utf-8")
