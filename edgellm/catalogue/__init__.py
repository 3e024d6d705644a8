"""Models on disk: our catalogue, the files that are already on this machine, and how others are fetched."""

from __future__ import annotations

import os
from pathlib import Path


def resolve(name: str | os.PathLike[str]) -> Path:
    """The model file that `name` means; see `names.resolve`, which needs the catalogue, as the path of a file does not."""
    if isinstance(name, str | os.PathLike) and isinstance(path := os.fspath(name), str):
        path = os.path.expanduser(path)
        if not path.startswith(("hf:", "ollama:")) and os.path.isfile(path):
            return Path(path)
    from edgellm.catalogue import names

    return names.resolve(name)
