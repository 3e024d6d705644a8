"""Finds the projectors that may belong to a model's file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgellm.catalogue.file_selection import is_named_for, projector_order
from edgellm.catalogue.hub_cache import is_projector


def projectors_beside(model: Path) -> Iterator[Path]:
    """The projectors that may be those of a model: in its folder (a checkpoint's is the model itself), in that of the file that it
    is a link to, in the top folder of a hub repository's version, each in the order of `projector_order`, and in the manifest of
    Ollama's store. One that is named for another model of the folder is not among them.
    """
    folders = [model if model.is_dir() else model.parent]
    if model.is_symlink():
        folders.append(model.resolve().parent)
    if model.parent.parent.parent.name == "snapshots":
        folders.append(model.parent.parent)
    for folder in folders:
        names = sorted(path.name for path in folder.glob("*.gguf"))
        models, projectors = ([name for name in names if is_projector(name) is wanted] for wanted in (False, True))
        for name in sorted(projectors, key=lambda name: projector_order(name, model.name)):
            if is_named_for(name, model.name) or not any(is_named_for(name, other) for other in models):
                yield folder / name
    if model.parent.name == "blobs":
        from edgellm.catalogue.stores.ollama import projector_of  # with the catalogue, which a load does not need

        yield from filter(None, [projector_of(model)])
