"""Models that Jan has downloaded; its newer versions call every file model.gguf, in a folder named after the model."""

from __future__ import annotations

from collections.abc import Iterator

from edgellm.catalogue.paths import Environment
from edgellm.catalogue.stores.found import Found, plain

NAME = "Jan"
RANK = 5


def find(around: Environment) -> Iterator[Found]:
    """The models of the data folder, in both of its layouts."""
    if around.platform == "win32":
        roots = [around.folder("APPDATA", "AppData/Roaming")]
    else:
        roots = [around.data(), around.folder("XDG_CONFIG_HOME", ".config")]
    for root in roots:
        if root is not None:
            for inside in ("llamacpp/models", "models"):
                yield from plain(root / "Jan/data" / inside)
