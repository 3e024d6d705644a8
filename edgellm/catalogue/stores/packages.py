"""Models inside installed Python packages, and those that edgellm took out of packages it has fetched."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from edgellm.catalogue.package import packages_folder
from edgellm.catalogue.paths import OWN, Environment
from edgellm.catalogue.registry import entries
from edgellm.catalogue.stores.found import Found, found

NAME = "Python packages"
RANK = 8
SITES = ("site-packages", "dist-packages")


def find(around: Environment) -> Iterator[Found]:
    """Models that lie directly in a package's folder, under their catalogue's name where they have one."""
    known = {
        (file.parts[0].path.rpartition("/")[2], file.size): (entry.name, file)
        for entry in entries().values()
        for file in entry.files
        if file.package
    }
    sites = [Path(place) for place in sys.path if Path(place).name in SITES]
    for folder in dict.fromkeys((packages_folder(), *sites)):
        for path in sorted(folder.glob("*/*.gguf")):
            if path.parent == OWN or (one := found(str(path), path)) is None:
                continue
            name, file = known.get((path.name, one.size), ("", None))
            if file is None:
                yield one
            else:
                yield Found(f"{name}:{file.type}", one.paths, one.size, file.type, file.parts[0].sha256)
