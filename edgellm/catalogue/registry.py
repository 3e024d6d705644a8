"""The catalogue in force: the one that ships with edgellm, and over it what the user's own models.toml adds."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from edgellm.catalogue.entries import Catalogue, Entry, ModelFile, parse
from edgellm.catalogue.paths import ENTRIES_FILE, config_folder, own_data
from edgellm.errors import BadCatalogue

MAX_BYTES = 4 << 20  # of a user's models.toml; ours has 30,000
SHIPPED = Path(__file__).resolve().parent.parent / ENTRIES_FILE


def entries() -> Mapping[str, Entry]:
    """All entries by name, in the files' order; a user's entry replaces ours of its name. Raises BadCatalogue."""
    return {**shipped().entries, **own().entries}


def folders() -> tuple[Path, ...]:
    """The folders of models that the user's models.toml lists. Raises BadCatalogue."""
    return tuple(Path(os.path.expanduser(folder)) for folder in own().folders)  # of an unknown user: as it is


def bundled() -> Iterator[tuple[Entry, ModelFile, Path]]:
    """The models that come with edgellm itself, as far as this installation has their files. Raises BadCatalogue."""
    for entry in entries().values():
        for file in entry.files:
            if file.bundled and (path := own_data(file.parts[0].path)) is not None:
                yield entry, file, path


@functools.cache
def shipped() -> Catalogue:
    """The catalogue that ships with edgellm. Raises BadCatalogue where this installation lacks it."""
    try:
        return parse(SHIPPED.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadCatalogue(
            f"{SHIPPED} comes with edgellm, but cannot be read ({error.strerror}): install edgellm again, in a "
            "frozen program with its data files; a path of a model needs no catalogue"
        ) from error


def own() -> Catalogue:
    """The user's additions; empty where there is no file. Raises BadCatalogue."""
    path = config_folder() / ENTRIES_FILE
    try:
        stamp = path.stat().st_mtime_ns
    except OSError:
        return Catalogue({})
    return _read(path, stamp)


@functools.lru_cache(maxsize=4)
def _read(path: Path, stamp: int) -> Catalogue:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES} bytes")
        return parse(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise BadCatalogue(f"{path} cannot be used: it nests too deeply; correct it or move it away") from error
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, no TOML, or outside the schema
        raise BadCatalogue(f"{path} cannot be used: {str(error)[:300]}; correct it or move it away") from error
