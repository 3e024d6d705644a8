"""A model that a store found, and checks of folders that stores do not trust."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgellm.catalogue.file_selection import parts_of, type_of
from edgellm.catalogue.hub_cache import is_model

MOST_FILES, DEEPEST = 20_000, 8  # looked at per folder: a home folder listed by mistake must not take minutes
SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Found:
    """One model: what to call it, its files (all parts of a split one), bytes, type as far as names tell, sha256 if it is free.

    `given`: the user gave it this name.
    """

    name: str
    paths: tuple[Path, ...]
    size: int
    type: str
    sha256: str | None = None
    given: bool = False

    @property
    def path(self) -> Path:
        """The file to open."""
        return self.paths[0]


def gguf_files(folder: Path) -> Iterator[Path]:
    """The models under a folder, in order: regular .gguf files, no projectors, of split ones the first part."""
    left = MOST_FILES
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(folders) if len(Path(place).relative_to(folder).parts) < DEEPEST else []
        left -= len(files)
        if left < 0:
            return
        yield from (Path(place, name) for name in sorted(files) if is_model(name))


def found(name: str, path: Path, *, sha256: str | None = None) -> Found | None:
    """A record of the model at `path`; None where a part is missing or is not a GGUF file."""
    paths = tuple(path.with_name(part) for part in parts_of(path.name))
    if not all(is_gguf(part) for part in paths):
        return None
    digest = sha256 if sha256 and SHA256.fullmatch(sha256) and len(paths) == 1 else None
    return Found(name, paths, sum(part.stat().st_size for part in paths), type_of(path.name), digest)


def is_gguf(path: Path) -> bool:
    """True if a path leads to a regular file that begins as GGUF files do."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def plain(folder: Path) -> Iterator[Found]:
    """The models of a folder under their own paths."""
    for path in gguf_files(folder):
        if (one := found(str(path), path)) is not None:
            yield one
