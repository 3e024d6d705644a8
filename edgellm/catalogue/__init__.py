"""Which file a model name means: our catalogue, and the model files that are already on this machine."""
from __future__ import annotations

from edgellm.catalogue.entries import Entry, ModelFile, Part, entries
from edgellm.catalogue.names import entry_of, fetch_command, installed, resolve

__all__ = ["Entry", "ModelFile", "Part", "entries", "entry_of", "fetch_command", "installed", "resolve"]
