"""The models on this machine by name, for programs that offer them to others: no name leads to a path that it spells."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from edgellm.catalogue.download import Progress
from edgellm.catalogue.names import entry_of, meant, named_file
from edgellm.catalogue.pull import pull as fetch
from edgellm.catalogue.removing import find_removable
from edgellm.catalogue.removing import remove as remove_files
from edgellm.catalogue.stores import scan

MOST_NAME = 300  # characters


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """A model file on this machine, whichever program fetched it."""

    name: str
    path: Path
    size: int  # bytes of all parts
    type: str  # of its tensors, as far as names tell
    store: str  # the program that fetched it
    kind: str = "chat"  # "chat", "embedding" or "test", as far as the catalogue knows
    parameters: str = ""  # "0.6B"; "" where the catalogue does not know it
    sha256: str | None = None
    sampling: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))  # defaults that its makers recommend

    @property
    def modified(self) -> float:
        """When the file was written, in seconds since 1970; 0 where it is gone."""
        try:
            return self.path.stat().st_mtime
        except OSError:
            return 0.0


def installed() -> list[InstalledModel]:
    """The models on this machine, each file once, under the name that `load` takes."""
    found = list[InstalledModel]()
    for model in scan():
        entry = entry_of(model.found.name) if "/" not in model.found.name else None
        found.append(
            InstalledModel(
                model.found.name,
                model.found.path,
                model.found.size,
                model.found.type,
                model.store,
                entry.kind if entry else "chat",
                entry.parameters if entry else "",
                model.found.sha256,
                entry.sampling if entry else MappingProxyType({}),
            )
        )
    return found


def find_installed(name: str) -> InstalledModel | None:
    """The installed model that a name means, None without one.

    The spellings of `load` are understood, of names alone: nothing is opened at a path that the name spells. Raises ModelNotFound
    where several models have this name.
    """
    models, wanted = installed(), name.strip().lower()
    named = {model.name.lower(): model for model in models}
    for text in (wanted, wanted.removesuffix(":latest"), f"ollama:{wanted.removesuffix(':latest')}", f"hf:{wanted}"):
        if text in named:
            return named[text]
    path = named_file(name.strip()) if name.isprintable() and len(name) <= MOST_NAME else None
    target = path and os.path.realpath(path)
    return next((model for model in models if os.path.realpath(model.path) == target), None) if target else None


def pull(name: str, *, progress: Progress = lambda file, done, total: None) -> Path:
    """Fetch a model of the catalogue or the hub (`qwen3-0.6b`, `hf:owner/repo[:TYPE|FILE]`), unless it is here already.

    `progress(file, done, total)` is called with bytes. Raises ModelNotFound for a name that means nothing, and DownloadError.
    """
    return fetch(meant(name)[0], progress=progress)


def remove(name: str) -> int:
    """Remove a model that edgellm fetched; returns the bytes that became free.

    Raises ModelNotFound, and OptionError for a file that edgellm did not put there.
    """
    return remove_files(find_removable(name))
