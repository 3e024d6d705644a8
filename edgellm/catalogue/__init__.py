"""Models on disk: our catalogue, the files that are already on this machine, and how others are fetched."""

from __future__ import annotations

from edgellm.catalogue.entries import Entry, FilePart, ModelFile
from edgellm.catalogue.names import entry_file, entry_of, fetch_command, installed, resolve
from edgellm.catalogue.registry import bundled, entries

__all__ = [
    "Entry",
    "FilePart",
    "ModelFile",
    "bundled",
    "entries",
    "entry_file",
    "entry_of",
    "fetch_command",
    "installed",
    "resolve",
]
