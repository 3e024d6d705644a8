"""The models that come with edgellm itself, in the folder of its own data."""

from __future__ import annotations

from collections.abc import Iterator

from edgellm.catalogue.paths import Environment
from edgellm.catalogue.registry import bundled
from edgellm.catalogue.stores.found import Found, found

NAME = "edgellm"
RANK = 7  # last: what the user fetched comes first in lists


def find(around: Environment) -> Iterator[Found]:
    """The bundled files of the catalogue, by the names that they have there."""
    for entry, file, path in bundled():
        if (one := found(entry.name, path, sha256=file.parts[0].sha256)) is not None:
            yield Found(one.name, one.paths, one.size, file.type, one.sha256)
