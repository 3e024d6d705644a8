"""The files that edgellm itself has put on this machine, so that `edgellm rm` takes away nothing that another program needs."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from edgellm.catalogue.paths import data_folder

FILE = "fetched.json"


def owned() -> frozenset[str]:
    """The paths that were noted; none where the ledger is missing or damaged."""
    try:
        paths = json.loads((data_folder() / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return frozenset()
    return frozenset(path for path in paths if isinstance(path, str)) if isinstance(paths, list) else frozenset()


def owns(path: Path) -> bool:
    """True if edgellm has fetched or imported the file."""
    return os.path.abspath(path) in owned()


def note(path: Path) -> None:
    """Remember a file as ours. A folder that cannot be written only means that `rm` will ask for --force."""
    _write(owned() | {os.path.abspath(path)})


def forget(path: Path) -> None:
    """The file is gone."""
    _write(owned() - {os.path.abspath(path)})


def _write(paths: frozenset[str]) -> None:
    folder = data_folder()
    temporary = folder / f".{FILE}.{os.getpid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(sorted(paths), file, indent=0)
        os.replace(temporary, folder / FILE)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
