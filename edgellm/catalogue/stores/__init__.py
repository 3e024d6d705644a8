"""The models that are already on this machine, fetched by any program: one module per program, found by listing this folder.

Each module has NAME (for people), RANK (of two stores with the same file the lower one owns it) and `find(surroundings)`, which
yields Found records and skips what it cannot read. Nothing here writes.
"""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from edgellm.catalogue.entries import FilePart
from edgellm.catalogue.paths import Environment
from edgellm.catalogue.stores.found import Found

__all__ = ["Found", "StoredModel", "aliases", "all_found", "named", "names", "same_file", "scan"]


OLLAMA = "ollama:"


class ModelStore(Protocol):
    NAME: str
    RANK: int

    def find(self, around: Environment) -> Iterator[Found]:
        """The models of this program."""
        ...


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One model of this machine: what `found` says of it, the store that owns it, and the others that hold the same bytes.

    `same_as`: for a name that was given to a file which another name stands for already, that other name.
    """

    found: Found
    store: str
    also: tuple[str, ...] = ()
    same_as: str = ""


def names() -> list[str]:
    """The modules of all stores, best rank first."""
    every = [module.name for module in pkgutil.iter_modules(__path__) if module.name != "found"]
    return sorted(every, key=lambda name: (_store(name).RANK, name))


def named(store: str, around: Environment | None = None) -> list[Found]:
    """The models in one store."""
    return list(_store(store).find(around or Environment()))


def all_found(around: Environment | None = None) -> list[Found]:
    """The models of all stores, those of the best rank first; a file may be there several times."""
    return [model for store in names() for model in named(store, around)]


def aliases(model: Found) -> set[str]:
    """The names by which a model is known to the program that fetched it, in lower case."""
    name = model.name.lower()
    if name.startswith(OLLAMA):
        return {name.removeprefix(OLLAMA)}
    if not os.path.isabs(model.name):
        return set()
    *_, publisher, repository, file = ("", "", *model.path.parts)
    stem = re.sub(r"-00001-of-\d{5}$", "", model.path.stem)
    return {text.lower() for text in (file, stem, f"{publisher}/{repository}", f"{publisher}/{repository}/{file}")}


def scan(around: Environment | None = None) -> list[StoredModel]:
    """Every model on this machine once: the same file, link target or sha256 is one model, wherever it is seen.

    Names that the user gave (`Found.given`) all appear, and all tags of Ollama's.
    """
    models: list[StoredModel] = []
    seen: dict[object, int] = {}
    for store in names():
        title = _store(store).NAME
        for found in named(store, around):
            keys = list(_identity(found))
            known = next((seen[key] for key in keys if key in seen), None)
            if known is None:
                known = len(models)
                models.append(StoredModel(found, title))
            elif found.given or (found.name.startswith(OLLAMA) and title == models[known].store):
                models.append(StoredModel(found, title, same_as=models[known].found.name))
            elif title != models[known].store and title not in models[known].also:
                models[known] = StoredModel(models[known].found, models[known].store, (*models[known].also, title))
            seen.update(dict.fromkeys(keys, known))
    return models


def same_file(part: FilePart, around: Environment | None = None) -> Path | None:
    """A file of another program that is this file of the catalogue: the same sha256, or the same name and length."""
    wanted = part.path.rpartition("/")[2]
    for store in names():
        for found in named(store, around):
            alike = found.sha256 == part.sha256 if found.sha256 and part.sha256 else found.path.name == wanted
            if alike and found.size == part.size and len(found.paths) == 1:
                return found.path
    return None


def _identity(found: Found) -> Iterator[object]:
    yield os.path.realpath(found.path)
    if found.sha256:
        yield found.sha256
    status = found.path.stat()
    if status.st_ino:  # 0 on file systems that have none
        yield status.st_dev, status.st_ino


@functools.cache
def _store(name: str) -> ModelStore:
    return cast(ModelStore, importlib.import_module(f"{__name__}.{name}"))
