"""Models that LM Studio has downloaded: plain files as PUBLISHER/REPOSITORY/FILE.gguf."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgellm.catalogue.paths import Environment
from edgellm.catalogue.stores.found import Found, plain

NAME = "LM Studio"
RANK = 2
POINTER = ".lmstudio-home-pointer"  # its text is the folder to which the user moved everything


def find(around: Environment) -> Iterator[Found]:
    """The models of the current folder, of the older one, and those that come with the program."""
    homes = [around.home / ".lmstudio"]
    try:
        moved = (around.home / POINTER).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        moved = ""
    if moved and "\0" not in moved:
        homes.insert(0, Path(moved))
    folders = [home / inside for home in homes for inside in ("models", ".internal/bundled-models")]
    for folder in (*folders, around.home / ".cache/lm-studio/models"):
        yield from plain(folder)
