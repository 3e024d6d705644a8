"""Models in edgellm's own folder, which `edgellm import` fills, and in the folders that the user's models.toml lists."""

from __future__ import annotations

import re
from collections.abc import Iterator

from edgellm.catalogue.file_selection import type_of
from edgellm.catalogue.paths import Environment, models_folder
from edgellm.catalogue.registry import folders
from edgellm.catalogue.stores.found import Found, plain

NAME = "own folder"
RANK = 6
# q4-k-m: names that edgellm gives have no underscores
DASHES = re.compile(r"(?<=q\d)-(?=(?:[01]|k|nl|x?xs|[sm])(?:[-.]|$))|(?<=q\d-k)-(?=(?:xl|[sml])(?:[-.]|$))")


def find(around: Environment) -> Iterator[Found]:
    """Imported models by their names, those of other folders by their paths."""
    own = models_folder(around)
    for one in plain(own):
        name = re.sub(r"-00001-of-\d{5}$", "", one.path.stem)
        if one.path.parent == own:
            yield Found(name, one.paths, one.size, type_of(DASHES.sub("_", name)), one.sha256, given=True)
        else:
            yield one
    for folder in folders():
        yield from plain(folder)
