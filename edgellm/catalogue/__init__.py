"""Models on disk: our catalogue, the files that are already on this machine, and how others are fetched."""
from __future__ import annotations

from edgellm.catalogue.entries import Entry, ModelFile, Part
from edgellm.catalogue.known import bundled, entries
from edgellm.catalogue.names import entry_of, fetch_command, installed, resolve

__all__ = ["Entry", "ModelFile", "Part", "bundled", "entries", "entry_of", "fetch_command", "installed", "resolve"]
