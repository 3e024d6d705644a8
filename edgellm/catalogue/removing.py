"""Taking models off this machine: what is ours, and nothing that another program still needs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from edgellm.catalogue import hub_cache, ledger
from edgellm.catalogue.file_selection import SPLIT, parts_of
from edgellm.catalogue.importing import projector_name
from edgellm.catalogue.names import OLLAMA_PREFIX, meant, resolve
from edgellm.catalogue.paths import models_folder
from edgellm.catalogue.registry import bundled
from edgellm.catalogue.stores import named
from edgellm.errors import ModelNotFound, OptionError


@dataclass(frozen=True, slots=True)
class Removable:
    """The files of a model, and their bytes."""

    paths: tuple[Path, ...]
    size: int


def find_removable(name: str, *, force: bool = False) -> Removable:
    """The files that removing a model means. Raises ModelNotFound, and OptionError for what is not ours."""
    first = resolve(name)
    target = os.path.realpath(first)
    tags = [model.name for model in named("ollama") if os.path.realpath(model.path) == target]
    if tags:
        asked = meant(name)[0].removesuffix(":latest")
        known = [asked] if asked in tags else tags
        way = " and ".join(f"ollama rm {tag.removeprefix(OLLAMA_PREFIX)}" for tag in known)
        raise OptionError(f"rm {name}: the file is Ollama's, which would not know that it is gone; use: {way}")
    if any(os.path.realpath(path) == target for _, _, path in bundled()):
        raise OptionError(f"rm {name}: the model is built in and can't be removed")
    paths = tuple(first.with_name(part) for part in parts_of(first.name))
    paths = tuple(path for path in paths if path.exists())
    projector = models_folder() / projector_name(SPLIT.sub(r"\1.gguf", first.name).removesuffix(".gguf"))
    if first.parent == models_folder() and projector.exists():
        paths += (projector,)
    if not force and not all(ledger.owns(path) for path in paths):
        raise OptionError(f"rm {name}: {first} was not put there by edgellm, and other programs may need it; --force removes it")
    return Removable(paths, sum(path.stat().st_size for path in paths))


def remove(model: Removable) -> int:
    """Remove the files; returns the bytes that became free. Raises ModelNotFound where one cannot be removed."""
    root, freed = hub_cache.cache_root().absolute(), 0
    for path in model.paths:
        try:
            if path.absolute().is_relative_to(root) and "snapshots" in path.absolute().relative_to(root).parts:
                freed += hub_cache.unlink(path.absolute())
            else:
                status = path.lstat()
                path.unlink()
                freed += status.st_size if status.st_nlink == 1 else 0
        except OSError as error:
            raise ModelNotFound(f"{path} cannot be removed ({error.strerror}); check its permissions") from error
        ledger.forget(path)
    return freed
